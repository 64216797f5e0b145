"""Images, labels and files for tests of users' own data."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from unbraid.data.own.arrays import OwnData
from unbraid.noise import mix


def random_pixels(*shape: int, key: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return random uint8 values."""
    count = int(np.prod(shape))
    return mix(torch.arange(key, key + count // 8 + 1)).view(torch.uint8)[:count].reshape(shape).numpy()


def save_image(path: Path, image: np.ndarray[Any, Any] | Image.Image, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    picture.save(path, **options)
    return path


def save_images(folder: Path, *names: str, size: int = 8) -> None:
    for i, name in enumerate(names):
        save_image(folder / name, random_pixels(size, size, key=1000 * i))


def label_rows(data: OwnData) -> list[list[Any]]:
    """Return the given label values of all examples."""
    factors = data.factors(slice(None)).tolist()
    return [[data.values[name][i] for name, i in zip(data.names, row, strict=True)] for row in factors]


def write_csv(folder: Path, text: str, name: str = "labels.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def truncate_to_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def random_vectors(n: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return random_pixels(n, 5).astype(np.float32)


TWO_IMAGES = random_pixels(2, 8, 8)
GRID_FACTORS = np.array(list(itertools.product((10, 20), (-1, 0, 7), range(4))))
