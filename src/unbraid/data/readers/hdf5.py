"""Arrays inside HDF5 files, by h5py where it is installed."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unbraid.data.files.convert import Bytes
from unbraid.data.readers.verify import PIECE, Array, Stream, expect, expect_numbers, reading
from unbraid.errors import UserError

MOST = 1 << 28  # bytes of chunks held at once


@contextlib.contextmanager
def opened(path: Path, content: Stream | None = None) -> Iterator[Any]:
    """The file at `path`, or the one already in memory as `content`."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise UserError(f"Reading {path} needs h5py. Install it: pip install unbraid[files].") from error
    with reading(path, "HDF5"), h5py.File(content or path, "r") as file:
        yield file


def dataset(path: Path, file: Any, key: str, shape: tuple[int, ...], kinds: str) -> Any:
    """The dataset called `key`, of that shape and one of numpy's `kinds`: i, u, f."""
    if key not in file or not hasattr(file[key], "shape"):
        raise UserError(f"{path} must have a dataset {key!r}. Got {', '.join(map(str, file)) or 'none'} instead.")
    found = file[key]
    expect(path, f"shape of {key!r}", shape, tuple(found.shape))
    expect_numbers(path, key, kinds, found.dtype)
    return found


def array(path: Path, key: str, shape: tuple[int, ...], kinds: str) -> Array:
    """A whole dataset."""
    with opened(path) as file:
        values: Array = dataset(path, file, key, shape, kinds)[()]
        return values


def blocks(path: Path, key: str, shape: tuple[int, ...]) -> Iterator[Bytes]:
    """The rows of a byte dataset of that shape, in whole chunks of the file, so that none is inflated twice."""
    with opened(path) as file:
        found = dataset(path, file, key, shape, "u")
        expect(path, f"type of {key!r}", "uint8", str(found.dtype))
        width, chunk = math.prod(shape[1:]), found.chunks[0] if found.chunks else 1
        step = max(1, min(chunk * max(1, PIECE // (chunk * width)), MOST // width))
        for start in range(0, shape[0], step):
            yield found[start : start + step]
