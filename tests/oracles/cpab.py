"""Piecewise-affine velocity fields, derived from their constraints, and their flow by fine Runge-Kutta steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def triangles(nx: int, ny: int) -> list[list[tuple[float, float]]]:
    """Return the corners of every triangle: rectangles row by row, and in each top, right, bottom, left."""
    corners = []
    for i in range(ny):
        for j in range(nx):
            left, right, top, bottom = j / nx, (j + 1) / nx, i / ny, (i + 1) / ny
            middle = ((j + 0.5) / nx, (i + 0.5) / ny)
            corners += [
                [middle, (left, top), (right, top)],
                [middle, (right, top), (right, bottom)],
                [middle, (right, bottom), (left, bottom)],
                [middle, (left, bottom), (left, top)],
            ]
    return corners


def constraints(nx: int, ny: int, zero_boundary: bool, volume_preserving: bool) -> Array:
    """Return the rows to which the 6 entries of all affine parts must be orthogonal."""
    cells = triangles(nx, ny)
    rows = []

    def row(entries: dict[tuple[int, int, int], float]) -> None:
        line = np.zeros((len(cells), 2, 3))
        for at, value in entries.items():
            line[at] = value
        rows.append(line.ravel())

    def key(p: tuple[float, float]) -> tuple[float, float]:
        return round(p[0], 9), round(p[1], 9)

    for a, first in enumerate(cells):
        for b, second in enumerate(cells[:a]):
            shared = [p for p in first if key(p) in map(key, second)]
            for p in shared if len(shared) == 2 else []:
                for axis in range(2):
                    here = {(a, axis, k): v for k, v in enumerate([*p, 1.0])}
                    row(here | {(b, axis, k): -v for k, v in enumerate([*p, 1.0])})
        for p in first if zero_boundary else []:
            for axis in range(2):
                if key(p)[axis] in (0.0, 1.0):
                    row({(a, axis, k): v for k, v in enumerate([*p, 1.0])})
        if volume_preserving:
            row({(a, 0, 0): 1.0, (a, 1, 1): 1.0})
    return np.array(rows)


def null_space(rows: Array, small: float = 1e-6) -> Array:
    """Return orthonormal columns that span the null space, from a singular value decomposition."""
    _, values, vectors = np.linalg.svd(rows)
    return vectors[int((values > small).sum()) :].T


def cell(nx: int, ny: int, p: Array) -> NDArray[np.int64]:
    """Return the triangle of each point, by the published rule."""
    column = np.clip(np.floor(p[:, 0] * nx), 0, nx - 1)
    row = np.clip(np.floor(p[:, 1] * ny), 0, ny - 1)
    x, y = p[:, 0] * nx - column, p[:, 1] * ny - row
    kind = np.select([(x < y) & (1 - x < y), x < y, 1 - x < y], [2, 3, 1], 0)
    return (4 * (row * nx + column) + kind).astype(np.int64)


def velocity(nx: int, ny: int, parts: Array, p: Array) -> Array:
    """Evaluate affine parts (cells, 2, 3) at points (n, 2)."""
    chosen = parts[cell(nx, ny, p)]
    return np.einsum("nij,nj->ni", chosen, np.concatenate([p, np.ones_like(p[:, :1])], 1))


def runge_kutta(nx: int, ny: int, parts: Array, p: Array, steps: int) -> Array:
    """Integrate the flow over a unit of time: fourth order within triangles, second order across their edges."""
    h = 1 / steps
    for _ in range(steps):
        first = velocity(nx, ny, parts, p)
        second = velocity(nx, ny, parts, p + h / 2 * first)
        third = velocity(nx, ny, parts, p + h / 2 * second)
        fourth = velocity(nx, ny, parts, p + h * third)
        p = p + h / 6 * (first + 2 * second + 2 * third + fourth)
    return p
