"""Read arrays from HDF5 files with the optional package h5py."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unbraid.data.files.convert import ByteArray
from unbraid.data.readers.verify import READ_BYTES, Array, Stream, convert_read_errors, expect, expect_numbers
from unbraid.errors import UserError

MAX_BYTES = 1 << 28  # maximum number of bytes that are read at once


@contextlib.contextmanager
def open_hdf5(path: Path, content: Stream | None = None) -> Iterator[Any]:
    """Open the HDF5 file at `path`. If `content` is given, read from it, and use `path` only in error messages."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise UserError(f"Reading {path} needs h5py. To install it, run: pip install unbraid[files]") from error
    with convert_read_errors(path, "HDF5"), h5py.File(content or path, "r") as file:
        yield file


def find_dataset(path: Path, file: Any, key: str, shape: tuple[int, ...], kinds: str) -> Any:
    """Return the HDF5 dataset called `key`, after checking its shape and type.

    `kinds` is a string of the allowed numpy kinds "i", "u" and "f". For example, "iu" allows all integers.
    """
    if key not in file or not hasattr(file[key], "shape"):
        raise UserError(f"{path} must have a dataset {key!r}. Got {', '.join(map(str, file)) or 'none'} instead.")
    found = file[key]
    expect(path, f"shape of {key!r}", shape, tuple(found.shape))
    expect_numbers(path, key, kinds, found.dtype)
    return found


def read_array(path: Path, key: str, shape: tuple[int, ...], kinds: str) -> Array:
    """Read a complete HDF5 dataset, after checking its shape and type as in `find_dataset`."""
    with open_hdf5(path) as file:
        values: Array = find_dataset(path, file, key, shape, kinds)[()]
        return values


def read_blocks(path: Path, key: str, shape: tuple[int, ...]) -> Iterator[ByteArray]:
    """Read a uint8 dataset of `shape`, and yield its rows in blocks.

    If the HDF5 chunks are not too large, a block consists of whole chunks, so that no chunk is decompressed twice.
    """
    with open_hdf5(path) as file:
        found = find_dataset(path, file, key, shape, "u")
        expect(path, f"type of {key!r}", "uint8", str(found.dtype))
        width, chunk = math.prod(shape[1:]), found.chunks[0] if found.chunks else 1
        step = max(1, min(chunk * max(1, READ_BYTES // (chunk * width)), MAX_BYTES // width))
        for start in range(0, shape[0], step):
            yield found[start : start + step]
