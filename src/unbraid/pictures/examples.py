"""Convert examples of a dataset and decoded examples to images. Meshes are drawn from the front."""

from __future__ import annotations

import functools
import math

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.rendered.zbuffer import View, draw_meshes
from unbraid.errors import UserError

MESH_HEIGHT = 128  # height of the image of a mesh, in pixels
VIEW_MARGIN = 1.06  # ratio of the size of a view to the size of the meshes that it contains
VIEW_MESHES = 500  # maximum number of meshes from which the view is computed


def middle_example(data: FactorData) -> int:
    """Return the index of the example in the middle of the factor grid, or of the middle row if there is no grid."""
    return int(data.index([[size // 2 for size in data.sizes]])[0]) if data.gridded else len(data) // 2


def has_meshes(data: FactorData) -> bool:
    """Return whether the vectors of the data are the vertices of meshes."""
    return getattr(data, "faces", None) is not None


def is_drawable(data: FactorData) -> bool:
    """Return whether examples can be shown as images."""
    return len(data.shape) == 3 or has_meshes(data)


def check_drawable(data: FactorData) -> None:
    """Raise a UserError if examples cannot be shown as images."""
    if not is_drawable(data):
        raise UserError(
            f"A picture needs images or meshes. {data.name} has vectors of {data.shape[0]} numbers instead. Choose "
            "other data, or use run.decode(z) to decode vectors."
        )


def start_example(data: FactorData, example: int | None) -> int:
    """Return `example`, or the index of the example in the middle of the data if `example` is None.

    Raise a UserError if examples cannot be shown as images, or if the data have no example with this index.
    """
    check_drawable(data)
    chosen = middle_example(data) if example is None else example
    data.factors([chosen])  # raises an error if there is no such example
    return chosen


def example_images(data: FactorData, index: Tensor) -> list[Tensor]:
    """Return the examples at `index` as images (c, h, w) with values in [0, 1]."""
    check_drawable(data)
    return decoded_images(data.batch(index.to(data.device)), data)


def decoded_images(examples: Tensor, data: FactorData) -> list[Tensor]:
    """Convert n examples, each of shape `data.shape`, to images (c, h, w) with values in [0, 1]."""
    return list(examples.cpu()) if len(data.shape) == 3 else mesh_images(examples, data)


def mesh_images(meshes: Float[Tensor, "n d"], data: FactorData) -> list[Tensor]:
    """Draw meshes from the front, all in the same view. If the data have no faces, draw the vertices as points."""
    vertices, faces = meshes.cpu().unflatten(1, (-1, 3)), data.faces.cpu()  # type: ignore[attr-defined]
    if not faces.diff(dim=1).any():
        return [points_image(mesh) for mesh in vertices]
    return list(draw_meshes(vertices, faces, mesh_view(data)) / 255)


@functools.lru_cache(maxsize=2)
def mesh_view(data: FactorData) -> View:
    """Return a view from the front that contains the meshes of the data. The view is at most twice as wide as high."""
    index = torch.linspace(0, len(data) - 1, min(len(data), VIEW_MESHES), device=data.device).long()
    points = data.batch(index).cpu().unflatten(1, (-1, 3)).flatten(0, 1)[:, :2]
    low, high = points.amin(0), points.amax(0)
    width, height = (VIEW_MARGIN * (high - low)).tolist()
    metres = max(height, width / 2) or 1.0
    x, y = ((low + high) / 2).tolist()
    return View(MESH_HEIGHT, max(1, math.ceil(MESH_HEIGHT * width / metres)), metres, (x, y))


def points_image(points: Float[Tensor, "v 3"], size: int = 128) -> Float[Tensor, "1 s s"]:
    """Draw the vertices of a mesh from the front. Near vertices are brighter."""
    xyz = points - points.amin(0)
    extent = float(xyz[:, :2].amax()) or 1.0
    pixel = (xyz[:, :2] / extent * (size - 9) + 4).long()
    pixel[:, 0] += (size - 1 - int(pixel[:, 0].max()) - int(pixel[:, 0].min())) // 2
    shade = 0.3 + 0.7 * xyz[:, 2] / (float(xyz[:, 2].amax()) or 1.0)
    canvas = torch.zeros(size, size)
    canvas.view(-1).scatter_reduce_(0, (size - 1 - pixel[:, 1]) * size + pixel[:, 0], shade, "amax")
    return canvas[None]
