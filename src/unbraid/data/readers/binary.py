"""Read the binary arrays of MNIST (idx format) and of small NORB. The files may be compressed with gzip."""

from __future__ import annotations

import contextlib
import gzip
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unbraid.data.files.convert import ByteArray
from unbraid.data.readers.verify import Stream, convert_read_errors, expect, expect_end, read_exactly, read_rows

IDX_BYTES = 0x08  # type code of uint8 arrays in idx files
NORB_BYTES, NORB_INTEGERS = 0x1E3D4C55, 0x1E3D4C54  # magic numbers of uint8 and int32 arrays in files of small NORB


@contextlib.contextmanager
def open_and_decompress(path: Path, kind: str) -> Iterator[Stream]:
    """Open a file, and decompress it if its first two bytes are those of a gzip file."""
    with convert_read_errors(path, kind), path.open("rb") as file:
        gzipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not gzipped:
            yield file
            return
        with gzip.open(file) as content:
            yield content


def read_idx(path: Path, shape: tuple[int, ...]) -> ByteArray:
    """Read a uint8 array of `shape` from an idx file.

    The format consists of two zero bytes, the type code 8, the number of dimensions, the dimensions as big-endian
    32-bit integers, and the data.

    Reference: LeCun, Cortes and Burges (1998), THE MNIST DATABASE, file formats.
    """
    with open_and_decompress(path, "idx") as stream:
        expect(path, "magic number", f"0x{IDX_BYTES << 8 | len(shape):08x}", f"0x{_read_word(stream, '>'):08x}")
        expect(path, "shape", shape, tuple(_read_word(stream, ">") for _ in shape))
        values = np.frombuffer(read_exactly(stream, math.prod(shape)), np.uint8).reshape(shape)
        expect_end(stream)
        return values


def read_norb_integers(path: Path, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Read an int32 array of `shape` from a file of small NORB."""
    with open_and_decompress(path, "small NORB") as stream:
        _check_norb_header(path, stream, NORB_INTEGERS, shape)
        values = np.frombuffer(read_exactly(stream, 4 * math.prod(shape)), "<i4").reshape(shape)
        expect_end(stream)
        return values


def read_norb_blocks(path: Path, shape: tuple[int, ...]) -> Iterator[ByteArray]:
    """Read a uint8 array of `shape` from a file of small NORB, and yield its rows in blocks."""
    with open_and_decompress(path, "small NORB") as stream:
        _check_norb_header(path, stream, NORB_BYTES, shape)
        yield from read_rows(stream, shape)


def _check_norb_header(path: Path, stream: Stream, magic: int, shape: tuple[int, ...]) -> None:
    """Check the header of a file of small NORB.

    The header consists of little-endian 32-bit integers: the magic number, the number of dimensions, and the
    dimensions. At least three dimensions are stored, even if the array has fewer.
    """
    expect(path, "magic number", f"0x{magic:08x}", f"0x{_read_word(stream, '<'):08x}")
    expect(path, "number of dimensions", len(shape), _read_word(stream, "<"))
    expect(path, "shape", shape, tuple(_read_word(stream, "<") for _ in range(max(3, len(shape))))[: len(shape)])


def _read_word(stream: Stream, order: str) -> int:
    word: int = struct.unpack(f"{order}I", read_exactly(stream, 4))[0]
    return word
