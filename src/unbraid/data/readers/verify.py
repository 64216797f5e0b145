"""What every reader demands of a file, and the one form of its refusals."""

from __future__ import annotations

import contextlib
import io
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from unbraid.errors import UserError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Stream: TypeAlias = io.BufferedIOBase  # an open file, or a member of an archive

PIECE = 1 << 24  # bytes read at once
REMEDY = "Check that it is the published file, or download it again."
KINDS = {"iu": "integers", "u": "unsigned integers", "f": "floating-point numbers"}
# All that the decoders of Python, numpy, Pillow and h5py were seen to raise on damaged files.
FAILURES = (
    *(EOFError, LookupError, OSError, RuntimeError, SyntaxError, ValueError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


@contextlib.contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """The errors of a decoder as a refusal."""
    try:
        yield
    except FAILURES as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"{path} must be a whole {kind} file. Reading it failed: {reason}. {REMEDY}") from error


def expect(path: Path, what: str, expected: object, found: object) -> None:
    """Refuse `path` where `found` is not as published."""
    if found != expected:
        raise UserError(f"The {what} of {path} must be {_shown(expected)}. Got {_shown(found)} instead. {REMEDY}")


def expect_below(path: Path, what: str, size: int, found: Array) -> None:
    """Refuse `path` where one of the whole numbers `found` is not in 0 .. size - 1."""
    outside = found[(found < 0) | (found >= size)]
    if len(outside):
        raise UserError(f"The {what} of {path} must lie in 0..{size - 1}. Got {outside[0]} instead. {REMEDY}")


def expect_numbers(path: Path, key: str, kinds: str, found: np.dtype[Any]) -> None:
    """Refuse `path` where an array is not of one of numpy's `kinds`."""
    if found.kind not in kinds:
        raise UserError(f"The numbers of {key!r} of {path} must be {KINDS[kinds]}. Got {found} instead. {REMEDY}")


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def exactly(stream: Stream, size: int) -> bytes:
    """The next `size` bytes, or EOFError; a stream may give fewer at a time."""
    pieces, missing = [], size
    while missing:
        piece = stream.read(missing)
        if not piece:
            raise EOFError(f"it ends {missing:,} bytes early, after {size - missing:,} of {size:,}")
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def at_end(stream: Stream) -> None:
    """Nothing may follow; asking also makes a compressed stream compare its checksum."""
    if stream.read(1):
        raise EOFError("bytes follow where the data must end")


def rows_of(stream: Stream, shape: tuple[int, ...]) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    """The bytes of a stream as blocks of rows of `shape`, up to its end."""
    width = math.prod(shape[1:])
    step = max(1, PIECE // width)
    for start in range(0, shape[0], step):
        rows = min(step, shape[0] - start)
        yield np.frombuffer(exactly(stream, rows * width), np.uint8).reshape(rows, *shape[1:])
    at_end(stream)


def check_grid(path: Path, what: str, found: Array, values: Sequence[Array]) -> None:
    """Refuse labels that are not the grid of `values` in C order, the last factor fastest; every row is looked at."""
    sizes = [len(column) for column in values]
    wrong = np.zeros(len(found), bool)
    for j, column in enumerate(values):
        expected = np.repeat(column, math.prod(sizes[j + 1 :]))
        wrong |= ~np.isclose(found[:, j].reshape(-1, len(expected)), expected, rtol=0, atol=1e-3).ravel()
    if wrong.any():
        row = int(wrong.argmax())
        place = np.unravel_index(row, sizes)
        expect(
            path, f"{what} in row {row:,}", _row([v[i] for v, i in zip(values, place, strict=True)]), _row(found[row])
        )


def _row(values: Any) -> str:
    return "[" + " ".join(f"{float(value):.4g}" for value in values) + "]"
