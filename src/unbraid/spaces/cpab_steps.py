"""Steps of piecewise-affine flows in tensor operations, there and back, for any device and type of number."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.spaces.tessellation import Tessellation, find_cells


def at(table: Tensor, cell: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A_c (x, y, 1) of a (b, 6, cells) table at (b, n) points and their triangles."""
    a, b, c, d, e, f = entries(table, cell)
    return a * x + b * y + c, d * x + e * y + f


def entries(table: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
    """Rows of a (b, k, cells) table at (b, n) triangles."""
    return table.gather(2, cell[:, None].expand(-1, table.shape[1], -1)).unbind(1)


def flat(table: Tensor) -> Tensor:
    """A table (b, cells, 2, 3) as (b, 6, cells)."""
    return table.flatten(2).mT.contiguous()


def advance(t: Tessellation, table: Tensor, x: Tensor, y: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Points (b, n) after some steps of a (b, 6, cells) table of what each step adds."""
    for _ in range(steps):
        dx, dy = at(table, find_cells(t, x, y), x, y)
        x, y = x + dx, y + dy
    return x, y


def walk_back(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "b1 n 2"], steps: int,
    grad: Float[Tensor, "b n 2"],
) -> tuple[Float[Tensor, "b cells 2 3"], Float[Tensor, "b n 2"]]:  # fmt: skip
    """What `cpab.Pull` gives, exactly, in pieces of about the root of the steps: it holds that many positions."""
    rows, piece = flat(table), math.isqrt(steps - 1) + 1
    x, y = points.expand(len(table), -1, -1).unbind(-1)
    starts = [(x, y)]
    for _ in range(piece, steps, piece):
        starts.append(advance(t, rows, *starts[-1], piece))
    gx, gy = grad.unbind(-1)
    total = torch.zeros_like(rows)
    for i, start in reversed(list(enumerate(starts))):
        total, gx, gy = _adjoint(t, rows, start, min(piece, steps - i * piece), (total, gx, gy))
    return total.mT.reshape(table.shape), torch.stack([gx, gy], -1)


def _adjoint(
    t: Tessellation, table: Tensor, start: tuple[Tensor, Tensor], steps: int, state: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Take the gradients of the table, x and y back over some steps from `start`."""
    total, gx, gy = state
    (x, y), path, linear = start, [], table.unflatten(1, (2, 3))[:, :, :2].flatten(1, 2)
    for _ in range(steps):
        cell = find_cells(t, x, y)
        path.append((x, y, cell))
        dx, dy = at(table, cell, x, y)
        x, y = x + dx, y + dy
    for x, y, cell in reversed(path):
        a, b, d, e = entries(linear, cell)
        pulls = torch.stack([gx * x, gx * y, gx, gy * x, gy * y, gy], 1)
        total = total.scatter_add(2, cell[:, None].expand(-1, 6, -1), pulls)
        gx, gy = gx + a * gx + d * gy, gy + b * gx + e * gy
    return total, gx, gy
