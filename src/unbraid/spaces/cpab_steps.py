"""The steps of piecewise-affine flows and their gradients, as tensor operations for any device and precision."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.spaces.tessellation import Tessellation, find_cells


def apply_affine(table: Tensor, cell: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return both components (b, n) of A_c (x, y, 1) for points (b, n) in the given triangles.

    The table (b, 6, cells) holds the entries of A_c row by row.
    """
    a, b, c, d, e, f = gather_entries(table, cell)
    return a * x + b * y + c, d * x + e * y + f


def gather_entries(table: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
    """Look up the k entries of a table (b, k, cells) for triangles (b, n). Returns k tensors (b, n)."""
    return table.gather(2, cell[:, None].expand(-1, table.shape[1], -1)).unbind(1)


def flatten_table(table: Tensor) -> Tensor:
    """Rearrange a table (b, cells, 2, 3) to (b, 6, cells)."""
    return table.flatten(2).mT.contiguous()


def advance_points(t: Tessellation, table: Tensor, x: Tensor, y: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return the coordinates (b, n) of points after `steps` steps. The table (b, 6, cells) gives the displacements."""
    for _ in range(steps):
        dx, dy = apply_affine(table, find_cells(t, x, y), x, y)
        x, y = x + dx, y + dy
    return x, y


def backpropagate(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "b1 n 2"], steps: int,
    grad: Float[Tensor, "b n 2"],
) -> tuple[Float[Tensor, "b cells 2 3"], Float[Tensor, "b n 2"]]:  # fmt: skip
    """Return the gradients for the table and the points, as `cpab.FlowGradient` does.

    The steps are divided into about sqrt(steps) segments. Only the positions at the start of each segment are saved.
    Positions within a segment are recomputed. At most about 2 sqrt(steps) positions of each point are in memory at the
    same time.
    """
    flat_table, segment = flatten_table(table), math.isqrt(steps - 1) + 1
    x, y = points.expand(len(table), -1, -1).unbind(-1)
    starts = [(x, y)]
    for _ in range(segment, steps, segment):
        starts.append(advance_points(t, flat_table, *starts[-1], segment))
    gx, gy = grad.unbind(-1)
    grad_table = torch.zeros_like(flat_table)
    for i, start in reversed(list(enumerate(starts))):
        n_steps = min(segment, steps - i * segment)
        grad_table, gx, gy = _backpropagate_segment(t, flat_table, start, n_steps, (grad_table, gx, gy))
    return grad_table.mT.reshape(table.shape), torch.stack([gx, gy], -1)


def _backpropagate_segment(
    t: Tessellation, table: Tensor, start: tuple[Tensor, Tensor], steps: int, gradients: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Propagate the gradients for the table, x and y back through `steps` steps that begin at `start`."""
    grad_table, gx, gy = gradients
    (x, y), path, linear = start, [], table.unflatten(1, (2, 3))[:, :, :2].flatten(1, 2)
    for _ in range(steps):
        cell = find_cells(t, x, y)
        path.append((x, y, cell))
        dx, dy = apply_affine(table, cell, x, y)
        x, y = x + dx, y + dy
    for x, y, cell in reversed(path):
        a, b, d, e = gather_entries(linear, cell)
        terms = torch.stack([gx * x, gx * y, gx, gy * x, gy * y, gy], 1)
        grad_table = grad_table.scatter_add(2, cell[:, None].expand(-1, 6, -1), terms)
        gx, gy = gx + a * gx + d * gy, gy + b * gx + e * gy
    return grad_table, gx, gy
