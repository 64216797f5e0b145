"""Arrays inside .npz files, streamed out of the archive; objects are never unpickled."""

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

from unbraid.data.files.convert import Bytes
from unbraid.data.readers.verify import Array, Stream, at_end, exactly, expect, expect_numbers, reading, rows_of
from unbraid.errors import UserError

VERSIONS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


@dataclass(frozen=True)
class Member:
    """One array of an archive: its header, and the stream of its bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    stream: Stream


@contextlib.contextmanager
def member(path: Path, key: str) -> Iterator[Member]:
    """The array called `key`, its length compared with its header before anything is read."""
    with reading(path, "npz"), zipfile.ZipFile(path) as archive:
        keys = [name.removesuffix(".npy") for name in archive.namelist()]
        if key not in keys:
            raise UserError(f"{path} must have an array {key!r}. Got {', '.join(keys) or 'none'} instead.")
        info = archive.getinfo(f"{key}.npy")
        with archive.open(info) as stream:
            found = _header(path, key, cast(Stream, stream))
            size = stream.tell() + math.prod(found.shape) * found.dtype.itemsize
            expect(path, f"length in bytes of {key!r}", size, info.file_size)
            yield found


def _header(path: Path, key: str, stream: Stream) -> Member:
    version = npy.read_magic(stream)
    if version not in VERSIONS:
        raise UserError(f"its array {key!r} is in version {version} of the format")
    shape, fortran, dtype = VERSIONS[version](stream)
    if dtype.hasobject or fortran:
        kind = "Python objects" if dtype.hasobject else "Fortran order"
        raise UserError(f"The array {key!r} of {path} must be plain numbers in C order. Got {kind} instead.")
    return Member(shape, dtype, stream)


def keys(path: Path) -> list[str]:
    """The names of the arrays."""
    with reading(path, "npz"), zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def shape_of(path: Path, key: str) -> tuple[int, ...]:
    """The shape in the header."""
    with member(path, key) as found:
        return found.shape


def array(path: Path, key: str, shape: tuple[int, ...], kinds: str) -> Array:
    """A whole array of that shape and one of numpy's `kinds`: i, u, f."""
    with member(path, key) as found:
        expect(path, f"shape of {key!r}", shape, found.shape)
        expect_numbers(path, key, kinds, found.dtype)
        values = np.frombuffer(exactly(found.stream, math.prod(shape) * found.dtype.itemsize), found.dtype)
        at_end(found.stream)
        return values.reshape(shape)


def blocks(path: Path, key: str, shape: tuple[int, ...]) -> Iterator[Bytes]:
    """The rows of a byte array of that shape, some at a time."""
    with member(path, key) as found:
        expect(path, f"shape of {key!r}", shape, found.shape)
        expect(path, f"type of {key!r}", "uint8", str(found.dtype))
        yield from rows_of(found.stream, shape)
