"""Read small NORB from its published files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.data.files.locate import locate_files
from unbraid.data.in_memory import ByteImages, Labelled
from unbraid.data.readers.binary import read_norb_blocks, read_norb_integers
from unbraid.data.readers.verify import Array, expect, expect_below
from unbraid.data.resizing import resize_images
from unbraid.errors import UserError

NAMES = ("category", "instance", "elevation", "azimuth", "lighting")
SIZES = (5, 10, 9, 18, 6)  # sizes of the full grid, which has one image per combination
INSTANCE, AZIMUTHS = NAMES.index("instance"), SIZES[3]
PARTS = {"training": (4, 6, 7, 8, 9), "testing": (0, 1, 2, 3, 5)}  # instances in the files of each part
SOURCE_PIXELS, PIXELS = 96, 64
GRID_NAME = "smallnorb?instance=factor"


class ToyPhotographs(Labelled):
    """Photographs of toys. The instance, which identifies a toy within its category, is not a factor.

    Attributes:
        instance: Index of the toy within its category, from 0 to 9.
    """

    grid_name = GRID_NAME
    instance: Int[Tensor, " n"]

    def to(self, device: str | torch.device) -> ToyPhotographs:
        """Return the same data on a different device."""
        moved = super().to(device)
        assert isinstance(moved, ToyPhotographs)
        moved.instance = self.instance.to(device)
        return moved


def smallnorb(
    device: str | torch.device = "cpu",
    root: str | Path | None = None,
    progress: Progress | None = None,
    instance: str = "hidden",
) -> ToyPhotographs | ByteImages:
    """Load small NORB: 48,600 grey photographs of 50 toys, with 64x64 pixels.

    The images of the left camera are resized from 96x96 with a Lanczos filter. The published azimuths 0, 2, ..., 34 are
    halved. Each category has 10 instances, which are different toys. By default the instance is not a factor, as in
    arXiv:1811.12359. The data then have the factors category, elevation, azimuth and lighting, with ten images per
    combination, and the training images come first. ``smallnorb?instance=factor`` makes the instance the second factor.
    The images are then a full grid of 5 x 10 x 9 x 18 x 6 combinations. Methods that train on pairs need a full grid.
    Reference: LeCun, Huang and Bottou (2004), doi:10.1109/CVPR.2004.1315150; used as in arXiv:1811.12359.
    """
    if instance not in ("hidden", "factor"):
        raise UserError(f"The option 'instance' of smallnorb must be hidden or factor. Got {instance!r} instead.")
    files = locate_files("smallnorb", root)
    read = read_smallnorb if instance == "hidden" else read_smallnorb_grid
    return read(files, device=device, progress=progress)


def read_smallnorb(
    files: Mapping[str, Path],
    rows: int = math.prod(SIZES) // 2,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> ToyPhotographs:
    """Read the files dat, cat and info of the training images and of the test images. The files may be compressed."""
    labels = _read_all_labels(files, rows)
    table = _read_images(files, rows, progress).to(device)
    names, sizes = (NAMES[0], *NAMES[INSTANCE + 1 :]), (SIZES[0], *SIZES[INSTANCE + 1 :])
    factors = torch.from_numpy(np.delete(labels, INSTANCE, axis=1))
    data = ToyPhotographs("smallnorb", names, sizes, table, factors)
    data.categorical, data.cyclic = NAMES[:1], {"azimuth": AZIMUTHS}
    data.instance = torch.from_numpy(labels[:, INSTANCE].copy()).to(device)
    return data


def read_smallnorb_grid(
    files: Mapping[str, Path],
    sizes: tuple[int, ...] = SIZES,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> ByteImages:
    """Read the same files as `read_smallnorb`, and order the images by their labels, so that they are a full grid."""
    labels = _read_all_labels(files, math.prod(sizes) // 2, sizes)
    order = np.lexsort(labels.T[::-1])  # labels are distinct and in range, so the sorted labels are the grid in C order
    table = _read_images(files, math.prod(sizes) // 2, progress)[torch.from_numpy(order)].to(device)
    data = ByteImages(GRID_NAME, NAMES, sizes, (1, PIXELS, PIXELS), table)
    data.categorical, data.cyclic = NAMES[: INSTANCE + 1], {"azimuth": AZIMUTHS}
    return data


def _read_images(files: Mapping[str, Path], rows: int, progress: Progress | None) -> Tensor:
    """Return the images of both parts, uint8 of shape (2 * rows, 1, 64, 64), with the training images first."""

    def blocks() -> Iterator[ByteArray]:
        for part in PARTS:
            for pairs in read_norb_blocks(_find_file(files, part, "dat"), (rows, 2, SOURCE_PIXELS, SOURCE_PIXELS)):
                yield resize_images(pairs[:, 0], PIXELS)[:, None]

    sources = [_find_file(files, part, "dat") for part in PARTS]
    return cached_table("smallnorb", sources, (2 * rows, 1, PIXELS, PIXELS), blocks, progress)


def _find_file(files: Mapping[str, Path], part: str, kind: str) -> Path:
    return next(path for name, path in files.items() if f"-{part}-{kind}.mat" in name)


def _read_all_labels(files: Mapping[str, Path], rows: int, sizes: tuple[int, ...] = SIZES) -> Array:
    """Read the labels of both parts, of shape (2 * rows, 5). Raise a UserError if two images have the same labels."""
    parts = {part: _read_labels(files, part, rows, sizes) for part in PARTS}
    labels = np.concatenate(list(parts.values()))
    distinct = len(np.unique(labels, axis=0))
    expect(_find_file(files, "training", "info"), "number of distinct labels in both parts", len(labels), distinct)
    for part, found in parts.items():
        wrong = set(found[:, INSTANCE].tolist()) - set(PARTS[part])
        expect(_find_file(files, part, "info"), "number of instances of the other part", 0, len(wrong))
    return labels


def _read_labels(files: Mapping[str, Path], part: str, rows: int, sizes: tuple[int, ...]) -> Array:
    """Read the labels of one part. There is one column for each name in `NAMES`, in the same order."""
    category = read_norb_integers(_find_file(files, part, "cat"), (rows,))
    instance, elevation, azimuth, lighting = read_norb_integers(_find_file(files, part, "info"), (rows, 4)).T
    path = _find_file(files, part, "info")
    expect(path, "number of azimuths that are odd", 0, int((azimuth % 2).sum()))
    labels = np.stack([category, instance, elevation, azimuth // 2, lighting], 1).astype(np.int64)
    for name, size, column in zip(NAMES, sizes, labels.T, strict=True):
        source = _find_file(files, part, "cat") if name == "category" else path
        expect_below(source, f"values of {name}", size, column)
    return labels
