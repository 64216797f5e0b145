"""Operators that apply one linear map along each axis of a tensor, such as bilinear upsampling, pooling and padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from unbraid.reporting.graph import Given, Graph, UnsupportedOperatorError, Value

SEPARABLE: dict[str, int] = {
    **{f"upsample_{mode}": axes for mode, axes in {
        "nearest1d": 1, "nearest2d": 2, "linear1d": 1, "bilinear2d": 2, "bicubic2d": 2}.items()},
    "_upsample_nearest_exact1d": 1, "_upsample_nearest_exact2d": 2,
    "_upsample_bilinear2d_aa": 2, "_upsample_bicubic2d_aa": 2,
    "avg_pool1d": 1, "avg_pool2d": 2, "avg_pool3d": 3, "adaptive_avg_pool1d": 1, "_adaptive_avg_pool2d": 2,
    "reflection_pad1d": 1, "reflection_pad2d": 2, "replication_pad1d": 1, "replication_pad2d": 2,
    "constant_pad_nd": 0, "cumsum": 0, "flip": 0, "index": 0, "index_select": 0, "repeat": 0, "roll": 0,
}  # fmt: skip
"""Operators that apply one linear map along each axis, and the number of last axes on which they act (0 for all)."""


def write_separable(graph: Graph, node: Node, name: str, given: Given, shape: Any) -> Value:
    """Write an operator that applies one linear map along each axis. `axis_matrices` finds the matrices of the maps."""
    first = next(iter(given))
    x: Value = given[first]
    if not isinstance(x, Value) or given.get("value", 0):
        raise UnsupportedOperatorError(name, "with these arguments")
    x = graph.reshape(x, (1,) * (len(shape) - len(x.shape)) + x.shape)
    axes = SEPARABLE[name] or len(x.shape)
    small = (1,) * (len(x.shape) - axes) + x.shape[len(x.shape) - axes :]

    def apply(tensor: Tensor) -> Tensor:
        target: Any = node.target
        result: Tensor = target(**{**given, first: tensor})
        return result

    try:
        matrices = axis_matrices(apply, small)
    except (ValueError, IndexError, RuntimeError, TypeError) as error:
        raise UnsupportedOperatorError(name, "with these arguments") from error
    for axis, matrix in enumerate(matrices):
        if matrix.shape[0] != matrix.shape[1] or not torch.equal(matrix, torch.eye(len(matrix), dtype=matrix.dtype)):
            sizes = (*x.shape[:axis], len(matrix), *x.shape[axis + 1 :])
            x = graph.add("mix", [x], sizes, axis=axis, rows=[_sparse_row(row) for row in matrix])
    return graph.reshape(x, shape)


def _sparse_row(row: Tensor) -> list[int | float]:
    """Return the entries of a row that are not zero, as [index, value, index, value, ...]."""
    return [one for i in row.nonzero()[:, 0].tolist() for one in (i, float(f"{row[i]:.9g}"))]


def axis_matrices(apply: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> list[Tensor]:
    """Return one matrix per axis, such that `apply` multiplies tensors of this shape by each matrix along its axis.

    Let F be the function `apply`, which multiplies by the unknown matrix A_a along axis a, for a = 1, ..., k. Let P be
    the entry of F(1) with the largest absolute value, where 1 is the tensor of ones. P is the product of the sums s_a
    of one row of each A_a. Let the input be the unit vector e_i along axis a and constant along the other axes. The
    line of its output that runs along axis a through the position of P is then column i of A_a times P / s_a. If these
    columns are used as the matrices of all axes, the result is P^(k-1) F instead of F. The columns are therefore
    divided by P for all axes but one.

    Raises:
        ValueError: If the function is not of this form.
    """
    total = apply(torch.ones(shape, dtype=torch.float64))
    if total.ndim != len(shape):
        raise ValueError("the number of axes changes")
    place = torch.unravel_index(total.abs().argmax(), total.shape)
    peak, matrices = total[place], []
    for axis, size in enumerate(shape):
        columns = []
        for i in range(size):
            unit = torch.zeros(shape, dtype=torch.float64)
            unit.narrow(axis, i, 1).fill_(1.0)
            line = tuple(slice(None) if b == axis else at for b, at in enumerate(place))
            columns.append(apply(unit)[line] / peak)
        matrices.append(torch.stack(columns, 1))
    matrices[-1] = matrices[-1] * peak
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    product = x
    for axis, matrix in enumerate(matrices):
        product = torch.tensordot(matrix, product, ([1], [axis])).movedim(0, axis)
    if not torch.allclose(product, apply(x), atol=1e-6):
        raise ValueError("the function is not one linear map along each axis")
    return matrices
