"""Fill polygons at all positions of a grid in one call.

Polygons are sampled at pixel centres with exact arithmetic. Coordinates are in pixels, and y increases downwards. The
centre of pixel (row r, column c) is at x = c + 0.5, y = r + 0.5. Vertices are rounded to 1/256 pixel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unbraid.accel.devices import one_thread
from unbraid.data.dataset import Progress

# FROM_COLUMN[t] is the signed 64-bit integer whose bits t to 63 are set, for t from 0 to 64. A table is used because a
# shift by 64 bits is undefined.
FROM_COLUMN = [-1 << t for t in range(64)] + [0]


@dataclass(frozen=True)
class Scene:
    """The values of the factors of a dataset of sprites.

    Attributes:
        pixels: Width and height of the images.
        scales: Scales of the sprites.
        angles: Orientations in radians.
        x: Horizontal positions of the centres in pixels.
        y: Vertical positions of the centres in pixels.
    """

    pixels: int
    scales: Tensor
    angles: Tensor
    x: Tensor
    y: Tensor

    def polygons(self, device: torch.device) -> Iterator[Tensor]:
        """Yield, for each shape and scale, the outlines at all angles, float64 of shape (angles, vertices, 2).

        The centres of the sprites are at the origin.
        """
        cos, sin = self.angles.cos(), self.angles.sin()
        rotation = torch.stack([cos, -sin, sin, cos], -1).view(-1, 2, 2)
        for shape in (square(), ellipse(), heart()):
            for scale in self.scales:
                yield (scale * shape @ rotation).to(device)


def square() -> Tensor:
    """Return the vertices of a square with a side of 19.2 pixels, float64 of shape (4, 2)."""
    return 9.6 * torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.float64)


def ellipse() -> Tensor:
    """Return the 100 vertices of a polygon that approximates an ellipse, float64 of shape (100, 2).

    The semi-axes are 9.6 * 1.33 and 9.6 / 1.33 pixels, and the vertices are equally spaced in the curve parameter.
    """
    t = 2 * math.pi / 100 * torch.arange(100, dtype=torch.float64)
    return torch.stack([9.6 * 1.33 * t.cos(), 9.6 / 1.33 * t.sin()], -1)


def heart() -> Tensor:
    """Return the 150 vertices of a polygon that approximates a heart, float64 of shape (150, 2).

    The curve is x = 9.6 sin^3 t, y = -(19.2 / 29)(13 cos t - 5 cos 2t - 2 cos 3t - cos 4t) - 1.44.
    """
    t = 2 * math.pi / 150 * torch.arange(150, dtype=torch.float64)
    y = 13 * t.cos() - 5 * (2 * t).cos() - 2 * (3 * t).cos() - (4 * t).cos()
    return torch.stack([9.6 * t.sin() ** 3, -19.2 / 29 * y - 1.44], -1)


def render(scene: Scene, device: torch.device, progress: Progress | None = None) -> Tensor:
    """Render all sprites of a scene.

    Args:
        scene: Values of the factors.
        device: Device on which to render.
        progress: Called with the finished fraction, from 0 to 1.

    Returns:
        The bits of the images, uint8 of shape (shapes * scales * angles * x * y, pixels^2 / 8). The last factor varies
        fastest.
    """
    groups = 3 * len(scene.scales)
    images = len(scene.angles) * len(scene.x) * len(scene.y)
    table = torch.empty(groups, images, scene.pixels**2 // 8, dtype=torch.uint8, device=device)
    x, y = scene.x.to(device), scene.y.to(device)
    for group, polygons in enumerate(scene.polygons(device)):
        with one_thread():
            table[group] = fill_polygons(polygons, x, y, scene.pixels).reshape(images, -1)
        if progress:
            progress((group + 1) / groups)
    return table.flatten(0, 1)


def fill_polygons(polygons: Tensor, x: Tensor, y: Tensor, pixels: int) -> Tensor:
    """Fill each polygon at every centre (x, y), by the even-odd rule.

    A pixel is set if an odd number of edges cross its row at or to the left of its centre. A centre on a left edge is
    therefore inside, and a centre on a right edge is outside. A row of at most 64 pixels is one 64-bit word, and each
    crossing inverts the bit of its column and all bits to the right of it. The rows that an edge crosses depend only on
    y, so crossings are computed once for all x.

    Args:
        polygons: Vertices of m polygons, float64 of shape (m, vertices, 2).
        x: Horizontal positions in pixels.
        y: Vertical positions in pixels.
        pixels: Width and height of the images, at most 64.

    Returns:
        The bits of the images, uint8 of shape (m, len(x), len(y), pixels, pixels / 8).
    """
    rows = _to_fixed_point(polygons[:, None, :, 1] + y[:, None])
    columns = _to_fixed_point(polygons[:, :, 0, None] + x).double()
    edge, row = _crossings(rows, pixels)
    cell = edge // rows.shape[2] * pixels + row
    words = torch.zeros(len(polygons) * len(y) * pixels, len(x), dtype=torch.int64, device=x.device)
    for group in _groups_without_repeats(cell):
        words[cell[group]] ^= _flip_masks(rows, columns, edge[group], row[group])
    image = words.view(len(polygons), len(y), pixels, len(x)).permute(0, 3, 1, 2).contiguous()
    return image.view(torch.uint8).view(*image.shape, 8)[..., : pixels // 8]


def _to_fixed_point(v: Tensor) -> Tensor:
    """Convert coordinates to integers in units of 1/256 pixel. Halves are rounded up."""
    return (256 * v + 0.5).floor().long()


def _crossings(y: Tensor, pixels: int) -> tuple[Tensor, Tensor]:
    """Return the indices of the edge and the row for every crossing of an edge with the centre line of a row.

    `y` (m, positions, v) contains the vertical fixed-point coordinates of the vertices. An edge from y0 to y1 crosses a
    row if (y0 < centre) != (y1 < centre). The index of an edge is the index of its first vertex in the flattened `y`.
    """
    first = (((y - 128) >> 8) + 1).clamp(0, pixels)  # the first row whose centre, 256 r + 128, is greater than y
    following = first.roll(-1, -1)
    start, count = torch.minimum(first, following).flatten(), (first - following).abs().flatten()
    edge = torch.arange(len(count), device=y.device).repeat_interleave(count)
    before = count.cumsum(0) - count
    return edge, start[edge] + torch.arange(len(edge), device=y.device) - before[edge]


def _groups_without_repeats(cell: Tensor) -> Iterator[Tensor]:
    """Yield groups of crossings in which no cell occurs twice.

    A cell is one row of pixels of one polygon at one vertical position. A group can be applied in one operation.
    Repeated cells in one operation would overwrite each other.
    """
    ordered, order = cell.sort(stable=True)
    rank = torch.arange(len(cell), device=cell.device) - torch.searchsorted(ordered, ordered)
    for k in range(int(rank.max()) + 1):
        yield order[rank == k]


def _flip_masks(y: Tensor, x: Tensor, edge: Tensor, row: Tensor) -> Tensor:
    """Return the bits that each crossing flips, int64 of shape (crossings, len(x)).

    These are the bits of all columns whose centres are at the crossing or to the right of it. An edge from (x0, y0) to
    (x1, y1) crosses the centre line of a row at x = x0 + (centre - y0) (x1 - x0) / (y1 - y0). The first column to flip
    is the ceiling of a quotient of integers whose denominator is below 2^31. Float64 computes this ceiling exactly for
    two reasons. First, all products and sums are integers below 2^53. Second, rounding the quotient does not change its
    ceiling. If the quotient is an integer, the division returns it exactly. Otherwise it differs from every integer by
    at least 2^-31, which is much more than the rounding error.
    """
    centres, vertices = y.shape[1], y.shape[2]
    y0, y1 = y.flatten()[edge], y.roll(-1, -1).flatten()[edge]
    at = edge // (centres * vertices) * vertices + edge % vertices
    x0, x1 = x.flatten(0, 1)[at], x.roll(-1, 1).flatten(0, 1)[at]
    along, height = (256 * row + 128 - y0).double()[:, None], (y1 - y0).double()[:, None]
    column = (((x0 - 128) * height + along * (x1 - x0)) / (256 * height)).ceil()
    return torch.tensor(FROM_COLUMN, device=x.device)[column.clamp(0, 64).long()]
