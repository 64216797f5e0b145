"""The critic of FactorVAE is updated without storing its weight gradients, with the same result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

pytest.importorskip("triton", reason="Triton is not installed here")

from support.fused_stacks import STEP_TOLERANCE, make_stack, one_layer_net, random_images
from unbraid.methods import factor_vae
from unbraid.methods.factor_vae import FactorVAE

pytestmark = pytest.mark.usefixtures("large_tiles", "poisoned")


def small_critic(latents: int) -> nn.Sequential:
    """A critic with the layers of FactorVAE's critic, but fewer and narrower ones."""
    return nn.Sequential(
        nn.Linear(latents, 24), nn.LeakyReLU(0.2), nn.Linear(24, 40), nn.LeakyReLU(0.2), nn.Linear(40, 2)
    )


@pytest.fixture(autouse=True)
def narrow_critic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the critic, because the interpreter is slow for its five layers of 1000 units."""
    monkeypatch.setattr(factor_vae, "critic", small_critic)


METHODS = [FactorVAE(gamma=5.0), FactorVAE(gamma=9.0, critic_learning_rate=3e-3)]


def test_steps_of_a_fused_critic_equal_plain_steps() -> None:
    """Parameters and both moments of Adam agree after three steps."""
    data = random_images()
    fused, plain = (make_stack(one_layer_net, kernels, METHODS, data) for kernels in (True, False))
    assert list(fused.critics.values()) == ["critic.row"]
    size = sum(p.numel() for p in small_critic(3).parameters())
    for _ in range(3):
        fused.advance()
        plain.advance()
    for ours, wanted in zip(fused.states(), plain.states(), strict=True):
        for name in ("row", "moment1", "moment2"):
            difference = ours[name][-size:] - wanted[name][-size:]
            assert float(difference.norm() / wanted[name][-size:].norm()) < STEP_TOLERANCE, name


def test_a_critic_that_is_not_finite_is_not_updated() -> None:
    """The run whose critic has a NaN ends at this step with unchanged parameters and moments. The other one goes on."""
    trained = make_stack(one_layer_net, True, METHODS)
    span = trained.storage.layout.spans()["critic.row"]
    trained.rows[1, span.start] = math.nan
    trained.copy[1, span.start] = math.nan
    before = trained.rows.clone()
    trained.advance()
    assert trained.alive.tolist() == [True, False]
    assert torch.equal(trained.rows[1].nan_to_num(), before[1].nan_to_num())
    assert not trained.moment1[1].any()
    assert not torch.equal(trained.rows[0, span], before[0, span])
    assert bool(trained.rows[0].isfinite().all())


@dataclass(frozen=True)
class Float32Critic(FactorVAE):
    """FactorVAE with a critic that is computed in float32."""

    float32_networks: ClassVar[tuple[str, ...]] = ("critic",)


def test_weight_gradients_of_a_float32_critic_are_not_computed_by_the_optimiser() -> None:
    """The optimiser multiplies in the precision of the copy, which is bf16 on a GPU."""
    trained = make_stack(one_layer_net, True, [Float32Critic(gamma=5.0)])
    assert "critic.row" in trained.storage.copied
    assert not trained.critics
