"""Functions without a gradient that serve many runs in one launch."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Constant(Function):
    """A base for functions of whole numbers and chance; PyTorch tells only its own kind of function about `vmap`."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.count = len(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        return (None,) * int(ctx.count)
