"""The base class of functions that have no gradient and that compute many runs in one kernel launch."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class NonDifferentiable(Function):
    """A function without a gradient. It is an autograd function because only these can define a rule for `vmap`."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.count = len(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        return (None,) * int(ctx.count)
