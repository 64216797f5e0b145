"""Triangles of the unit square, and the velocity fields that are continuous and affine on each of them.

The diagonals of each rectangle of the tessellation cut it into four triangles: top (small y), right, bottom, left.
Triangles (also called cells) are numbered rectangle by rectangle, and rectangles row by row.

Reference: Freifeld et al. (2015), "Highly-expressive spaces of well-behaved transformations: keeping it simple";
Freifeld et al. (2017), "Transformations based on continuous piecewise-affine velocity fields".
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
PIVOT_TOLERANCE = 1e-9  # entries below this count as zero in a row reduction


@dataclass(frozen=True)
class Tessellation:
    """A space of velocity fields on the unit square, divided into rectangles of four triangles each.

    Args:
        nx: Number of rectangles along x.
        ny: Number of rectangles along y.
        zero_boundary: Whether nothing flows through the edge of the square. Flow along the edge remains possible.
        volume_preserving: Whether the fields have no divergence.

    Raises:
        UserError: If `nx` or `ny` is not a positive integer.
    """

    nx: int
    ny: int
    zero_boundary: bool = True
    volume_preserving: bool = False

    def __post_init__(self) -> None:
        for name in ("nx", "ny"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"The {name!r} of a tessellation must be an integer >= 1. Got {value!r} instead.")

    @property
    def cells(self) -> int:
        """The number of triangles."""
        return 4 * self.nx * self.ny

    @property
    def dim(self) -> int:
        """The number of parameters of a field."""
        return int(basis_array(self).shape[1])


def _triangles(t: Tessellation) -> tuple[Array, NDArray[np.int64]]:
    """Return the vertices (v, 2) and the indices (cells, 3) of the vertices of each triangle.

    The vertices are the corners of the rectangles, row by row, and then the centres of the rectangles.
    """
    x, y = (np.arange(n + 1) / n for n in (t.nx, t.ny))
    corners = np.stack(np.meshgrid(x, y), -1)
    centres = (corners[:-1, :-1] + corners[1:, 1:]) / 2
    number = np.arange(corners[..., 0].size).reshape(corners.shape[:2])
    around = [number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1]]  # clockwise, y down
    middle = number.size + np.arange(t.nx * t.ny).reshape(t.ny, t.nx)
    triangles = [np.stack([middle, around[i], around[(i + 1) % 4]], -1) for i in range(4)]
    return np.concatenate([corners.reshape(-1, 2), centres.reshape(-1, 2)]), np.stack(triangles, 2).reshape(-1, 3)


def barycentric_matrices(t: Tessellation) -> Array:
    """Return matrices (cells, 3, 3) that map (x, y, 1) to the barycentric weights of the triangle's three vertices."""
    vertices, triangles = _triangles(t)
    corners = vertices[triangles]
    return np.linalg.inv(np.concatenate([corners, np.ones_like(corners[..., :1])], -1).transpose(0, 2, 1))


def _vertex_fields(t: Tessellation) -> Array:
    """Return the affine parts (cells, 2, 3, fields) of the fields with velocity 1 at one vertex along one axis."""
    vertices, triangles = _triangles(t)
    fields = np.zeros((t.cells, 2, 3, len(vertices), 2))
    every, weights = np.arange(t.cells), barycentric_matrices(t)
    for corner in range(3):
        for axis in range(2):
            fields[every, axis, :, triangles[:, corner], axis] = weights[:, corner]
    free = ~((vertices == 0) | (vertices == 1)) if t.zero_boundary else np.ones_like(vertices, dtype=bool)
    return fields[..., free]


def _null_space(rows: Array) -> Array:
    """Return a basis of the vectors that are orthogonal to all rows, by row reduction.

    Each basis vector has a 1 at a position where all others have 0.
    """
    m, pivots = rows.copy(), list[int]()
    for column in range(m.shape[1]):
        top = len(pivots)
        at = top + int(np.abs(m[top:, column]).argmax()) if top < len(m) else -1
        if at < 0 or abs(m[at, column]) < PIVOT_TOLERANCE:
            continue
        m[[top, at]] = m[[at, top]]
        m[top] /= m[top, column]
        others = np.arange(len(m)) != top
        m[others] -= m[others, column, None] * m[top]
        pivots.append(column)
    free = [column for column in range(m.shape[1]) if column not in pivots]
    vectors = np.eye(m.shape[1])[:, free]
    vectors[pivots] = -m[: len(pivots), free]
    return vectors


@functools.cache
def basis_array(t: Tessellation) -> Array:
    """Return the result of `basis` as a read-only array."""
    fields = _vertex_fields(t)
    flat = fields.reshape(6 * t.cells, -1)
    if t.volume_preserving:
        flat = flat @ _null_space(fields[:, 0, 0] + fields[:, 1, 1])
    if not flat.shape[1]:
        raise UserError(f"No velocity field except zero satisfies {t}. Use more rectangles or fewer constraints.")
    eigenvalues, vectors = np.linalg.eigh(flat.T @ flat)
    orthonormal: Array = flat @ (vectors / np.sqrt(eigenvalues)) @ vectors.T
    orthonormal.setflags(write=False)
    return orthonormal


def basis(
    cells: tuple[int, int], zero_boundary: bool = True, volume_preserving: bool = False
) -> Float64[Tensor, "entries dim"]:
    r"""Return orthonormal columns that span the velocity fields of a tessellation.

    .. math:: B = H (H^T H)^{-1/2}

    A column of H is the field with velocity 1 at a single vertex along one axis. For divergence-free fields it is a
    combination of these, found by row reduction. These fields span the null space of the constraints that neighbouring
    triangles agree at shared vertices and that nothing flows through the edge. The symmetric inverse square root is
    unique. So, unlike singular vectors, the basis does not depend on the linear algebra library, and each column stays
    close to its vertex.
    With zero boundary the dimension is :math:`2((n_x + 1)(n_y + 1) + n_x n_y) - 2(n_x + 1) - 2(n_y + 1)`.

    Args:
        cells: Numbers (nx, ny) of rectangles.
        zero_boundary: Whether nothing flows through the edge of the square.
        volume_preserving: Whether the fields have no divergence.

    Returns:
        The basis (24 nx ny, dim). Rows are the entries of the affine parts (cells, 2, 3) of a field.

    Raises:
        UserError: If only the zero field satisfies the constraints.
    """
    return torch.tensor(basis_array(Tessellation(*cells, zero_boundary, volume_preserving)))


@functools.cache
def transposed_basis(t: Tessellation, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the transposed basis (dim, entries) on a device. It is copied there once."""
    with torch.inference_mode(False):
        return torch.tensor(basis_array(t).T.copy(), dtype=dtype, device=device)


def find_cells(t: Tessellation, x: Float[Tensor, "*b"], y: Float[Tensor, "*b"]) -> Int64[Tensor, "*b"]:
    """Return the number of the triangle that contains each point.

    Points outside the square belong to a triangle of the nearest rectangle, points that are not finite to any triangle.
    """
    across, down = x * t.nx, y * t.ny
    column, row = across.floor().clamp(0, t.nx - 1), down.floor().clamp(0, t.ny - 1)
    across, down = across - column, down - row
    below, beyond = across < down, 1 - across < down  # the two diagonals of the rectangle
    cell = torch.add(column, row, alpha=t.nx) * 4 + below * 2 + (below ^ beyond)
    return cell.to(torch.int64).clamp(0, t.cells - 1)
