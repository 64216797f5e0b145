"""Draw meshes as grey images with an integer z-buffer. The images are the same on all devices."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

UNIT = 256  # fixed-point units per subpixel; the centre of a subpixel is at UNIT / 2
FAR = 1 << 62  # initial value of the z-buffer (256 * depth + shade): a depth behind every surface, and shade 0
LIGHT = (-0.36, 0.48, 0.8)  # unit vector towards the lamp, which is behind the viewer, to the left and above
AMBIENT_FRACTION = 0.2


@dataclass(frozen=True)
class View:
    """An orthographic camera that looks along -z.

    x points to the right, y up, and z towards the viewer. Coordinates are in metres.

    Attributes:
        rows: Height of the image in pixels, which are square.
        columns: Width of the image in pixels.
        metres: Height of the frame in metres.
        centre: The point (x, y) at the centre of the frame.
        samples: A pixel is the mean of `samples` x `samples` subpixels.
    """

    rows: int
    columns: int
    metres: float
    centre: tuple[float, float] = (0.0, 0.0)
    samples: int = 2

    def to_fixed_point(self, vertices: Float[Tensor, "b v 3"]) -> Int[Tensor, "3 b v"]:
        """Return the column, the row and the height towards the viewer of each vertex, in units of 1/256 subpixel.

        Halves are rounded up.
        """
        scale = UNIT * self.samples * self.rows / self.metres
        x, y, z = vertices.double().unbind(-1)
        middle = UNIT * self.samples / 2
        column = (x - self.centre[0]) * scale + middle * self.columns
        row = (self.centre[1] - y) * scale + middle * self.rows
        return (torch.stack([column, row, z * scale]) + 0.5).floor().long()


def draw_meshes(vertices: Float[Tensor, "b v 3"], faces: Int[Tensor, "m 3"], view: View) -> UInt8[Tensor, "b 1 h w"]:
    r"""Draw each mesh in grey on black.

    Each subpixel shows the face that is nearest to the viewer at the centre of the subpixel. The shade of a vertex is
    :math:`255\,(a + (1 - a) \max(0, n \cdot l))`. Here n is the unit vector in the direction of the mean normal of the
    faces at the vertex, weighted by area. l is the direction to the lamp, and a is the fraction of ambient light.
    Within a face the shade is linear. The vertices of a face must be in counter-clockwise order, seen from outside.
    Faces that face away from the viewer are not drawn, and everything outside the frame is cut off. Vertices are
    rounded to 1/256 subpixel. Depths are compared as integers, so the order of the faces does not matter.

    Args:
        vertices: Vertices (b, v, 3) of the meshes, in metres.
        faces: Indices (m, 3) of the vertices of each triangle, the same for all meshes.
        view: The camera.

    Returns:
        Images, uint8 of shape (b, 1, rows, columns).
    """
    corners = view.to_fixed_point(vertices)
    triangles = torch.stack([corners.index_select(2, corner) for corner in faces.unbind(1)])
    normals = _normals(triangles)
    shade = _shades(normals, faces, corners.shape[2])
    front = (normals[2].flatten() > 0).nonzero().squeeze(1)
    visible = triangles.flatten(2).index_select(2, front)
    rows, columns = view.rows * view.samples, view.columns * view.samples
    owner, column, row = _covered_subpixels(visible, rows, columns)
    inside, weights = _select_inside(visible, owner, column, row)
    owner, column, row = owner[inside], column[inside], row[inside]
    face, mesh = front[owner] % len(faces), front[owner] // len(faces)
    height = _interpolate(weights, visible[:, 2].index_select(1, owner))
    tone = _interpolate(
        weights, torch.stack([shade.flatten()[mesh * shade.shape[1] + corner[face]] for corner in faces.T])
    )
    buffer = torch.full((len(vertices) * rows * columns,), FAR, device=vertices.device)
    buffer.scatter_reduce_(0, (mesh * rows + row) * columns + column, (-height << 8) + tone, "amin")
    return _average_subpixels(buffer & 255, view)


def _normals(triangles: Tensor) -> Tensor:
    """Return the normals (3, b, m) of faces. The length of a normal is twice the area of its face.

    y points up, and z is positive if the face is turned towards the viewer.
    """
    a, b, c = triangles
    (x, y, z), (u, v, w) = b - a, c - a
    return torch.stack([z * v - y * w, z * u - x * w, y * u - x * v])


def _shades(normals: Tensor, faces: Tensor, vertices: int) -> Tensor:
    """Return the shade (b, v) of each vertex, int64 from 0 to 255."""
    sums = normals.new_zeros(*normals.shape[:2], vertices)
    for corner in faces.unbind(1):
        sums.index_add_(2, corner, normals)
    x, y, z = sums.double()
    length = (x * x + y * y + z * z).sqrt().clamp(min=1)
    lit = ((x * LIGHT[0] + y * LIGHT[1] + z * LIGHT[2]) / length).clamp(min=0)
    shades: Tensor = 255 * (AMBIENT_FRACTION + (1 - AMBIENT_FRACTION) * lit) + 0.5
    return shades.floor().long()


def _covered_subpixels(triangles: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the subpixels whose centres lie in the bounding box of each triangle.

    Returns:
        The index of the triangle, the column and the row of each of these subpixels.
    """
    a, b, c = triangles[:, :2]
    limit = a.new_tensor([[columns], [rows]])
    first = ((a.minimum(b).minimum(c) + (UNIT // 2 - 1)) // UNIT).clamp(min=0).minimum(limit)
    beyond = ((a.maximum(b).maximum(c) + UNIT // 2) // UNIT).clamp(min=0).minimum(limit)
    across, down = (beyond - first).clamp(min=0)
    count = across * down
    owner = torch.arange(len(count), device=count.device).repeat_interleave(count)
    position = torch.arange(len(owner), device=count.device) - (count.cumsum(0) - count)[owner]
    width = across[owner]
    down = position // width
    return owner, first[0][owner] + position - down * width, first[1][owner] + down


def _select_inside(triangles: Tensor, owner: Tensor, column: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    """Find the subpixels whose centres lie inside their triangles or on an edge.

    Returns:
        The indices of these subpixels, and the weights (3, n) of the corners of the triangle at each of them.
    """
    x, y = column * UNIT + UNIT // 2, row * UNIT + UNIT // 2
    xa, xb, xc = triangles[:, 0].index_select(1, owner) - x
    ya, yb, yc = triangles[:, 1].index_select(1, owner) - y
    weights = torch.stack([xc * yb - yc * xb, xa * yc - ya * xc, xb * ya - yb * xa])
    inside = ((weights[0] | weights[1] | weights[2]) >= 0).nonzero().squeeze(1)
    return inside, weights.index_select(1, inside)


def _interpolate(weights: Tensor, values: Tensor) -> Tensor:
    """Return the weighted mean of the values at the corners, rounded down."""
    return (weights * values).sum(0) // weights.sum(0)


def _average_subpixels(fine: Tensor, view: View) -> Tensor:
    """Return the mean of the subpixels of each pixel. Halves are rounded up."""
    parts = fine.view(-1, 1, view.rows, view.samples, view.columns, view.samples)
    count = view.samples**2
    return ((parts.sum((3, 5)) + count // 2) // count).to(torch.uint8)
