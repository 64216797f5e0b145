"""Checks that several readers use, with uniform error messages."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from unbraid.errors import UserError
from unbraid.runtime.files import refuse_special_file
from unbraid.runtime.read_errors import READ_ERRORS, read_reason

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Stream: TypeAlias = io.BufferedIOBase  # an open file, or a member of an archive

READ_BYTES = 1 << 24  # maximum number of bytes in a block of rows, unless one row is longer
REMEDY = "Check that it is the published file, or download it again."
KINDS = {"iu": "integers", "u": "unsigned integers", "f": "floating-point numbers"}


@contextlib.contextmanager
def convert_read_errors(path: Path, kind: str) -> Iterator[None]:
    """Convert the exceptions that a decoder raises for a damaged file to a UserError. Pipes and devices are refused."""
    try:
        refuse_special_file(path)
        yield
    except UserError:
        raise
    except READ_ERRORS as error:
        raise UserError(
            f"{path} must be a complete {kind} file. Reading it failed: {read_reason(error)}. {REMEDY}"
        ) from error


def expect(path: Path, what: str, expected: object, found: object) -> None:
    """Raise a UserError if the value `found` in the file differs from the expected one."""
    if found != expected:
        raise UserError(
            f"The {what} of {path} must be {_format_value(expected)}. Got {_format_value(found)} instead. {REMEDY}"
        )


def expect_below(path: Path, what: str, size: int, found: Array) -> None:
    """Raise a UserError if any of the integers `found` in the file is not in 0 .. size - 1."""
    outside = found[(found < 0) | (found >= size)]
    if len(outside):
        raise UserError(f"The {what} of {path} must lie in 0..{size - 1}. Got {outside[0]} instead. {REMEDY}")


def expect_numbers(path: Path, key: str, kinds: str, found: np.dtype[Any]) -> None:
    """Raise a UserError if the dtype of the array `key` is not of one of the numpy kinds in `kinds`, such as "iu"."""
    if found.kind not in kinds:
        raise UserError(f"The numbers in {key!r} of {path} must be {KINDS[kinds]}. Got {found} instead. {REMEDY}")


def _format_value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def read_exactly(stream: Stream, size: int) -> bytes:
    """Read `size` bytes, or raise an EOFError if there are fewer.

    Several reads may be necessary, because a single read of a stream may return fewer bytes.
    """
    pieces, missing = [], size
    while missing:
        piece = stream.read(missing)
        if not piece:
            raise EOFError(f"it ends {missing:,} bytes early, after {size - missing:,} of {size:,}")
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def expect_end(stream: Stream) -> None:
    """Raise an EOFError if more bytes follow.

    Reading at the end of a compressed stream also verifies its checksum.
    """
    if stream.read(1):
        raise EOFError("there are more bytes after the end of the data")


def read_rows(stream: Stream, shape: tuple[int, ...]) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    """Read a uint8 table of `shape` from a stream, and yield its rows in blocks.

    The stream must end after the table.
    """
    width = math.prod(shape[1:])
    step = max(1, READ_BYTES // width)
    for start in range(0, shape[0], step):
        rows = min(step, shape[0] - start)
        yield np.frombuffer(read_exactly(stream, rows * width), np.uint8).reshape(rows, *shape[1:])
    expect_end(stream)


def check_grid(path: Path, what: str, found: Array, values: Sequence[Array]) -> None:
    """Raise a UserError unless the labels `found` are all combinations of `values`, in the order of the grid.

    In this order, the last factor varies fastest. Labels may differ from `values` by up to 0.001.
    """
    sizes = [len(column) for column in values]
    wrong = np.zeros(len(found), bool)
    for j, column in enumerate(values):
        expected = np.repeat(column, math.prod(sizes[j + 1 :]))
        wrong |= ~np.isclose(found[:, j].reshape(-1, len(expected)), expected, rtol=0, atol=1e-3).ravel()
    if wrong.any():
        row = int(wrong.argmax())
        index = np.unravel_index(row, sizes)
        expected_row = [column[i] for column, i in zip(values, index, strict=True)]
        expect(path, f"{what} in row {row:,}", _format_row(expected_row), _format_row(found[row]))


def _format_row(values: Any) -> str:
    return "[" + " ".join(f"{float(value):.4g}" for value in values) + "]"
