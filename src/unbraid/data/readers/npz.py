"""Read arrays from .npz files without loading whole files into memory. Python objects are never unpickled."""

from __future__ import annotations

import contextlib
import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.lib import format as npy

from unbraid.data.files.convert import ByteArray
from unbraid.data.readers.verify import (
    Array,
    Stream,
    convert_read_errors,
    expect,
    expect_end,
    expect_numbers,
    read_exactly,
    read_rows,
)
from unbraid.errors import UserError

VERSIONS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


@dataclass(frozen=True)
class Member:
    """An open array of an archive, with its shape, its type, and a stream of its bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    stream: Stream


@contextlib.contextmanager
def open_array(path: Path, key: str) -> Iterator[Member]:
    """Open the array called `key`, and check that its length matches its header."""
    with convert_read_errors(path, "npz"), zipfile.ZipFile(path) as archive:
        keys = [name.removesuffix(".npy") for name in archive.namelist()]
        if key not in keys:
            raise UserError(f"{path} must have an array {key!r}. Got {', '.join(keys) or 'none'} instead.")
        info = archive.getinfo(f"{key}.npy")
        with archive.open(info) as stream:
            found = read_header(path, key, cast(Stream, stream))
            size = stream.tell() + math.prod(found.shape) * found.dtype.itemsize
            expect(path, f"length in bytes of {key!r}", size, info.file_size)
            yield found


def read_header(path: Path, key: str, stream: Stream) -> Member:
    """Read the header of an array in the .npy format. `key` is the name of the array in error messages."""
    version = npy.read_magic(stream)
    if version not in VERSIONS:
        raise ValueError(f"its array {key!r} has the unsupported format version {version}")
    shape, fortran, dtype = VERSIONS[version](stream)
    if dtype.hasobject or fortran:
        kind = "Python objects" if dtype.hasobject else "Fortran order"
        raise UserError(f"The array {key!r} of {path} must be numbers in C order. Got {kind} instead.")
    return Member(shape, dtype, stream)


def array_names(path: Path) -> list[str]:
    """Return the names of the arrays in the archive."""
    with convert_read_errors(path, "npz"), zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def array_shape(path: Path, key: str) -> tuple[int, ...]:
    """Return the shape of an array, which is read from its header."""
    with open_array(path, key) as found:
        return found.shape


def read_array(path: Path, key: str, shape: tuple[int, ...], kinds: str) -> Array:
    """Read a complete array, after checking its shape and type.

    `kinds` is a string of the allowed numpy kinds "i", "u" and "f". For example, "iu" allows all integers.
    """
    with open_array(path, key) as found:
        expect(path, f"shape of {key!r}", shape, found.shape)
        expect_numbers(path, key, kinds, found.dtype)
        values = np.frombuffer(read_exactly(found.stream, math.prod(shape) * found.dtype.itemsize), found.dtype)
        expect_end(found.stream)
        return values.reshape(shape)


def read_blocks(path: Path, key: str, shape: tuple[int, ...]) -> Iterator[ByteArray]:
    """Read a uint8 array of `shape`, and yield its rows in blocks."""
    with open_array(path, key) as found:
        expect(path, f"shape of {key!r}", shape, found.shape)
        expect(path, f"type of {key!r}", "uint8", str(found.dtype))
        yield from read_rows(found.stream, shape)
