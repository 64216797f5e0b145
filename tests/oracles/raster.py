"""Sprites by the definition: for each pixel, count the edges that cross its row at or before its centre."""

from __future__ import annotations

import math
from fractions import Fraction

Point = tuple[int, int]


def outline(shape: int) -> list[tuple[float, float]]:
    """Return the outline of a square, ellipse or heart at scale 1 around the origin, in pixels, y down."""
    if shape == 0:
        return [(-9.6, -9.6), (-9.6, 9.6), (9.6, 9.6), (9.6, -9.6)]
    if shape == 1:
        parameters = [2 * math.pi * k / 100 for k in range(100)]
        return [(9.6 * 1.33 * math.cos(t), 9.6 / 1.33 * math.sin(t)) for t in parameters]
    return [_heart(2 * math.pi * k / 150) for k in range(150)]


def _heart(t: float) -> tuple[float, float]:
    y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
    return 9.6 * math.sin(t) ** 3, -(19.2 / 29) * y - 1.44


def vertices(shape: int, scale: float, theta: float, x: float, y: float) -> list[tuple[float, float]]:
    """Return the outline scaled, rotated by -theta in image coordinates and moved to (x, y), in units of 1/256 px."""
    cos, sin = math.cos(-theta), math.sin(-theta)
    rotated = [(scale * (a * cos - b * sin), scale * (a * sin + b * cos)) for a, b in outline(shape)]
    return [(256 * (x + a), 256 * (y + b)) for a, b in rotated]


def picture(points: list[tuple[float, float]], pixels: int) -> list[list[int]]:
    """Return ones inside the polygon and zeros outside, by the even-odd rule at pixel centres."""
    rounded = [(math.floor(a + 0.5), math.floor(b + 0.5)) for a, b in points]
    return [[_inside(_crossings(rounded, r), c) for c in range(pixels)] for r in range(pixels)]


def _crossings(points: list[Point], r: int) -> list[Fraction]:
    row, found = 256 * r + 128, []
    for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
        if (y0 < row) != (y1 < row):
            found.append(x0 + Fraction((row - y0) * (x1 - x0), y1 - y0))
    return found


def _inside(crossings: list[Fraction], c: int) -> int:
    return sum(at <= 256 * c + 128 for at in crossings) % 2


def dsprite(factors: list[int]) -> list[tuple[float, float]]:
    """Return the vertices of a dSprites image from its factors."""
    shape, scale, orientation, x, y = factors
    return vertices(shape, 0.5 + 0.1 * scale, 2 * math.pi * orientation / 39, 16 + 32 * x / 31, 16 + 32 * y / 31)


def sprite(factors: list[int]) -> list[tuple[float, float]]:
    """Return the vertices of a small sprite from its factors."""
    shape, scale, orientation, x, y = factors
    return vertices(shape, 0.46 + 0.09 * scale, math.pi / 16 * orientation, 10 + 0.8 * x, 12.5 + y)
