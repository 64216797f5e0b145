"""Read Shapes3D from its published file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.data.files.locate import locate_files
from unbraid.data.in_memory import ByteImages
from unbraid.data.readers import hdf5
from unbraid.data.readers.verify import Array, check_grid

NAMES = ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation")
SIZES = (10, 10, 10, 8, 4, 15)
PERIODS = dict.fromkeys(NAMES[:3], 10)  # the hues are 0, 0.1, ..., 0.9, and hue 1 is the same colour as hue 0
PIXELS = 64


def shapes3d(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """Load the published file of Shapes3D: 480,000 images 64x64x3 of an object in a room (5.9 GB uncompressed).

    On first use, the images are converted to an uncompressed file in the cache folder. The labels of all images are
    checked: they must form the full grid of factors.
    Reference: Burgess and Kim (2018), github.com/google-deepmind/3d-shapes.
    """
    (path,) = locate_files("shapes3d", root).values()
    return read_shapes3d(path, device=device, progress=progress)


def read_shapes3d(
    path: Path,
    sizes: tuple[int, ...] = SIZES,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> ByteImages:
    """Read Shapes3D from an HDF5 file.

    The file contains the arrays images, uint8 of shape (n, 64, 64, 3), and labels, float64 of shape (n, 6).
    """
    shape = (3, PIXELS, PIXELS)
    table = cached_table("shapes3d", [path], (math.prod(sizes), *shape), lambda: _blocks(path, sizes), progress)
    data = ByteImages("shapes3d", NAMES, sizes, shape, table.to(device))
    data.categorical, data.cyclic = ("shape",), PERIODS
    return data


def factor_values(sizes: tuple[int, ...]) -> list[Array]:
    """Return the published values of the factors: three hues, the scale, the shape and the orientation in degrees."""
    *hue_sizes, scales, shapes, angles = sizes
    hues = [np.arange(size) / 10 for size in hue_sizes]
    return [*hues, np.linspace(0.75, 1.25, scales), np.arange(shapes), np.linspace(-30, 30, angles)]


def _blocks(path: Path, sizes: tuple[int, ...]) -> Iterator[ByteArray]:
    n = math.prod(sizes)
    check_grid(path, "labels", hdf5.read_array(path, "labels", (n, len(sizes)), "f"), factor_values(sizes))
    for images in hdf5.read_blocks(path, "images", (n, PIXELS, PIXELS, 3)):
        yield images.transpose(0, 3, 1, 2)
