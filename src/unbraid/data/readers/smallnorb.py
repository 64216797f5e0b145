"""Read small NORB from its published files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.data.files.locate import locate_files
from unbraid.data.in_memory import Labelled
from unbraid.data.readers.binary import read_norb_blocks, read_norb_integers
from unbraid.data.readers.verify import Array, expect, expect_below
from unbraid.data.resizing import resize_images

NAMES = ("category", "elevation", "azimuth", "lighting")
SIZES = (5, 9, 18, 6)
INSTANCES = 10
PARTS = ("training", "testing")
ROWS = 24_300  # number of images in each part
SOURCE_PIXELS, PIXELS = 96, 64


class ToyPhotographs(Labelled):
    """Photographs of toys.

    Attributes:
        instance: Index of the toy within its category, from 0 to 9. It is not a factor.
    """

    instance: Int[Tensor, " n"]

    def to(self, device: str | torch.device) -> ToyPhotographs:
        """Return the same data on a different device."""
        moved = super().to(device)
        assert isinstance(moved, ToyPhotographs)
        moved.instance = self.instance.to(device)
        return moved


def smallnorb(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ToyPhotographs:
    """Load small NORB: 48,600 grey photographs 64x64 of 50 toys, with the training images first.

    The images of the left camera are resized from 96x96 with a Lanczos filter. The published azimuths 0, 2, ..., 34 are
    halved. Each combination of category, elevation, azimuth and lighting has ten images, one per instance.
    Reference: LeCun, Huang and Bottou (2004), doi:10.1109/CVPR.2004.1315150; used as in arXiv:1811.12359.
    """
    return read_smallnorb(locate_files("smallnorb", root), device=device, progress=progress)


def read_smallnorb(
    files: Mapping[str, Path], rows: int = ROWS, device: str | torch.device = "cpu", progress: Progress | None = None
) -> ToyPhotographs:
    """Read the files dat, cat and info of the training images and of the test images. The files may be compressed."""
    labels = np.concatenate([_read_labels(files, part, rows) for part in PARTS])
    distinct = len(np.unique(labels, axis=0))
    expect(_find_file(files, PARTS[0], "info"), "number of distinct labels in both parts", len(labels), distinct)

    def blocks() -> Iterator[ByteArray]:
        for part in PARTS:
            for pairs in read_norb_blocks(_find_file(files, part, "dat"), (rows, 2, SOURCE_PIXELS, SOURCE_PIXELS)):
                yield resize_images(pairs[:, 0], PIXELS)[:, None]

    sources = [_find_file(files, part, "dat") for part in PARTS]
    table = cached_table("smallnorb", sources, (2 * rows, 1, PIXELS, PIXELS), blocks, progress).to(device)
    data = ToyPhotographs("smallnorb", NAMES, SIZES, table, torch.from_numpy(labels[:, :-1].copy()))
    data.instance = torch.from_numpy(labels[:, -1].copy()).to(device)
    return data


def _find_file(files: Mapping[str, Path], part: str, kind: str) -> Path:
    return next(path for name, path in files.items() if f"-{part}-{kind}.mat" in name)


def _read_labels(files: Mapping[str, Path], part: str, rows: int) -> Array:
    """Read the labels of one part. The columns are category, elevation, azimuth, lighting and instance."""
    category = read_norb_integers(_find_file(files, part, "cat"), (rows,))
    instance, elevation, azimuth, lighting = read_norb_integers(_find_file(files, part, "info"), (rows, 4)).T
    path = _find_file(files, part, "info")
    expect(path, "number of azimuths that are odd", 0, int((azimuth % 2).sum()))
    labels = np.stack([category, elevation, azimuth // 2, lighting, instance], 1).astype(np.int64)
    for name, size, column in zip((*NAMES, "instance"), (*SIZES, INSTANCES), labels.T, strict=True):
        source = _find_file(files, part, "cat") if name == "category" else path
        expect_below(source, f"values of {name}", size, column)
    return labels
