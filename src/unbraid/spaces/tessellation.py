"""Triangles of the unit square, and the velocity fields that are continuous and affine on each of them.

A rectangle of the tessellation is cut by its diagonals into four triangles: top (small y), right, bottom, left.
Rectangles count row by row, triangles fastest. Reference: Freifeld et al. (2015), "Highly-expressive spaces of
well-behaved transformations: keeping it simple"; Freifeld et al. (2017), "Transformations based on continuous
piecewise-affine velocity fields".
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from numpy.typing import NDArray
from torch import Tensor

from unbraid.errors import UserError

Array = NDArray[np.float64]
RANK = 1e-9  # entries of a row reduction below which they are zero


@dataclass(frozen=True)
class Tessellation:
    """Which velocity fields: `nx` by `ny` rectangles, and what must hold of the fields on them.

    With `zero_boundary` nothing flows through the edge of the square, along it things may flow; with
    `volume_preserving` the fields have no divergence.
    """

    nx: int
    ny: int
    zero_boundary: bool = True
    volume_preserving: bool = False

    def __post_init__(self) -> None:
        for name in ("nx", "ny"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"A tessellation's {name!r} must be a whole number, at least 1. Got {value!r} instead.")

    @property
    def cells(self) -> int:
        """The number of triangles."""
        return 4 * self.nx * self.ny

    @property
    def dim(self) -> int:
        """The number of parameters of a field."""
        return int(null_space(self).shape[1])


def _triangles(t: Tessellation) -> tuple[Array, NDArray[np.int64]]:
    """Vertices (v, 2), corners of rectangles row by row and then their centres, and the three of each triangle."""
    x, y = (np.arange(n + 1) / n for n in (t.nx, t.ny))
    corners = np.stack(np.meshgrid(x, y), -1)
    centres = (corners[:-1, :-1] + corners[1:, 1:]) / 2
    number = np.arange(corners[..., 0].size).reshape(corners.shape[:2])
    around = [number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1]]  # clockwise, y down
    middle = number.size + np.arange(t.nx * t.ny).reshape(t.ny, t.nx)
    triangles = [np.stack([middle, around[i], around[(i + 1) % 4]], -1) for i in range(4)]
    return np.concatenate([corners.reshape(-1, 2), centres.reshape(-1, 2)]), np.stack(triangles, 2).reshape(-1, 3)


def barycentric(t: Tessellation) -> Array:
    """(cells, 3, 3) matrices that take (x, y, 1) to a point's weights of the triangle's three vertices."""
    vertices, triangles = _triangles(t)
    at = vertices[triangles]
    return np.linalg.inv(np.concatenate([at, np.ones_like(at[..., :1])], -1).transpose(0, 2, 1))


def _hats(t: Tessellation) -> Array:
    """(cells, 2, 3, fields): the affine parts of fields that have velocity one at one vertex along one axis."""
    vertices, triangles = _triangles(t)
    hats = np.zeros((t.cells, 2, 3, len(vertices), 2))
    every, weights = np.arange(t.cells), barycentric(t)
    for corner in range(3):
        for axis in range(2):
            hats[every, axis, :, triangles[:, corner], axis] = weights[:, corner]
    free = ~((vertices == 0) | (vertices == 1)) if t.zero_boundary else np.ones_like(vertices, dtype=bool)
    return hats[..., free]


def _kernel(rows: Array) -> Array:
    """A basis of the vectors orthogonal to all rows, by reduction: each has a one where the others have zeros."""
    m, pivots = rows.copy(), list[int]()
    for column in range(m.shape[1]):
        top = len(pivots)
        at = top + int(np.abs(m[top:, column]).argmax()) if top < len(m) else -1
        if at < 0 or abs(m[at, column]) < RANK:
            continue
        m[[top, at]] = m[[at, top]]
        m[top] /= m[top, column]
        others = np.arange(len(m)) != top
        m[others] -= m[others, column, None] * m[top]
        pivots.append(column)
    free = [column for column in range(m.shape[1]) if column not in pivots]
    found = np.eye(m.shape[1])[:, free]
    found[pivots] = -m[: len(pivots), free]
    return found


@functools.cache
def null_space(t: Tessellation) -> Array:
    """What `basis` describes, as an array that cannot be written to."""
    hats = _hats(t)
    flat = hats.reshape(6 * t.cells, -1)
    if t.volume_preserving:
        flat = flat @ _kernel(hats[:, 0, 0] + hats[:, 1, 1])
    if not flat.shape[1]:
        raise UserError(f"No velocity field but zero fulfils {t}. Use more rectangles or fewer constraints.")
    size, turn = np.linalg.eigh(flat.T @ flat)
    found: Array = flat @ (turn / np.sqrt(size)) @ turn.T
    found.setflags(write=False)
    return found


def basis(
    cells: tuple[int, int], zero_boundary: bool = True, volume_preserving: bool = False
) -> Float64[Tensor, "entries dim"]:
    r"""Orthonormal columns that span the fields of a tessellation; rows are the (cell, 2, 3) entries of affine parts.

    .. math:: B = H (H^T H)^{-1/2}

    A column of H is the field with velocity one at a single vertex along one axis (of divergence-free fields, a
    combination of these by row reduction). Such fields are the null space of the constraints that neighbours agree
    at shared vertices and nothing flows through the edge. The symmetric inverse root is unique, so unlike singular
    vectors the basis does not depend on the linear algebra at hand, and each column stays close to its vertex.
    The dimension is :math:`2((n_x + 1)(n_y + 1) + n_x n_y) - 2(n_x + 1) - 2(n_y + 1)` with zero boundary.
    """
    return torch.tensor(null_space(Tessellation(*cells, zero_boundary, volume_preserving)))


@functools.cache
def columns(t: Tessellation, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The basis, transposed, on a device: copied there once."""
    with torch.inference_mode(False):
        return torch.tensor(null_space(t).T.copy(), dtype=dtype, device=device)


def find_cells(t: Tessellation, x: Float[Tensor, "*b"], y: Float[Tensor, "*b"]) -> Int64[Tensor, "*b"]:
    """The triangle each point lies in; points outside, or not finite, belong to the nearest rectangle or to some."""
    across, down = x * t.nx, y * t.ny
    column, row = across.floor().clamp(0, t.nx - 1), down.floor().clamp(0, t.ny - 1)
    across, down = across - column, down - row
    low, late = across < down, 1 - across < down
    cell = torch.add(column, row, alpha=t.nx) * 4 + low * 2 + (low ^ late)
    return cell.to(torch.int64).clamp(0, t.cells - 1)
