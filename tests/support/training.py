"""Short trainings on toy data, whole or cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import unbraid as ub
from unbraid.methods import BetaVAE
from unbraid.training.stack import Stack
from unbraid.training.train import train


def quick(out: Path | None = None, method: Any = None, **settings: Any) -> list[ub.Run]:
    options = {"data": "toy", "steps": 12, "learning_rate": 1e-3, "batch": 8, "latents": 3, "quiet": True, **settings}
    return train(method or BetaVAE(), out=out, **options)


def weights(run: ub.Run) -> dict[str, torch.Tensor]:
    return dict(run.net.state_dict())


def assert_same(a: ub.Run, b: ub.Run) -> None:
    assert a.spec == b.spec
    assert a.log == b.log
    for name, value in weights(a).items():
        assert torch.equal(value, weights(b)[name]), name


class Killed(Exception):
    """Stands in for a process that dies."""


def die_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    advance = Stack.advance

    def mortal(self: Stack) -> None:
        if self.step == step:
            raise Killed
        advance(self)

    monkeypatch.setattr(Stack, "advance", mortal)


def flat(grads: dict[str, Tensor]) -> Tensor:
    """Gradients of all runs as rows."""
    return torch.cat([grad.reshape(len(grad), -1) for grad in grads.values()], 1)
