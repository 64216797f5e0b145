"""Steps of piecewise-affine flows as tensor operations, forward and backward, for any device and precision."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.spaces.tessellation import Tessellation, find_cells


def apply_affine(table: Tensor, cell: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return A_c (x, y, 1) for a table (b, 6, cells) at points (b, n) with their triangles (b, n)."""
    a, b, c, d, e, f = gather_entries(table, cell)
    return a * x + b * y + c, d * x + e * y + f


def gather_entries(table: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
    """Return the k entries of a table (b, k, cells) at triangles (b, n), each of shape (b, n)."""
    return table.gather(2, cell[:, None].expand(-1, table.shape[1], -1)).unbind(1)


def flatten_table(table: Tensor) -> Tensor:
    """Rearrange a table (b, cells, 2, 3) as (b, 6, cells)."""
    return table.flatten(2).mT.contiguous()


def advance_points(t: Tessellation, table: Tensor, x: Tensor, y: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return points (b, n) after `steps` steps, whose displacements are given by a table (b, 6, cells)."""
    for _ in range(steps):
        dx, dy = apply_affine(table, find_cells(t, x, y), x, y)
        x, y = x + dx, y + dy
    return x, y


def backpropagate(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "b1 n 2"], steps: int,
    grad: Float[Tensor, "b n 2"],
) -> tuple[Float[Tensor, "b cells 2 3"], Float[Tensor, "b n 2"]]:  # fmt: skip
    """Return the gradients for the table and the points, as `cpab.FlowGradient` does.

    The steps are divided into about sqrt(steps) pieces. Only the start of each piece is saved; positions within a piece
    are recomputed. So about 2 sqrt(steps) positions are in memory at once.
    """
    rows, piece = flatten_table(table), math.isqrt(steps - 1) + 1
    x, y = points.expand(len(table), -1, -1).unbind(-1)
    starts = [(x, y)]
    for _ in range(piece, steps, piece):
        starts.append(advance_points(t, rows, *starts[-1], piece))
    gx, gy = grad.unbind(-1)
    total = torch.zeros_like(rows)
    for i, start in reversed(list(enumerate(starts))):
        total, gx, gy = _adjoint(t, rows, start, min(piece, steps - i * piece), (total, gx, gy))
    return total.mT.reshape(table.shape), torch.stack([gx, gy], -1)


def _adjoint(
    t: Tessellation, table: Tensor, start: tuple[Tensor, Tensor], steps: int, state: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Propagate the gradients of the table, x and y back over `steps` steps that begin at `start`."""
    total, gx, gy = state
    (x, y), path, linear = start, [], table.unflatten(1, (2, 3))[:, :, :2].flatten(1, 2)
    for _ in range(steps):
        cell = find_cells(t, x, y)
        path.append((x, y, cell))
        dx, dy = apply_affine(table, cell, x, y)
        x, y = x + dx, y + dy
    for x, y, cell in reversed(path):
        a, b, d, e = gather_entries(linear, cell)
        terms = torch.stack([gx * x, gx * y, gx, gy * x, gy * y, gy], 1)
        total = total.scatter_add(2, cell[:, None].expand(-1, 6, -1), terms)
        gx, gy = gx + a * gx + d * gy, gy + b * gx + e * gy
    return total, gx, gy
