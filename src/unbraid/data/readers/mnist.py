"""MNIST and Fashion-MNIST from their published files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import Bytes, converted
from unbraid.data.files.locate import locate
from unbraid.data.in_memory import Labelled
from unbraid.data.moving import moved
from unbraid.data.readers.binary import idx
from unbraid.data.readers.verify import expect_below
from unbraid.errors import UserError, unknown

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
    """MNIST: 70,000 handwritten digits, the 60,000 for training first.

    `pad` black pixels are put on every side, for the convolutional networks take 32x32 and not 28x28. `part` is all,
    train or test. With `turn` and `shift` every image is turned by up to so many degrees and shifted by up to so many
    percent of the side, by fixed random amounts (`unbraid.data.moving`).
    Reference: LeCun et al. (1998), doi:10.1109/5.726791.
    """
    data = read_mnist("mnist", "digit", locate("mnist", root), pad=pad, progress=progress)
    return prepared(data, part, turn, shift).to(device)


def fashion_mnist(
    device: str | torch.device = "cpu",
    root: str | Path | None = None,
    progress: Progress | None = None,
    pad: int = 2,
    part: str = "all",
    turn: int = 0,
    shift: int = 0,
) -> Labelled:
    """Fashion-MNIST: 70,000 garments of ten kinds, the 60,000 for training first.

    `pad` black pixels are put on every side, for the convolutional networks take 32x32 and not 28x28. `part` is all,
    train or test. With `turn` and `shift` every image is turned by up to so many degrees and shifted by up to so many
    percent of the side, by fixed random amounts (`unbraid.data.moving`).
    Reference: Xiao, Rasul and Vollgraf (2017), arXiv:1708.07747.
    """
    data = read_mnist("fashion_mnist", "kind", locate("fashion_mnist", root), pad=pad, progress=progress)
    return prepared(data, part, turn, shift).to(device)


def prepared(data: Labelled, part: str, turn: int, shift: int) -> Labelled:
    """A part of the data, or all, moved if asked; movements of an image are the same in the part and in all."""
    if part not in RANGES:
        raise UserError(unknown("part of " + data.name, part, RANGES))
    whole = moved(data, turn, shift / 100) if turn or shift else data
    return whole if part == "all" else whole.rows(RANGES[part])


def read_mnist(
    name: str,
    factor: str,
    files: Mapping[str, Path],
    parts: Mapping[str, int] = PARTS,
    pad: int = 2,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Labelled:
    """The four idx files, gzipped or not: images and labels for training ("train") and testing ("t10k")."""
    images, labels = _files(files, "images"), _files(files, "labels")
    n, width = sum(parts.values()), PIXELS + 2 * pad
    classes = np.concatenate([idx(labels[part], (count,)) for part, count in parts.items()])
    for path, values in zip(labels.values(), np.split(classes, np.cumsum(list(parts.values()))[:-1]), strict=True):
        expect_below(path, "labels", CLASSES, values)

    def blocks() -> Iterator[Bytes]:
        for part, count in parts.items():
            rows = idx(images[part], (count, PIXELS, PIXELS))
            yield np.pad(rows, ((0, 0), (pad, pad), (pad, pad)))[:, None]

    table = converted(f"{name}-{width}", list(images.values()), (n, 1, width, width), blocks, progress)
    return Labelled(name, [factor], [CLASSES], table.to(device), torch.from_numpy(classes.astype(np.int64))[:, None])


def _files(files: Mapping[str, Path], what: str) -> dict[str, Path]:
    found = {name.split("-")[0]: path for name, path in files.items() if f"-{what}-" in name}
    return {part: found[part] for part in PARTS}
