"""A picture of a dataset: one row a factor, the example in the middle with every value of that factor."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.rendered.zbuffer import View, draw
from unbraid.errors import UserError
from unbraid.pictures.traversal import encode_picture, page
from unbraid.runtime.files import make_folder, write_atomic

COLUMNS = 10  # values of a factor that are shown, evenly spread
TALL = 128  # rows of pixels in the picture of a mesh
ROOM = 1.06  # height of the frame of meshes by their own
FRAMED = 500  # meshes that decide their frame


def show(data: FactorData, out: str | Path) -> Path:
    """Write a PNG to `out`: every factor's variation on a full grid, examples of each value of each label elsewhere."""
    rows = factor_rows(data) if data.gridded else label_rows(data)
    scale = max(1, 64 // rows[0][1][0].shape[1])
    path = Path(out)
    make_folder(path.parent)
    write_atomic(path, encode_picture([page(rows, scale)]))
    return path


def factor_rows(data: FactorData) -> list[tuple[str, list[Tensor]]]:
    """The middle of the grid, one factor at a time."""
    middle = torch.tensor([size // 2 for size in data.sizes])
    rows = []
    for j, (name, size) in enumerate(zip(data.names, data.sizes, strict=True)):
        values = np.unique(np.linspace(0, size - 1, min(size, COLUMNS)).round().astype(int))
        factors = middle.repeat(len(values), 1)
        factors[:, j] = torch.from_numpy(values)
        rows.append((f"{name}\n{size} values", as_pictures(data, data.index(factors))))
    return rows


def label_rows(data: FactorData) -> list[tuple[str, list[Tensor]]]:
    """Examples of the first values of each label, or simply some examples where there are no labels."""
    spread = np.linspace(0, len(data) - 1, min(len(data), COLUMNS)).round().astype(int)
    rows = [("examples", as_pictures(data, torch.from_numpy(np.unique(spread))))]
    labels = data.factors(slice(None)).cpu()
    for name, column in list(zip(data.names, labels.unbind(1), strict=True))[:40]:
        first = [int((column == value).nonzero()[0]) for value in column.unique()[:COLUMNS]]
        rows.append((f"{name}\n{len(column.unique())} values", as_pictures(data, torch.tensor(first))))
    return rows


def as_pictures(data: FactorData, index: Tensor) -> list[Tensor]:
    """Images in [0, 1]; meshes are drawn, other vectors cannot be."""
    if len(data.shape) == 3:
        return list(data.batch(index.to(data.device)).cpu())
    if not has_meshes(data):
        raise UserError(f"A picture needs images or meshes; {data.name} has vectors of {data.shape[0]} numbers.")
    return mesh_pictures(data.batch(index.to(data.device)), data)


def has_meshes(data: FactorData) -> bool:
    """Whether the vectors of the data are the vertices of meshes."""
    return getattr(data, "faces", None) is not None


def mesh_pictures(meshes: Float[Tensor, "n d"], data: FactorData) -> list[Tensor]:
    """Meshes of the data's topology from the front, in one frame for all; without a surface, their points."""
    vertices, faces = meshes.cpu().unflatten(1, (-1, 3)), data.faces.cpu()  # type: ignore[attr-defined]
    if not faces.diff(dim=1).any():
        return [points_picture(mesh) for mesh in vertices]
    return list(draw(vertices, faces, frame(data)) / 255)


@functools.lru_cache(maxsize=2)
def frame(data: FactorData) -> View:
    """The view from the front that holds the meshes of the data, as wide as they are but no wider than two squares."""
    some = torch.linspace(0, len(data) - 1, min(len(data), FRAMED), device=data.device).long()
    places = data.batch(some).cpu().unflatten(1, (-1, 3)).flatten(0, 1)[:, :2]
    low, high = places.amin(0), places.amax(0)
    width, height = (ROOM * (high - low)).tolist()
    metres = max(height, width / 2) or 1.0
    x, y = ((low + high) / 2).tolist()
    return View(TALL, max(1, math.ceil(TALL * width / metres)), metres, (x, y))


def points_picture(points: Tensor, size: int = 128) -> Tensor:
    """The vertices of a mesh from the front, near ones brighter: (1, size, size)."""
    xyz = points - points.amin(0)
    reach = float(xyz[:, :2].amax()) or 1.0
    place = (xyz[:, :2] / reach * (size - 9) + 4).long()
    place[:, 0] += (size - 1 - int(place[:, 0].max()) - int(place[:, 0].min())) // 2
    shade = 0.3 + 0.7 * xyz[:, 2] / (float(xyz[:, 2].amax()) or 1.0)
    canvas = torch.zeros(size, size)
    canvas.view(-1).scatter_reduce_(0, (size - 1 - place[:, 1]) * size + place[:, 0], shade, "amax")
    return canvas[None]
