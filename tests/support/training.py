"""Short training runs on toy data, complete or interrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import unbraid as ub
from unbraid.methods import BetaVAE
from unbraid.training.stack import Stack
from unbraid.training.train import train


def quick_train(out: Path | None = None, method: Any = None, **settings: Any) -> list[ub.Run]:
    """Train for 12 steps on the dataset "toy", unless `settings` say otherwise."""
    options = {"data": "toy", "steps": 12, "learning_rate": 1e-3, "batch": 8, "latents": 3, "quiet": True, **settings}
    return train(method or BetaVAE(), out=out, **options)


def weights(run: ub.Run) -> dict[str, torch.Tensor]:
    """The parameters and buffers of a run by name."""
    return dict(run.net.state_dict())


def assert_same_run(a: ub.Run, b: ub.Run) -> None:
    """Assert that two runs have equal specs, logs and weights."""
    assert a.spec == b.spec
    assert a.log == b.log
    for name, value in weights(a).items():
        assert torch.equal(value.cpu(), weights(b)[name].cpu()), name


class Killed(Exception):
    """Raised in place of the end of a process that is killed."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Make stacks raise `Killed` when they reach a step."""
    advance = Stack.advance

    def advance_or_raise(self: Stack) -> None:
        if self.step == step:
            raise Killed
        advance(self)

    monkeypatch.setattr(Stack, "advance", advance_or_raise)


def kill_at_call(patch: pytest.MonkeyPatch, owner: type, name: str, call: int) -> None:
    """Raise `Killed` in place of this call of a method, counted from 1."""
    real: Callable[..., Any] = getattr(owner, name)
    calls = []

    def method(self: Any, *arguments: Any) -> Any:
        calls.append(name)
        if len(calls) == call:
            raise Killed
        return real(self, *arguments)

    patch.setattr(owner, name, method)


def flatten_gradients(grads: dict[str, Tensor]) -> Tensor:
    """The gradients of all runs as rows, (r, p)."""
    return torch.cat([grad.reshape(len(grad), -1) for grad in grads.values()], 1)
