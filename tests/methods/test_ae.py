"""The autoencoder compared with a hand calculation and with principal components, its traversals and controls."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import unbraid as ub
from unbraid.data.dataset import FactorData
from unbraid.data.in_memory import Labelled
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods import AE, Batch, RowLabel
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


class HalvingEncoder(nn.Module):
    """An encoder that halves the first two numbers. The log variances are 50, which must have no effect."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, :2] / 2, torch.full_like(x[:, :2], 50.0)], 1)


class DoublingDecoder(nn.Module):
    """A decoder that doubles the latents and appends 0."""

    def forward(self, z: Tensor) -> Tensor:
        return torch.cat([2 * z, 0 * z[:, :1]], 1)


def make_net() -> VAENet:
    return VAENet(HalvingEncoder(), DoublingDecoder(), "gaussian")


def test_loss_by_hand() -> None:
    """The first two numbers are reconstructed, so the loss is half the mean square of the third number."""
    x = torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.0, 1.0]])
    loss, terms = AE().objective(make_net(), Batch(x, 2), Noise(torch.tensor(0)), torch.tensor(0.0))
    assert float(loss) == float(terms["rec"]) == pytest.approx((9 / 2 + 1 / 2) / 2)


def build_linear_net(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """Return a linear encoder and a linear decoder."""
    return nn.Linear(shape[0], 2 * latents, bias=False), nn.Linear(latents, shape[0], bias=False)


def test_linear_autoencoder_finds_principal_components() -> None:
    """The minimum error of two linear latents is half the sum of the other eigenvalues (Baldi & Hornik 1989)."""
    torch.manual_seed(0)
    deviations = torch.tensor([3.0, 2.0, 0.5, 0.3])
    rotation, _ = torch.linalg.qr(torch.randn(4, 4))
    x = torch.linalg.qr(torch.randn(500, 4))[0] * 500**0.5 * deviations @ rotation.T
    data = Labelled("lines", (), (), x, torch.zeros(500, 0, dtype=torch.int64))
    (run,) = ub.train(AE(), data, steps=500, batch=500, learning_rate=1e-2, latents=2, net=build_linear_net,
                      likelihood="gaussian", quiet=True)  # fmt: skip
    error = 0.5 * (run.decode(run.encode(x)) - x).square().sum(1).mean()
    assert float(error) == pytest.approx((0.5**2 + 0.3**2) / 2, rel=0.03)


def test_traversal_takes_standard_deviations_of_the_codes() -> None:
    """The latent with the largest standard deviation comes first. In each row, the other latent keeps its value."""
    population = Gaussian(torch.tensor([[0.0, 1.0], [0.0, 5.0], [2.0, 1.0], [2.0, 5.0]]), torch.zeros(4, 2))
    own = Gaussian(torch.tensor([[0.5, 4.0]]), torch.zeros(1, 2))
    traversal = AE().traversal(make_net(), own, population, torch.tensor([-1.0, 0.0, 2.0]))
    assert traversal.labels == [RowLabel("latent 1", 1, std=2.0), RowLabel("latent 0", 0, std=1.0)]
    assert [label.text() for label in traversal.labels] == ["latent 1\nstd 2", "latent 0\nstd 1"]
    assert traversal.z[0].tolist() == [[0.5, 1.0], [0.5, 3.0], [0.5, 7.0]]
    assert traversal.z[1].tolist() == [[0.0, 4.0], [1.0, 4.0], [3.0, 4.0]]
    controls = AE().controls(make_net(), own, population)
    assert controls.start.tolist() == [[-0.5, 0.5]]
    assert controls.to_latents(torch.tensor([[0.0, 0.0]]), 0).tolist() == [[1.0, 3.0]]


def test_control_of_a_constant_latent_has_no_effect() -> None:
    population = Gaussian(torch.tensor([[1.0, 1.0], [1.0, 5.0]]), torch.zeros(2, 2))
    own = Gaussian(torch.tensor([[7.0, 3.0]]), torch.zeros(1, 2))
    controls = AE().controls(make_net(), own, population)
    assert controls.to_latents(torch.tensor([[2.0, 0.0]]), 0).tolist() == [[7.0, 3.0]]


def test_the_only_kind_of_code_is_the_mean(sprites: FactorData) -> None:
    (run,) = ub.train(AE(), sprites, steps=2, latents=3, quiet=True)
    assert run.spec.method.code_kinds == ("mean",)
    row = ub.score(run, ["mig"], data=sprites, quiet=True)[0]
    assert {key for key in row if key.startswith("mig.")} == {"mig.discrete_mig"}
    with pytest.raises(UserError, match="normal posterior"):
        ub.likelihood_bounds(run, sprites, index=[0], quiet=True)
