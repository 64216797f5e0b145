"""Weight decay and gradient clipping, compared with AdamW and `clip_grad_norm_` of PyTorch for each run of a stack."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import unbraid as ub
from support.engine_laws import make_stack
from support.training import Killed, assert_same_run, kill_at, quick_train
from unbraid.data.dataset import FactorData
from unbraid.methods import VAE, BetaVAE, FactorVAE
from unbraid.nets.registry import resolve_net
from unbraid.runs.labels import run_labels
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

DECAY = {"weight_decay": 0.3}
CLIP = {"clip_norm": 1.5}
BOTH = {**DECAY, **CLIP}


def stack_with(data: FactorData, methods: list[Any], vmapped: bool = False, seed: int = 0, **settings: float) -> Stack:
    """A stack on toy data, with these settings in every spec."""
    plain = make_stack(methods, data, range(seed, seed + len(methods)), [1e-2 / (i + 1) for i in range(len(methods))])
    specs = [dataclasses.replace(spec, **settings) for spec in plain.specs]
    return Stack(specs, data, resolve_net("mlp")[1], vmapped=vmapped)


def train_with_torch(stack: Stack, member: int, steps: int) -> tuple[torch.Tensor, list[float]]:
    """Train one run of a stack with an optimiser of PyTorch. Return its row, and the norms of its gradients."""
    spec = stack.specs[member]
    row = stack.rows[member].clone().requires_grad_()
    optimiser = torch.optim.AdamW([row], lr=spec.learning_rate, weight_decay=spec.weight_decay)
    hypers = {name: value[member] for name, value in stack.hypers.items()}
    norms = []
    for step in range(steps):
        loss, _ = stack.objective(stack.layout.unflatten(row), {}, hypers, stack.seeds[member], torch.tensor(step))
        optimiser.zero_grad()
        loss.backward()
        limit = spec.clip_norm or float("inf")
        norms.append(float(torch.nn.utils.clip_grad_norm_([row], limit)))
        optimiser.step()
    return row.detach(), norms


@pytest.mark.parametrize("vmapped", [False, True])
@pytest.mark.parametrize("settings", [DECAY, CLIP, BOTH], ids=["decay", "clip", "both"])
def test_each_run_of_a_stack_equals_torch(settings: dict[str, float], vmapped: bool, toy: FactorData) -> None:
    stack = stack_with(toy, [BetaVAE(beta=b) for b in (0.1, 1.0, 4.0)], vmapped, **settings)
    start = stack.rows.clone()
    expected = [train_with_torch(stack, i, 4) for i in range(3)]
    for _ in range(4):
        stack.advance()
    for i, (row, norms) in enumerate(expected):
        assert float((stack.rows[i] - row).norm()) < 1e-4 * float((row - start[i]).norm())
        assert max(norms) > CLIP["clip_norm"]


def test_a_large_limit_and_no_decay_change_nothing(toy: FactorData) -> None:
    plain, limited = stack_with(toy, [VAE()]), stack_with(toy, [VAE()], clip_norm=1e6)
    for _ in range(3):
        plain.advance()
        limited.advance()
    assert torch.equal(plain.rows, limited.rows)


def test_the_limit_holds_for_each_run_alone(toy: FactorData) -> None:
    """A run has the same weights in a stack and alone, and a diverged run does not change."""
    methods = [BetaVAE(beta=b) for b in (0.1, 50.0)]
    together, alone = stack_with(toy, methods, **BOTH), stack_with(toy, methods[:1], **BOTH)
    for stack in (together, alone):
        stack.advance()
    together.rows[1, 0] = torch.nan
    frozen = together.rows[1].clone()
    for _ in range(2):
        together.advance()
        alone.advance()
    assert [d.member for d in together.divergences()] == [1]
    torch.testing.assert_close(together.rows[0], alone.rows[0], rtol=0, atol=0)
    torch.testing.assert_close(together.rows[1], frozen, rtol=0, atol=0, equal_nan=True)


def test_decay_shrinks_the_weights_of_every_network(toy: FactorData) -> None:
    """Without a gradient, a step multiplies each parameter by 1 - rate * decay, with the rate of its own network."""
    stack = stack_with(toy, [FactorVAE(critic_learning_rate=1e-3)], weight_decay=2.0)
    before = stack.layout.unflatten(stack.rows[0].clone())
    stack._adam_in_pytorch(torch.zeros_like(stack.rows))
    for name, value in stack.layout.unflatten(stack.rows[0]).items():
        rate = 1e-3 if name.startswith("critic.") else 1e-2
        torch.testing.assert_close(value, (1 - rate * 2.0) * before[name])


def test_ids_and_files_of_specs_without_the_settings_are_as_before() -> None:
    spec = RunSpec(BetaVAE(), "toy")
    assert not {"weight_decay", "clip_norm"} & set(spec.to_dict())
    assert spec.id == RunSpec(BetaVAE(), "toy", weight_decay=0, clip_norm=0.0).id
    changed = RunSpec(BetaVAE(), "toy", weight_decay=0.1)
    assert changed.id != spec.id
    assert changed.stack_key() != spec.stack_key()
    assert RunSpec.from_dict(changed.to_dict()) == changed


@pytest.mark.parametrize("settings", [{"weight_decay": -0.1}, {"clip_norm": -1}])
def test_negative_settings_are_rejected(settings: dict[str, float]) -> None:
    with pytest.raises(ub.UserError, match="must be finite and >= 0"):
        RunSpec(VAE(), "toy", **settings)  # type: ignore[arg-type]


def test_resume_equals_uninterrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = quick_train(tmp_path / "whole", VAE(), **BOTH)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 7)
        quick_train(tmp_path / "cut", VAE(), checkpoint_seconds=0, **BOTH)
    for a, b in zip(whole, quick_train(tmp_path / "cut", VAE(), **BOTH), strict=True):
        assert_same_run(a, b)


def test_labels_show_the_settings_if_they_differ() -> None:
    specs = [RunSpec(VAE(), "toy"), RunSpec(VAE(), "toy", weight_decay=0.1)]
    labels = list(run_labels(specs).values())
    assert len(set(labels)) == 2
    assert "weight_decay" in labels[1] or "weight decay" in labels[1]
