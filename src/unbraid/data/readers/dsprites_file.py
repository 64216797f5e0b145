"""Read dSprites from its published file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from unbraid.data.dataset import BinaryImages, Progress
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.data.files.locate import locate_files
from unbraid.data.readers import hdf5, npz
from unbraid.data.readers.verify import Array, check_grid, expect_below
from unbraid.data.rendered.dsprites import NAMES, SIZES

PIXELS = 64


def dsprites_file(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> BinaryImages:
    """Load the published file of dSprites: 737,280 binary 64x64 images, stored as bits (377 MB).

    The labels of all images are checked: they must form the full grid of factors. The factor colour, which has a single
    value, is omitted.
    Reference: Matthey et al. (2017), github.com/google-deepmind/dsprites-dataset.
    """
    (path,) = locate_files("dsprites_file", root).values()
    return read_dsprites(path, device=device, progress=progress)


def read_dsprites(
    path: Path,
    sizes: tuple[int, ...] = SIZES,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> BinaryImages:
    """Read dSprites from a .npz or HDF5 file.

    The arrays are imgs, latents_classes and latents_values in a .npz file, and imgs, latents/classes and
    latents/values in an HDF5 file.
    """
    shape = (math.prod(sizes), PIXELS**2 // 8)
    table = cached_table("dsprites_file", [path], shape, lambda: _blocks(path, sizes), progress)
    data = BinaryImages("dsprites_file", NAMES, sizes, (1, PIXELS, PIXELS), table.to(device))
    data.categorical = ("shape",)
    data.cyclic = {"orientation": sizes[2] - 1}  # the first and the last orientation look the same
    return data


def factor_values(sizes: tuple[int, ...]) -> list[Array]:
    """Return the published values of the factors colour, shape, scale, orientation, x and y."""
    shapes, scales, angles, columns, rows = sizes
    spans = ((1, 1, 1), (1, shapes, shapes), (0.5, 1, scales), (0, 2 * math.pi, angles), (0, 1, columns), (0, 1, rows))
    return [np.linspace(*span) for span in spans]


def _blocks(path: Path, sizes: tuple[int, ...]) -> Iterator[ByteArray]:
    n, columns = math.prod(sizes), 1 + len(sizes)
    form, inner = (hdf5, "latents/") if path.suffix in (".hdf5", ".h5") else (npz, "latents_")
    classes = form.read_array(path, f"{inner}classes", (n, columns), "iu")
    check_grid(path, "latents_classes", classes, [np.arange(size) for size in (1, *sizes)])
    check_grid(path, "latents_values", form.read_array(path, f"{inner}values", (n, columns), "f"), factor_values(sizes))
    for images in form.read_blocks(path, "imgs", (n, PIXELS, PIXELS)):
        expect_below(path, "pixels", 2, images)
        yield np.packbits(images.reshape(len(images), -1), 1, "little")
