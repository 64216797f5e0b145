"""Bounds of the likelihood, compared with a model whose likelihood is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import unbraid as ub
from unbraid.data.dataset import FactorData
from unbraid.data.in_memory import Labelled
from unbraid.errors import UserError
from unbraid.methods import SVAE, VAE, Batch, DiffusionVAE, Method, PoincareVAE
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec
from unbraid.scoring.likelihood import log_weights


class Exact(nn.Module):
    """The posterior of a linear decoder W with normal noise of variance .1: mean W'x / (.1 + |W|^2) for one latent."""

    def __init__(self, w: Tensor, off: float = 0.0) -> None:
        super().__init__()
        self.w, self.off = nn.Parameter(w), off

    def forward(self, x: Tensor) -> Tensor:
        precision = 1 + float(self.w.square().sum()) / 0.1
        mean = x @ self.w / 0.1 / precision
        return torch.cat([mean + self.off, torch.full_like(mean, -math.log(precision))], 1)


def linear_run(off: float = 0.0) -> tuple[Run, Labelled, Tensor]:
    """A run whose encoder is exact, or off by a constant; data sampled from it; and log p(x) of each example."""
    torch.manual_seed(1)
    w = torch.randn(3, 1)
    x = torch.randn(50, 1) @ w.T + math.sqrt(0.1) * torch.randn(50, 3)
    decoder = nn.Linear(1, 3, bias=False)
    decoder.weight.data.copy_(w)
    net = VAENet(Exact(w, off), decoder, "normal").requires_grad_(False)
    spec = RunSpec(VAE(), "linear", latents=1, net="mlp", likelihood="normal")
    truth = torch.distributions.MultivariateNormal(torch.zeros(3), w @ w.T + 0.1 * torch.eye(3)).log_prob(x)
    return Run(spec, net), Labelled("linear", (), (), x, torch.zeros(50, 0, dtype=torch.int64)), truth


def test_exact_posterior_gives_the_likelihood() -> None:
    """Every weight equals p(x), so both bounds are exact for any number of samples."""
    run, data, truth = linear_run()
    weights = log_weights(run, data.table, 7, Noise.from_seed(torch.tensor(0), torch.tensor(0)))
    torch.testing.assert_close(weights, truth[:, None].expand(50, 7), rtol=1e-3, atol=1e-3)
    found = ub.likelihood_bounds(run, data, samples=7, quiet=True)
    assert found["elbo"] == pytest.approx(float(truth.mean()), abs=1e-3)
    assert found["iwae"] == pytest.approx(float(truth.mean()), abs=1e-3)
    assert found["elbo_error"] == pytest.approx(float(truth.std() / math.sqrt(50)), rel=1e-2)


def test_bounds_are_below_the_likelihood_and_tighten_with_samples() -> None:
    """With a wrong posterior the gap of the ELBO is the KL from the true posterior, and IWAE is closer."""
    run, data, truth = linear_run(off=0.2)
    few, many = (ub.likelihood_bounds(run, data, samples=n, quiet=True) for n in (2, 2000))
    precision = 1 + float(run.net.decoder.weight.square().sum()) / 0.1  # type: ignore[union-attr]
    assert many["elbo"] == pytest.approx(float(truth.mean()) - 0.5 * precision * 0.2**2, abs=0.02)
    assert few["elbo"] < few["iwae"] < many["iwae"] + 0.02
    assert many["iwae"] == pytest.approx(float(truth.mean()), abs=0.02)


def test_chunks_and_seeds(sprites: FactorData) -> None:
    (run,) = ub.train(VAE(), sprites, steps=2, latents=3, quiet=True)
    a, b, c = (
        ub.likelihood_bounds(run, sprites, index=range(40), samples=5, seed=seed, quiet=True) for seed in (0, 0, 1)
    )
    assert a == b != c
    assert a["elbo"] == pytest.approx(c["elbo"], rel=0.01)


@pytest.mark.parametrize("method", [SVAE(), PoincareVAE(), PoincareVAE(distribution="riemannian")], ids=str)
def test_the_elbo_of_curved_spaces_is_minus_the_loss(method: Method, sprites: FactorData) -> None:
    (run,) = ub.train(method, sprites, steps=50, latents=3, learning_rate=1e-2, net="mlp", batch=16, quiet=True)
    bounds = ub.likelihood_bounds(run, sprites, index=range(0, 9216, 1000), samples=200, quiet=True)
    x = sprites.batch(torch.arange(0, 9216, 1000)).repeat_interleave(200, 0)
    with torch.no_grad():
        loss, _ = method.objective(run.net, Batch(x, len(x)), Noise(torch.tensor(3)), torch.tensor(0))
    assert bounds["elbo"] == pytest.approx(-float(loss), abs=0.5)
    assert bounds["iwae"] > bounds["elbo"]
    (diffusion,) = ub.train(DiffusionVAE(), sprites, steps=1, latents=3, net="mlp", quiet=True)
    with pytest.raises(UserError, match=r"another posterior whose density is known. diffusion_vae"):
        ub.likelihood_bounds(diffusion, sprites, index=[0], quiet=True)


def test_invalid_arguments_raise_an_error(toy: FactorData, sprites: FactorData) -> None:
    (pcl,) = ub.train(ub.methods.PCL(), sprites, steps=1, latents=3, quiet=True)
    (pmp,) = ub.train(ub.methods.PMP(subspaces=2), sprites, steps=1, latents=3, quiet=True)
    for run in (pcl, pmp):
        with pytest.raises(UserError, match="need a decoder and a normal posterior"):
            ub.likelihood_bounds(run, sprites, index=[0], quiet=True)
    (run,) = ub.train(VAE(), toy, steps=1, quiet=True)
    with pytest.raises(ValueError, match="at least one sample"):
        ub.likelihood_bounds(run, toy, samples=0, quiet=True)
    with pytest.raises(ValueError, match="at least one example"):
        ub.likelihood_bounds(run, toy, index=[], quiet=True)
