"""The plain binary matrices of MNIST (idx) and of small NORB, gzipped or not."""

from __future__ import annotations

import contextlib
import gzip
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unbraid.data.files.convert import Bytes
from unbraid.data.readers.verify import Stream, at_end, exactly, expect, reading, rows_of

IDX_BYTES = 0x08
NORB_BYTES, NORB_INTEGERS = 0x1E3D4C55, 0x1E3D4C54


@contextlib.contextmanager
def unzipped(path: Path, kind: str) -> Iterator[Stream]:
    """The bytes of a file, of its content where it is gzipped; told by its first two bytes, not by its name."""
    with reading(path, kind), path.open("rb") as file:
        gzipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not gzipped:
            yield file
            return
        with gzip.open(file) as content:
            yield content


def idx(path: Path, shape: tuple[int, ...]) -> Bytes:
    """A byte array of that shape: two zeros, the type 8, the number of dimensions, the dimensions big-endian, the data.

    Reference: LeCun, Cortes and Burges (1998), THE MNIST DATABASE, file formats.
    """
    with unzipped(path, "idx") as stream:
        expect(path, "magic number", f"0x{IDX_BYTES << 8 | len(shape):08x}", f"0x{_word(stream, '>'):08x}")
        expect(path, "shape", shape, tuple(_word(stream, ">") for _ in shape))
        values = np.frombuffer(exactly(stream, math.prod(shape)), np.uint8).reshape(shape)
        at_end(stream)
        return values


def norb_integers(path: Path, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """An int32 matrix of small NORB of that shape."""
    with unzipped(path, "small NORB") as stream:
        _norb_header(path, stream, NORB_INTEGERS, shape)
        values = np.frombuffer(exactly(stream, 4 * math.prod(shape)), "<i4").reshape(shape)
        at_end(stream)
        return values


def norb_blocks(path: Path, shape: tuple[int, ...]) -> Iterator[Bytes]:
    """The rows of a byte matrix of small NORB of that shape, some at a time."""
    with unzipped(path, "small NORB") as stream:
        _norb_header(path, stream, NORB_BYTES, shape)
        yield from rows_of(stream, shape)


def _norb_header(path: Path, stream: Stream, magic: int, shape: tuple[int, ...]) -> None:
    """Little-endian words: the magic number, the number of dimensions, and the dimensions, three at least."""
    expect(path, "magic number", f"0x{magic:08x}", f"0x{_word(stream, '<'):08x}")
    expect(path, "number of dimensions", len(shape), _word(stream, "<"))
    expect(path, "shape", shape, tuple(_word(stream, "<") for _ in range(max(3, len(shape))))[: len(shape)])


def _word(stream: Stream, order: str) -> int:
    word: int = struct.unpack(f"{order}I", exactly(stream, 4))[0]
    return word
