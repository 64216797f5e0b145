"""Tessellations of the unit square into triangles, and continuous velocity fields that are affine on each triangle.

The square is divided into rectangles. The diagonals of each rectangle divide it into four triangles: top (small y),
right, bottom and left. Triangles, also called cells, are numbered in this order, rectangle by rectangle. Rectangles are
numbered row by row.

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
PIVOT_TOLERANCE = 1e-9  # a row reduction treats entries whose absolute value is below this as zero


@dataclass(frozen=True)
class Tessellation:
    """A space of velocity fields on the unit square. The square is divided into rectangles of four triangles each.

    Args:
        nx: Number of rectangles along x.
        ny: Number of rectangles along y.
        zero_boundary: Whether the velocity across the edge of the square is zero. Points may still move along the edge.
        volume_preserving: Whether the fields are free of divergence.

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
    def n_cells(self) -> int:
        """The number of triangles."""
        return 4 * self.nx * self.ny

    @property
    def dim(self) -> int:
        """The number of parameters of a field."""
        return int(_basis_array(self).shape[1])


def _triangles(t: Tessellation) -> tuple[Array, NDArray[np.int64]]:
    """Return the coordinates (v, 2) of all vertices, and the indices (cells, 3) of the vertices of each triangle.

    The vertices are the corners of the rectangles, row by row, and then the centres of the rectangles.
    """
    x, y = (np.arange(n + 1) / n for n in (t.nx, t.ny))
    corners = np.stack(np.meshgrid(x, y), -1)
    centres = (corners[:-1, :-1] + corners[1:, 1:]) / 2
    index = np.arange(corners[..., 0].size).reshape(corners.shape[:2])
    around = [index[:-1, :-1], index[:-1, 1:], index[1:, 1:], index[1:, :-1]]  # clockwise, where y points down
    middle = index.size + np.arange(t.nx * t.ny).reshape(t.ny, t.nx)
    triangles = [np.stack([middle, around[i], around[(i + 1) % 4]], -1) for i in range(4)]
    return np.concatenate([corners.reshape(-1, 2), centres.reshape(-1, 2)]), np.stack(triangles, 2).reshape(-1, 3)


def barycentric_matrices(t: Tessellation) -> Array:
    """Return matrices (cells, 3, 3) that map (x, y, 1) to the barycentric weights of the vertices of each triangle."""
    vertices, triangles = _triangles(t)
    corners = vertices[triangles]
    return np.linalg.inv(np.concatenate([corners, np.ones_like(corners[..., :1])], -1).transpose(0, 2, 1))


def _vertex_fields(t: Tessellation) -> Array:
    """Return the matrices (cells, 2, 3, fields) of all fields that are nonzero at one vertex only.

    Each field has velocity 1 at one vertex along one axis, and velocity 0 at all other vertices. With zero boundary,
    fields that flow across the edge are left out.
    """
    vertices, triangles = _triangles(t)
    fields = np.zeros((t.n_cells, 2, 3, len(vertices), 2))
    every, weights = np.arange(t.n_cells), barycentric_matrices(t)
    for corner in range(3):
        for axis in range(2):
            fields[every, axis, :, triangles[:, corner], axis] = weights[:, corner]
    free = ~((vertices == 0) | (vertices == 1)) if t.zero_boundary else np.ones_like(vertices, dtype=bool)
    return fields[..., free]


def _null_space(rows: Array) -> Array:
    """Return a basis of the vectors that are orthogonal to all rows, computed by row reduction.

    The basis vectors are columns. Each has a 1 at a position where all others have a 0.
    """
    m, pivots = rows.copy(), list[int]()
    for column in range(m.shape[1]):
        top = len(pivots)
        pivot_row = top + int(np.abs(m[top:, column]).argmax()) if top < len(m) else -1
        if pivot_row < 0 or abs(m[pivot_row, column]) < PIVOT_TOLERANCE:
            continue
        m[[top, pivot_row]] = m[[pivot_row, top]]
        m[top] /= m[top, column]
        others = np.arange(len(m)) != top
        m[others] -= m[others, column, None] * m[top]
        pivots.append(column)
    free = [column for column in range(m.shape[1]) if column not in pivots]
    vectors = np.eye(m.shape[1])[:, free]
    vectors[pivots] = -m[: len(pivots), free]
    return vectors


@functools.cache
def _basis_array(t: Tessellation) -> Array:
    """Return the basis (entries, dim) that `basis` describes, as a read-only array."""
    fields = _vertex_fields(t)
    flat = fields.reshape(6 * t.n_cells, -1)
    if t.volume_preserving:
        flat = flat @ _null_space(fields[:, 0, 0] + fields[:, 1, 1])
    if not flat.shape[1]:
        raise UserError(f"No velocity field except zero satisfies {t}. Use more rectangles or fewer constraints.")
    eigenvalues, vectors = np.linalg.eigh(flat.T @ flat)
    orthonormal: Array = flat @ (vectors / np.sqrt(eigenvalues)) @ vectors.T
    orthonormal.setflags(write=False)
    return orthonormal


def basis(
    rectangles: tuple[int, int], zero_boundary: bool = True, volume_preserving: bool = False
) -> Float64[Tensor, "entries dim"]:
    r"""Return an orthonormal basis of the velocity fields of a tessellation.

    .. math:: B = H (H^T H)^{-1/2}

    Each column of H is the field with velocity 1 at a single vertex along one axis. If the fields must be free of
    divergence, each column is instead a linear combination of such fields, found by row reduction. The columns span
    the null space of the constraints: neighbouring triangles agree at shared vertices and, with `zero_boundary`, the
    velocity across the edge of the square is zero. The symmetric inverse square root is unique. Therefore, unlike a
    basis of singular vectors, this basis does not depend on the linear algebra library, and each basis field is largest
    near its vertex.

    If `zero_boundary` is true and `volume_preserving` is false, the dimension is
    :math:`2((n_x + 1)(n_y + 1) + n_x n_y) - 2(n_x + 1) - 2(n_y + 1)`.

    Args:
        rectangles: Numbers (nx, ny) of rectangles along x and y.
        zero_boundary: Whether the velocity across the edge of the square is zero.
        volume_preserving: Whether the fields are free of divergence.

    Returns:
        The basis (24 nx ny, dim). Each column is the flattened table (cells, 2, 3) of the matrices of one field.

    Raises:
        UserError: If only the zero field satisfies the constraints.
    """
    return torch.tensor(_basis_array(Tessellation(*rectangles, zero_boundary, volume_preserving)))


@functools.cache
def transposed_basis(t: Tessellation, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the transposed basis (dim, entries) on a device. It is cached, so it is copied there only once."""
    with torch.inference_mode(False):
        return torch.tensor(_basis_array(t).T.copy(), dtype=dtype, device=device)


def find_cells(t: Tessellation, x: Float[Tensor, "*b"], y: Float[Tensor, "*b"]) -> Int64[Tensor, "*b"]:
    """Return the number of the triangle that contains each point.

    Points outside the square are assigned to a triangle of the nearest rectangle. Points that are not finite are
    assigned to an arbitrary triangle.
    """
    across, down = x * t.nx, y * t.ny
    column, row = across.floor().clamp(0, t.nx - 1), down.floor().clamp(0, t.ny - 1)
    across, down = across - column, down - row
    below, beyond = across < down, 1 - across < down  # on which side of each diagonal of the rectangle the point lies
    cell = torch.add(column, row, alpha=t.nx) * 4 + below * 2 + (below ^ beyond)
    return cell.to(torch.int64).clamp(0, t.n_cells - 1)
