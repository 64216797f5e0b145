"""An objective of the user's own must draw all random numbers from `noise`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.training import quick_train
from unbraid.errors import UserError
from unbraid.methods import METHODS, BetaVAE
from unbraid.methods.method import Batch, Hyper, Loss, setting
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.training.randomness import RejectRandomness

Draw = Callable[[Tensor, Noise], Any]
GENERATOR = torch.Generator()
DRAWS: dict[str, Draw] = {
    "randn": lambda x, noise: torch.randn(3).sum(),
    "randn_like": lambda x, noise: torch.randn_like(x).sum(),
    "randperm": lambda x, noise: torch.randperm(4).float().sum(),
    "normal_": lambda x, noise: torch.zeros(3).normal_().sum(),
    "multinomial": lambda x, noise: torch.multinomial(torch.ones(3), 2).float().sum(),
    "distribution": lambda x, noise: torch.distributions.Gamma(2.0, 1.0).sample(),
    "dropout": lambda x, noise: nn.functional.dropout(x).sum(),
    "own generator": lambda x, noise: torch.rand(2, generator=GENERATOR).sum(),
    "random": lambda x, noise: random.random(),
    "numpy": lambda x, noise: float(np.random.rand()),
}


@dataclass(frozen=True)
class Drawing(BetaVAE):
    """A beta-VAE whose loss contains what a draw of `DRAWS` returns."""

    kind: str = "randn"

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        loss, logs = super().objective(net, batch, noise, step)
        drawn = noise.normal(2).sum() if self.kind == "noise" else DRAWS[self.kind](batch.x, noise)
        return loss + 1e-3 * drawn, logs


@pytest.mark.parametrize("kind", DRAWS)
def test_other_sources_of_randomness_are_rejected(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must draw all random numbers from `noise`.*noise\.normal"):
        quick_train(tmp_path / "runs", Drawing(kind=kind))
    assert not list(tmp_path.rglob("run.json"))


def test_noise_is_accepted() -> None:
    first, second = (quick_train(None, Drawing(kind="noise"))[0] for _ in range(2))
    assert first.log == second.log


class NoisyLayer(nn.Linear):
    """A layer that adds random numbers from PyTorch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(1)


def test_a_network_that_draws_is_rejected() -> None:
    def pair(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
        return NoisyLayer(shape[0], 2 * latents), nn.Linear(latents, shape[0])

    with pytest.raises(UserError, match="rand"):
        quick_train(None, net=pair)


def test_attention_without_dropout_is_accepted() -> None:
    """PyTorch marks attention as random, because it has dropout. Without dropout it is not."""
    q = torch.ones(1, 2, 4, 8)
    with RejectRandomness():
        nn.functional.scaled_dot_product_attention(q, q, q)


@pytest.mark.parametrize("name", ["beta_vae", "factor_vae", "beta_tcvae", "dip_vae_i"])
def test_objectives_of_the_package_are_accepted(name: str) -> None:
    if name not in METHODS:
        pytest.skip(f"there is no method {name}")
    own = type("Own", (METHODS[name],), {"__module__": __name__})
    quick_train(None, own())


@pytest.mark.gpu
def test_randomness_of_a_gpu_is_rejected() -> None:
    """The mode finds operations on a GPU, and accepts attention without dropout there."""
    x = torch.ones(1, 2, 64, 8, device="cuda", dtype=torch.bfloat16)
    with RejectRandomness():
        nn.functional.scaled_dot_product_attention(x, x, x)
        with pytest.raises(UserError, match="randn"):
            torch.randn_like(x)
    with pytest.raises(UserError, match="must draw all random numbers from `noise`"):
        quick_train(None, Drawing(kind="randn_like"), device="cuda")
    quick_train(None, Drawing(kind="noise"), device="cuda")


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda loss: loss, "TypeError"),
        (lambda loss: (loss, {"one": 1.0}), "float"),
        (lambda loss: (loss.expand(2), {}), "RuntimeError"),
        (lambda loss: (loss + torch.ones(2) @ torch.ones(3), {}), r"in line \d+ of .*test_randomness.py: RuntimeError"),
    ],
)
def test_an_objective_that_fails_is_explained(result: Callable[[Tensor], Any], message: str, tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Failing(BetaVAE):
        def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
            answer: Loss = result(super().objective(net, batch, noise, step)[0])
            return answer

    with pytest.raises(UserError, match=f"The first step of .*Failing has failed.*{message}.*must return the loss and"):
        quick_train(tmp_path / "runs", Failing())
    assert not (tmp_path / "runs").exists()


def test_settings_without_a_dataclass_are_rejected() -> None:
    class Undecorated(BetaVAE):
        weight: Hyper = setting(1.0, "a weight")

    with pytest.raises(UserError, match=r"Undecorated must be a dataclass .* Write @dataclass\(frozen=True\)"):
        quick_train(method=Undecorated())


def test_a_file_without_the_name_of_a_class_is_rejected() -> None:
    with pytest.raises(UserError, match=r"mine\.py:Class"):
        quick_train(method="./mine.py")
