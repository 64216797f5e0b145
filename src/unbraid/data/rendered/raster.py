"""Filled polygons, sampled at pixel centres in exact arithmetic, for all positions of a grid at once.

Coordinates are in pixels, y down. Pixel (r, c) has its centre at (c + .5, r + .5). Vertices are rounded to 1/256 px.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from unbraid.data.dataset import Progress

# The words in which bits t..63 are set, for t = 0..64, as signed 64-bit integers. A shift by 64 would be undefined.
FROM_COLUMN = [-1 << t for t in range(64)] + [0]


@dataclass(frozen=True)
class Scene:
    """The values of the factors of a set of sprites: scales, angles in radians, and x and y of the centres."""

    pixels: int
    scales: Tensor
    angles: Tensor
    x: Tensor
    y: Tensor

    def polygons(self, device: torch.device) -> Iterator[Tensor]:
        """Yield the outlines around the origin, float64 (angles, vertices, 2), for every shape and scale."""
        cos, sin = self.angles.cos(), self.angles.sin()
        rotation = torch.stack([cos, -sin, sin, cos], -1).view(-1, 2, 2)
        for shape in (square(), ellipse(), heart()):
            for scale in self.scales:
                yield (scale * shape @ rotation).to(device)


def square() -> Tensor:
    """Return a square with a side of 19.2 px, float64 (4, 2)."""
    return 9.6 * torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.float64)


def ellipse() -> Tensor:
    """Return an ellipse as a 100-gon with vertices at equal parameter steps, semi-axes 9.6 * 1.33 and 9.6 / 1.33 px."""
    t = 2 * math.pi / 100 * torch.arange(100, dtype=torch.float64)
    return torch.stack([9.6 * 1.33 * t.cos(), 9.6 / 1.33 * t.sin()], -1)


def heart() -> Tensor:
    """Return a heart as a 150-gon.

    Its curve is x = 9.6 sin^3 t, y = -(19.2 / 29)(13 cos t - 5 cos 2t - 2 cos 3t - cos 4t) - 1.44.
    """
    t = 2 * math.pi / 150 * torch.arange(150, dtype=torch.float64)
    y = 13 * t.cos() - 5 * (2 * t).cos() - 2 * (3 * t).cos() - (4 * t).cos()
    return torch.stack([9.6 * t.sin() ** 3, -19.2 / 29 * y - 1.44], -1)


def render(scene: Scene, device: torch.device, progress: Progress | None = None) -> Tensor:
    """Return all sprites of the scene as bits, uint8 (shapes * scales * angles * x * y, pixels^2 / 8), in C order."""
    parts = 3 * len(scene.scales)
    images = len(scene.angles) * len(scene.x) * len(scene.y)
    table = torch.empty(parts, images, scene.pixels**2 // 8, dtype=torch.uint8, device=device)
    x, y = scene.x.to(device), scene.y.to(device)
    for part, polygons in enumerate(scene.polygons(device)):
        with _single_thread():
            table[part] = fill_polygons(polygons, x, y, scene.pixels).reshape(images, -1)
        if progress:
            progress((part + 1) / parts)
    return table.flatten(0, 1)


@contextmanager
def _single_thread() -> Iterator[None]:
    """Run short operations on one core.

    On a busy machine, waiting for a second core takes ten times as long as the work.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def fill_polygons(polygons: Tensor, x: Tensor, y: Tensor, pixels: int) -> Tensor:
    """Fill each of m polygons at every centre (x, y), by the even-odd rule.

    A pixel is set if an odd number of edges cross its row at or before its centre. So a centre on a left edge is
    inside, and a centre on a right edge is outside. A row of at most 64 pixels is one 64-bit word, and each crossing
    flips all bits from its column on. The row of a vertex depends only on y, so crossings are computed once for all x.

    Returns:
        The images as bits, uint8 (m, len(x), len(y), pixels, pixels / 8).
    """
    rows = _to_fixed_point(polygons[:, None, :, 1] + y[:, None])
    columns = _to_fixed_point(polygons[:, :, 0, None] + x).double()
    edge, row = _crossings(rows, pixels)
    cell = edge // rows.shape[2] * pixels + row
    words = torch.zeros(len(polygons) * len(y) * pixels, len(x), dtype=torch.int64, device=x.device)
    for slot in _groups_without_repeats(cell):
        words[cell[slot]] ^= _flip_words(rows, columns, edge[slot], row[slot])
    image = words.view(len(polygons), len(y), pixels, len(x)).permute(0, 3, 1, 2).contiguous()
    return image.view(torch.uint8).view(*image.shape, 8)[..., : pixels // 8]


def _to_fixed_point(v: Tensor) -> Tensor:
    """Return coordinates in units of 1/256 px, rounded half up."""
    return (256 * v + 0.5).floor().long()


def _crossings(y: Tensor, pixels: int) -> tuple[Tensor, Tensor]:
    """Return all (edge, row) with (y0 < centre) != (y1 < centre).

    Edges are numbered as in flattened y (m, len(y), v).
    """
    first = (((y - 128) >> 8) + 1).clamp(0, pixels)  # the first row whose centre, 256 r + 128, is greater than y
    following = first.roll(-1, -1)
    start, count = torch.minimum(first, following).flatten(), (first - following).abs().flatten()
    edge = torch.arange(len(count), device=y.device).repeat_interleave(count)
    before = count.cumsum(0) - count
    return edge, start[edge] + torch.arange(len(edge), device=y.device) - before[edge]


def _groups_without_repeats(cell: Tensor) -> Iterator[Tensor]:
    """Yield groups of crossings in which every cell occurs at most once, so that a group can be applied at once."""
    ordered, order = cell.sort(stable=True)
    rank = torch.arange(len(cell), device=cell.device) - torch.searchsorted(ordered, ordered)
    for k in range(int(rank.max()) + 1):
        yield order[rank == k]


def _flip_words(y: Tensor, x: Tensor, edge: Tensor, row: Tensor) -> Tensor:
    """Return words, int64 (crossings, len(x)), with the bits of all columns set whose centres are beyond the crossing.

    The edge crosses the row at x0 + (centre - y0) (x1 - x0) / (y1 - y0). The first column at or beyond it is the
    ceiling of a quotient of integers below 2^31. Float64 is exact for it: products and sums are below 2^53, and the
    quotient is either an integer, which division returns exactly, or at least 2^-31 away from an integer, which is far
    more than the rounding error.
    """
    places, vertices = y.shape[1], y.shape[2]
    y0, y1 = y.flatten()[edge], y.roll(-1, -1).flatten()[edge]
    at = edge // (places * vertices) * vertices + edge % vertices
    x0, x1 = x.flatten(0, 1)[at], x.roll(-1, 1).flatten(0, 1)[at]
    along, height = (256 * row + 128 - y0).double()[:, None], (y1 - y0).double()[:, None]
    column = (((x0 - 128) * height + along * (x1 - x0)) / (256 * height)).ceil()
    return torch.tensor(FROM_COLUMN, device=x.device)[column.clamp(0, 64).long()]
