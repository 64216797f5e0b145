"""Cars3D from the authors' archive, its unpacked folder, or an npz made of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from unbraid.data.dataset import Progress
from unbraid.data.files.archives import safe_tar
from unbraid.data.files.convert import Bytes, converted
from unbraid.data.files.locate import locate
from unbraid.data.in_memory import ByteImages
from unbraid.data.readers import mat, npz
from unbraid.data.readers.pictures import resized
from unbraid.data.readers.verify import expect, reading

NAMES = ("elevation", "azimuth", "object")
ELEVATIONS, AZIMUTHS, OBJECTS = 4, 24, 183
DRAWN, PIXELS = 128, 64
MATRIX = (DRAWN, DRAWN, 3, AZIMUTHS, ELEVATIONS)


def cars3d(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """Cars3D: 17,568 images 64x64x3 of 183 cars seen from 24 sides and 4 heights.

    The authors' images of 128x128 are made smaller by Lanczos; objects are numbered in the order of their file names,
    where the large study took the order of a directory listing.
    Reference: Reed et al. (2015), Deep Visual Analogy-Making, NIPS; use of it as in arXiv:1811.12359.
    """
    (path,) = locate("cars3d", root).values()
    return read_cars3d(path, device=device, progress=progress)


def read_cars3d(
    path: Path, objects: int = OBJECTS, device: str | torch.device = "cpu", progress: Progress | None = None
) -> ByteImages:
    """An npz with the array images (4 * 24 * objects, 64, 64, 3), an archive or a folder of one .mat a car."""
    sizes, shape = (ELEVATIONS, AZIMUTHS, objects), (3, PIXELS, PIXELS)

    def blocks() -> Iterator[Bytes]:
        found = _from_npz(path, sizes) if path.suffix == ".npz" else _from_matrices(path, objects, progress)
        return (images.transpose(0, 3, 1, 2) for images in found)

    sources = sorted(path.glob("*.mat")) if path.is_dir() else [path]
    written = progress if path.suffix == ".npz" else None  # else reading is the work, and tells how far it is
    table = converted("cars3d", sources, (math.prod(sizes), *shape), blocks, written)
    if progress:
        progress(1.0)
    return ByteImages("cars3d", NAMES, sizes, shape, table.to(device))


def _from_npz(path: Path, sizes: tuple[int, int, int]) -> Iterator[Bytes]:
    """Images of 64x64 as they are, or of 128x128 made smaller; sizes of factors are compared where they are told."""
    if "factor_sizes" in npz.keys(path):
        expect(path, "factor_sizes", list(sizes), npz.array(path, "factor_sizes", (len(sizes),), "iu").tolist())
    pixels = DRAWN if npz.shape_of(path, "images")[1:2] == (DRAWN,) else PIXELS
    for images in npz.blocks(path, "images", (math.prod(sizes), pixels, pixels, 3)):
        yield images if pixels == PIXELS else resized(images, PIXELS)


def _from_matrices(path: Path, objects: int, progress: Progress | None) -> Iterator[Bytes]:
    """One block an elevation and azimuth; the cars come one file after the other, so all are held first (216 MB)."""
    cars: dict[str, Bytes] = {}
    for name, content in _folder(path) if path.is_dir() else _archive(path):
        cars[name] = resized(_views(path / name, content), PIXELS)
        if progress:
            progress(min(len(cars) / (objects + 1), 1.0))
        if len(cars) > objects:
            break
    expect(path, "number of .mat files in cars/", objects, len(cars))
    order = sorted(cars)
    for elevation, azimuth in itertools.product(range(ELEVATIONS), range(AZIMUTHS)):
        yield np.stack([cars[name][azimuth * ELEVATIONS + elevation] for name in order])


def _folder(path: Path) -> Iterator[tuple[str, bytes]]:
    for file in path.glob("*.mat"):
        with reading(file, "MATLAB"):
            yield file.name, file.read_bytes()


def _archive(path: Path) -> Iterator[tuple[str, bytes]]:
    """The matrices in the folder cars; the archive has other sets of images beside it."""

    def wanted(name: str) -> bool:
        inside = PurePosixPath(name)
        return inside.parent.name == "cars" and inside.suffix == ".mat" and not inside.name.startswith(".")

    for name, file in safe_tar(path, wanted):
        yield PurePosixPath(name).name, file.getvalue()


def _views(path: Path, content: bytes) -> Bytes:
    """The images (24 * 4, 128, 128, 3) of a car, the elevation fastest."""
    return mat.array(path, content, "im", MATRIX).transpose(3, 4, 0, 1, 2).reshape(-1, DRAWN, DRAWN, 3)
