"""The graph of operators with which an HTML page runs a decoder in JavaScript.

A graph is a list of nodes. A node is a dictionary with the operator `op`, the shape of the tensor that it computes, the
list `in` of its inputs, and settings of the operator. An input is the index of an earlier node, or a constant,
which is written as a list with one number. The first node is the input of the graph. `assets/operators.js` runs the
operators.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from unbraid.errors import UserError
from unbraid.reporting.weights import EXPLORE_HINT, WeightWriter

Shape = tuple[int, ...]
Number = int | float | bool
Given = dict[str, Any]
"""The arguments of an operator. The keys are the names of the arguments in its PyTorch schema."""


@dataclass(frozen=True)
class Value:
    """A tensor that the page computes: the index of its node, and its shape."""

    index: int
    shape: Shape


@dataclass
class Graph:
    """A graph that is being written."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    weights: WeightWriter = field(default_factory=WeightWriter)

    def add(self, op: str, inputs: list[Value | Number], shape: Any, **settings: Any) -> Value:
        """Add a node and return the tensor that it computes."""
        given = [one.index if isinstance(one, Value) else [_json_number(one)] for one in inputs]
        self.nodes.append({"op": op, "in": given, "shape": list(shape), **settings})
        return Value(len(self.nodes) - 1, tuple(shape))

    def value(self, given: Value | Tensor) -> Value:
        """Return a tensor as a value. A tensor that the page does not compute becomes a constant node.

        To save space, an axis along which the values do not change is stored with size 1. A view then repeats the
        stored values along this axis.
        """
        if isinstance(given, Value):
            return given
        small = given.detach().to(torch.float64) if given.dtype != torch.float64 else given.detach()
        for axis, size in enumerate(given.shape):
            first = small.narrow(axis, 0, 1) if size else small
            small = first if torch.equal(first.expand_as(small), small) else small
        stored = self.weights.layer("constant", given if small.shape == given.shape else small)
        constant = self.add("constant", [], small.shape, **stored)
        return self.view(constant, given.shape, small.expand(given.shape).stride(), 0)

    def view(self, x: Value, shape: Any, stride: Any, offset: int) -> Value:
        """Return the view of x with this shape, stride and offset, as in `torch.as_strided`.

        The page copies the elements only if the view changes their order or number.
        """
        shape, stride = tuple(shape), tuple(stride)
        if tuple(shape) == x.shape and _is_contiguous(shape, stride) and offset == 0:
            return x
        if _is_contiguous(shape, stride) and offset == 0 and _count(shape) == _count(x.shape):
            return self.add("reshape", [x], shape)
        return self.add("strided", [x], shape, stride=list(stride), offset=offset)

    def reshape(self, x: Value, shape: Any) -> Value:
        """Return x with another shape."""
        return self.view(x, shape, torch.empty(tuple(shape), device="meta").stride(), 0)

    def map(self, function: str, shape: Any, *operands: Value | Tensor | Number) -> Value:
        """Apply a function of `assets/operators.js` to each element. Constants with one element become numbers."""
        inputs: list[Value | Number] = []
        for one in operands:
            if isinstance(one, Tensor):
                inputs.append(one.item() if one.numel() == 1 else self.value(one))
            else:
                inputs.append(one)
        return self.add("map", inputs, shape, function=function)


def _count(shape: Shape) -> int:
    return torch.Size(shape).numel()


def _is_contiguous(shape: Shape, stride: tuple[int, ...]) -> bool:
    """Return whether strides are those of a contiguous tensor. Strides of axes of size 1 do not matter."""
    usual = torch.empty(shape, device="meta").stride()
    return all(size == 1 or a == b for size, a, b in zip(shape, stride, usual, strict=True))


def _json_number(value: Number) -> Number | str:
    """Return a number as JSON can write it. Infinities and NaN become strings, which JavaScript converts to numbers."""
    if value != value or abs(value) == float("inf"):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return float(value) if isinstance(value, bool) else value


class UnsupportedOperatorError(UserError):
    """An operator that a page cannot run."""

    def __init__(self, name: str, reason: str = "") -> None:
        detail = f" {reason}" if reason else ""
        super().__init__(f"A page cannot run the operator {name}{detail}, which this decoder uses. {EXPLORE_HINT}")
