"""Read Cars3D from the authors' archive, from the unpacked archive, or from a .npz file with the same images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from unbraid.data.dataset import Progress
from unbraid.data.files.archives import read_tar_files
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.data.files.locate import locate_files
from unbraid.data.in_memory import ByteImages
from unbraid.data.readers import mat, npz
from unbraid.data.readers.verify import convert_read_errors, expect
from unbraid.data.resizing import resize_images

NAMES = ("elevation", "azimuth", "object")
ELEVATIONS, AZIMUTHS, OBJECTS = 4, 24, 183
SOURCE_PIXELS, PIXELS = 128, 64
MATRIX = (SOURCE_PIXELS, SOURCE_PIXELS, 3, AZIMUTHS, ELEVATIONS)


def cars3d(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """Load Cars3D: 17,568 images 64x64x3 of 183 cars, seen from 24 azimuths and 4 elevations.

    The authors' 128x128 images are resized with a Lanczos filter. Objects are numbered in the order of their file
    names, whereas arXiv:1811.12359 used the order of a directory listing.
    Reference: Reed et al. (2015), Deep Visual Analogy-Making, NIPS; used as in arXiv:1811.12359.
    """
    (path,) = locate_files("cars3d", root).values()
    return read_cars3d(path, device=device, progress=progress)


def read_cars3d(
    path: Path, objects: int = OBJECTS, device: str | torch.device = "cpu", progress: Progress | None = None
) -> ByteImages:
    """Read Cars3D from a .npz file, an archive or a folder.

    A .npz file must contain the array `images` of shape (4 * 24 * objects, 64, 64, 3) or (..., 128, 128, 3). An
    archive or folder must contain one .mat file per car.
    """
    sizes, shape = (ELEVATIONS, AZIMUTHS, objects), (3, PIXELS, PIXELS)

    def blocks() -> Iterator[ByteArray]:
        if path.suffix == ".npz":
            read = _blocks_from_npz(path, sizes)
        else:
            read = _blocks_from_matrices(path, objects, progress)
        return (images.transpose(0, 3, 1, 2) for images in read)

    sources = sorted(path.glob("*.mat")) if path.is_dir() else [path]
    # For .mat files, reading takes most of the time, so `_blocks_from_matrices` reports the progress of reading, and
    # the progress of writing is not reported.
    write_progress = progress if path.suffix == ".npz" else None
    table = cached_table("cars3d", sources, (math.prod(sizes), *shape), blocks, write_progress)
    if progress:
        progress(1.0)
    data = ByteImages("cars3d", NAMES, sizes, shape, table.to(device))
    data.categorical, data.cyclic = ("object",), {"azimuth": AZIMUTHS}
    return data


def _blocks_from_npz(path: Path, sizes: tuple[int, int, int]) -> Iterator[ByteArray]:
    """Yield the images of a .npz file in blocks. Images of 128x128 pixels are resized to 64x64.

    If the file contains the array `factor_sizes`, it must be equal to `sizes`.
    """
    if "factor_sizes" in npz.array_names(path):
        expect(path, "factor_sizes", list(sizes), npz.read_array(path, "factor_sizes", (len(sizes),), "iu").tolist())
    pixels = SOURCE_PIXELS if npz.array_shape(path, "images")[1:2] == (SOURCE_PIXELS,) else PIXELS
    for images in npz.read_blocks(path, "images", (math.prod(sizes), pixels, pixels, 3)):
        yield images if pixels == PIXELS else resize_images(images, PIXELS)


def _blocks_from_matrices(path: Path, objects: int, progress: Progress | None) -> Iterator[ByteArray]:
    """Yield one block of images per elevation and azimuth.

    A block contains one view of all cars, but a file contains all views of one car. All cars are therefore read into
    memory first (216 MB).
    """
    cars: dict[str, ByteArray] = {}
    for name, content in _folder_matrices(path) if path.is_dir() else _archive_matrices(path):
        cars[name] = resize_images(_read_views(path / name, content), PIXELS)
        if progress:
            progress(min(len(cars) / (objects + 1), 1.0))
        if len(cars) > objects:
            break
    expect(path, "number of .mat files in cars/", objects, len(cars))
    order = sorted(cars)
    for elevation, azimuth in itertools.product(range(ELEVATIONS), range(AZIMUTHS)):
        yield np.stack([cars[name][azimuth * ELEVATIONS + elevation] for name in order])


def _folder_matrices(path: Path) -> Iterator[tuple[str, bytes]]:
    for file in path.glob("*.mat"):
        with convert_read_errors(file, "MATLAB"):
            yield file.name, file.read_bytes()


def _archive_matrices(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each .mat file in the folder cars. The other files of the archive are skipped."""

    def wanted(name: str) -> bool:
        inside = PurePosixPath(name)
        return inside.parent.name == "cars" and inside.suffix == ".mat" and not inside.name.startswith(".")

    for name, file in read_tar_files(path, wanted):
        yield PurePosixPath(name).name, file.getvalue()


def _read_views(path: Path, content: bytes) -> ByteArray:
    """Return the images of one car, of shape (24 * 4, 128, 128, 3). The elevation varies fastest."""
    return (
        mat.read_array(path, content, "im", MATRIX)
        .transpose(3, 4, 0, 1, 2)
        .reshape(-1, SOURCE_PIXELS, SOURCE_PIXELS, 3)
    )
