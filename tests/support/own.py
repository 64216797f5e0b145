"""What tests of users' own data are made of."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from unbraid.data.own.load import OwnData
from unbraid.noise import mix


def pixels(*shape: int, key: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Bytes without a pattern."""
    count = int(np.prod(shape))
    return mix(torch.arange(key, key + count // 8 + 1)).view(torch.uint8)[:count].reshape(shape).numpy()


def put(path: Path, image: np.ndarray[Any, Any] | Image.Image, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    picture.save(path, **options)
    return path


def fill(folder: Path, *names: str, size: int = 8) -> None:
    for i, name in enumerate(names):
        put(folder / name, pixels(size, size, key=1000 * i))


def rows(data: OwnData) -> list[list[Any]]:
    """The labels of every example as they were given."""
    factors = data.factors(slice(None)).tolist()
    return [[data.values[name][i] for name, i in zip(data.names, row, strict=True)] for row in factors]


def write_csv(folder: Path, text: str, name: str = "labels.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def vectors(n: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return pixels(n, 5).astype(np.float32)


ONE = pixels(2, 8, 8)
CELLS = np.array(list(itertools.product((10, 20), (-1, 0, 7), range(4))))
