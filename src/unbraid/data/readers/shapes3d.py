"""Shapes3D from its published file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import Bytes, converted
from unbraid.data.files.locate import locate
from unbraid.data.in_memory import ByteImages
from unbraid.data.readers import hdf5
from unbraid.data.readers.verify import Array, check_grid

NAMES = ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation")
SIZES = (10, 10, 10, 8, 4, 15)
PIXELS = 64


def shapes3d(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """Shapes3D as published: 480,000 images 64x64x3 of an object in a room (5.9 GB when converted).

    Its labels are compared with the grid row by row.
    Reference: Burgess and Kim (2018), github.com/google-deepmind/3d-shapes.
    """
    (path,) = locate("shapes3d", root).values()
    return read_shapes3d(path, device=device, progress=progress)


def read_shapes3d(
    path: Path,
    sizes: tuple[int, ...] = SIZES,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> ByteImages:
    """The HDF5 file: images (n, 64, 64, 3) uint8 and labels (n, 6) float64."""
    shape = (3, PIXELS, PIXELS)
    table = converted("shapes3d", [path], (math.prod(sizes), *shape), lambda: _blocks(path, sizes), progress)
    return ByteImages("shapes3d", NAMES, sizes, shape, table.to(device))


def values_of(sizes: tuple[int, ...]) -> list[Array]:
    """The values of the labels: three hues, scale, shape and orientation in degrees."""
    floor, wall, thing, scales, shapes, angles = sizes
    hues = [np.arange(size) / 10 for size in (floor, wall, thing)]
    return [*hues, np.linspace(0.75, 1.25, scales), np.arange(shapes), np.linspace(-30, 30, angles)]


def _blocks(path: Path, sizes: tuple[int, ...]) -> Iterator[Bytes]:
    n = math.prod(sizes)
    check_grid(path, "labels", hdf5.array(path, "labels", (n, len(sizes)), "f"), values_of(sizes))
    for images in hdf5.blocks(path, "images", (n, PIXELS, PIXELS, 3)):
        yield images.transpose(0, 3, 1, 2)
