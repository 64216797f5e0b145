"""Read MNIST and Fashion-MNIST from their published files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.data.files.locate import locate_files
from unbraid.data.in_memory import Labelled
from unbraid.data.moving import move_images
from unbraid.data.readers.binary import read_idx
from unbraid.data.readers.verify import expect_below
from unbraid.errors import UserError, unknown_name_message

PARTS = {"train": 60_000, "t10k": 10_000}
PIXELS, CLASSES = 28, 10
RANGES = {"all": slice(None), "train": slice(0, 60_000), "test": slice(60_000, None)}


def mnist(
    device: str | torch.device = "cpu",
    root: str | Path | None = None,
    progress: Progress | None = None,
    pad: int = 2,
    part: str = "all",
    turn: int = 0,
    shift: int = 0,
) -> Labelled:
    """Load MNIST: 70,000 handwritten digits, with the 60,000 training images first.

    Args:
        device: Device on which to store the images.
        root: Folder of the published files; see `unbraid.data.load`.
        progress: Called with the finished fraction, from 0 to 1.
        pad: Number of black pixels added on each side. The default is 2, because the convolutional networks accept
            32x32 but not 28x28 images.
        part: "all", "train" or "test".
        turn: Largest rotation in degrees. Each image is rotated by a fixed random angle (see `unbraid.data.moving`).
        shift: Largest shift in percent of the side of the image. Each image is shifted by a fixed random amount.

    Returns:
        Images of shape (1, 28 + 2 pad, 28 + 2 pad) with one factor of ten classes. If `turn` or `shift` is not 0, the
        factors `turn`, `right` and `down` follow.

    Raises:
        UserError: If files are missing or damaged, or if an argument is out of range.

    Reference: LeCun et al. (1998), doi:10.1109/5.726791.
    """
    data = read_mnist("mnist", "digit", locate_files("mnist", root), pad=pad, progress=progress)
    return select_and_move(data, part, turn, shift).to(device)


def fashion_mnist(
    device: str | torch.device = "cpu",
    root: str | Path | None = None,
    progress: Progress | None = None,
    pad: int = 2,
    part: str = "all",
    turn: int = 0,
    shift: int = 0,
) -> Labelled:
    """Load Fashion-MNIST: 70,000 images of ten kinds of garments, with the 60,000 training images first.

    Args:
        device: Device on which to store the images.
        root: Folder of the published files; see `unbraid.data.load`.
        progress: Called with the finished fraction, from 0 to 1.
        pad: Number of black pixels added on each side. The default is 2, because the convolutional networks accept
            32x32 but not 28x28 images.
        part: "all", "train" or "test".
        turn: Largest rotation in degrees. Each image is rotated by a fixed random angle (see `unbraid.data.moving`).
        shift: Largest shift in percent of the side of the image. Each image is shifted by a fixed random amount.

    Returns:
        Images of shape (1, 28 + 2 pad, 28 + 2 pad) with one factor of ten classes. If `turn` or `shift` is not 0, the
        factors `turn`, `right` and `down` follow.

    Raises:
        UserError: If files are missing or damaged, or if an argument is out of range.

    Reference: Xiao, Rasul and Vollgraf (2017), arXiv:1708.07747.
    """
    data = read_mnist("fashion_mnist", "kind", locate_files("fashion_mnist", root), pad=pad, progress=progress)
    return select_and_move(data, part, turn, shift).to(device)


def select_and_move(data: Labelled, part: str, turn: int, shift: int) -> Labelled:
    """Select one part of the data, and rotate and shift the images if `turn` or `shift` is not 0.

    The rotation and shift of an image do not depend on `part`.
    """
    if part not in RANGES:
        raise UserError(unknown_name_message("part of " + data.name, part, RANGES))
    images = move_images(data, turn, shift / 100) if turn or shift else data
    return images if part == "all" else images.select_rows(RANGES[part])


def read_mnist(
    name: str,
    factor: str,
    files: Mapping[str, Path],
    parts: Mapping[str, int] = PARTS,
    pad: int = 2,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Labelled:
    """Read the images and labels of the training data ("train") and the test data ("t10k") from four idx files.

    The files may be compressed with gzip.
    """
    images, labels = _files_of_kind(files, "images"), _files_of_kind(files, "labels")
    n, width = sum(parts.values()), PIXELS + 2 * pad
    classes = np.concatenate([read_idx(labels[part], (count,)) for part, count in parts.items()])
    for path, values in zip(labels.values(), np.split(classes, np.cumsum(list(parts.values()))[:-1]), strict=True):
        expect_below(path, "labels", CLASSES, values)

    def blocks() -> Iterator[ByteArray]:
        for part, count in parts.items():
            rows = read_idx(images[part], (count, PIXELS, PIXELS))
            yield np.pad(rows, ((0, 0), (pad, pad), (pad, pad)))[:, None]

    table = cached_table(f"{name}-{width}", list(images.values()), (n, 1, width, width), blocks, progress)
    return Labelled(name, [factor], [CLASSES], table.to(device), torch.from_numpy(classes.astype(np.int64))[:, None])


def _files_of_kind(files: Mapping[str, Path], what: str) -> dict[str, Path]:
    found = {name.split("-")[0]: path for name, path in files.items() if f"-{what}-" in name}
    return {part: found[part] for part in PARTS}
