"""Read CelebA from its published files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.data.files.locate import locate_files
from unbraid.data.in_memory import Labelled
from unbraid.data.readers.pictures import file_opener, read_picture
from unbraid.data.readers.verify import REMEDY, Array, convert_read_errors, expect
from unbraid.errors import UserError

ROWS, ATTRIBUTES = 202_599, 40
SOURCE_SIZE = (178, 218)
BLOCK_ROWS = 256
LABELS = {"-1": 0, "1": 1}  # the label for each value in the file of attributes


def celeba(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None, size: int = 64
) -> Labelled:
    """Load CelebA: 202,599 aligned faces with 40 binary attributes as factors.

    The central 178x178 square of each 178x218 picture is resized with a Lanczos filter.

    Args:
        device: Device on which to store the images.
        root: Folder of the published files; see `unbraid.data.load`.
        progress: Called with the finished fraction, from 0 to 1.
        size: Width and height of the images in pixels.

    Returns:
        Images of shape (3, size, size) with 40 factors, each with two values.

    Raises:
        UserError: If files are missing or damaged, or if `size` is less than 1.

    Reference: Liu et al. (2015), arXiv:1411.7766.
    """
    files = locate_files("celeba", root)
    attributes = files.pop("list_attr_celeba.txt")
    (images,) = files.values()
    return read_celeba(images, attributes, size, device=device, progress=progress)


def read_celeba(
    images: Path,
    attributes: Path,
    size: int = 64,
    rows: int = ROWS,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Labelled:
    """Read the pictures in a folder or a zip archive, in the order in which the file of attributes lists them."""
    if size < 1:
        raise UserError(f"The 'size' of celeba must be at least 1. Got {size} instead.")
    names, files, labels = read_attributes(attributes, rows)

    def blocks() -> Iterator[ByteArray]:
        with file_opener(images) as open_file:
            for start in range(0, rows, BLOCK_ROWS):
                part = files[start : start + BLOCK_ROWS]
                yield np.stack([read_picture(images, open_file, name, SOURCE_SIZE, size) for name in part])

    table = cached_table(f"celeba-{size}", [images, attributes], (rows, 3, size, size), blocks, progress)
    return Labelled("celeba", names, [2] * ATTRIBUTES, table.to(device), torch.from_numpy(labels))


def read_attributes(path: Path, rows: int = ROWS) -> tuple[list[str], list[str], Array]:
    """Read the file of attributes.

    Its first line contains the number of pictures, and its second line the names of the 40 attributes. Each of the
    other lines contains the file name of one picture and 40 values, each of which is 1 or -1.

    Returns:
        The names of the attributes, the names of the files, and the labels (0 or 1), int64 of shape (rows, 40).
    """
    files, labels = list[str](), bytearray()
    with convert_read_errors(path, "text"), path.open(encoding="utf-8", errors="replace") as lines:
        expect(path, "first line", str(rows), lines.readline().strip()[:40])
        names = lines.readline().split()
        expect(path, "number of attributes", ATTRIBUTES, len(names))
        for number, line in enumerate(lines, 3):
            name, *words = line.split() or [""]
            if len(words) != ATTRIBUTES or not LABELS.keys() >= set(words):
                raise UserError(
                    f"Line {number} of {path} must contain a file name and {ATTRIBUTES} values 1 or -1. Got a "
                    f"different line instead. {REMEDY}"
                )
            files.append(name)
            labels += bytes(map(LABELS.__getitem__, words))
    expect(path, "number of rows", rows, len(files))
    expect(path, "number of distinct file names", rows, len(set(files)))
    return names, files, np.frombuffer(labels, np.uint8).reshape(rows, ATTRIBUTES).astype(np.int64)
