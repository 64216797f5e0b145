"""DFC-VAE: features and loss by hand, and features of a network of the user's own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import unbraid as ub
from unbraid.data.dataset import FactorData
from unbraid.methods import DFCVAE, Batch
from unbraid.methods.dfc_vae import random_features
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def test_random_features_depend_on_the_seed_only() -> None:
    x = torch.rand(3, 1, 12, 12)
    first, again, other = (random_features(x, seed) for seed in (1, 1, 2))
    for a, b, c in zip(first, again, other, strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)
        assert (a >= 0).all()


def test_random_layers_keep_the_scale_of_their_input() -> None:
    """For inputs with mean square 1, the mean square of the features stays near 1 in dense layers."""
    x = torch.randn(500, 300)
    for h in random_features(x, seed=3):
        assert float(h.square().mean()) == pytest.approx(1, rel=0.5)


@dataclass(frozen=True)
class SumFeatures(DFCVAE):
    """Two layers of features: the sum of all values, and the values."""

    def compute_features(self, x: Tensor) -> list[Tensor]:
        return [x.flatten(1).sum(1, keepdim=True), x]


def test_loss_by_hand() -> None:
    """The examples are 1 and the reconstructions 3, so the differences are 2 in each of 4 values and 8 in the sum."""
    net = VAENet(nn.Linear(4, 4), nn.Linear(2, 4), likelihood="gaussian").requires_grad_(False)
    for parameter in net.parameters():
        parameter.zero_()
    assert isinstance(net.decoder, nn.Linear)
    net.decoder.bias.fill_(3.0)
    batch = Batch(torch.ones(5, 4), 10)
    loss, terms = SumFeatures(features=2.0, pixels=0.5).objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))
    assert float(terms["features"]) == pytest.approx(4 / 2 * 8**2 + 4 / 2 * 2**2)
    assert float(terms["rec"]) == pytest.approx(0.5 * 4 * 2**2)
    assert float(terms["kl"]) == 0
    assert float(loss) == pytest.approx(2 * 136 + 0.5 * 8)


def small_pair(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    n = math.prod(shape)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(n, 32), nn.ReLU(), nn.Linear(32, 2 * latents))
    return encoder, nn.Sequential(nn.Linear(latents, 32), nn.ReLU(), nn.Linear(32, n), nn.Unflatten(1, shape))


def test_features_of_a_trained_encoder(glyphs: FactorData) -> None:
    """A run is trained with the features of the encoder of another run, and reconstructs better than before."""
    (teacher,) = ub.train("vae", data=glyphs, net=small_pair, steps=20, latents=4, quiet=True)
    network = teacher.net.encoder.requires_grad_(False)

    class EncoderFeatures(DFCVAE):
        def compute_features(self, x: Tensor) -> list[Tensor]:
            return [network(x)]

    net = VAENet(*small_pair(glyphs.shape, 4))
    batch = Batch(glyphs.batch(torch.arange(48)), len(glyphs))
    optimiser, losses = torch.optim.Adam(net.parameters(), 3e-3), []
    for step in range(60):
        noise = Noise.from_seed(torch.tensor(0), torch.tensor(step))
        loss, terms = EncoderFeatures(beta=0.01).objective(net, batch, noise, torch.tensor(float(step)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(terms["features"].detach()))
    assert losses[-1] < 0.5 * losses[0]
    assert math.isfinite(losses[-1])
