"""Read codes and factors from files (.npy, .npz or .csv). Importing this module does not import torch."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unbraid.errors import UserError
from unbraid.metrics.protocol import Array
from unbraid.runtime.read_errors import READ_ERRORS, read_reason

SEPARATORS = ",;\t"  # possible separators of a csv file; the first one that occurs in the first line is used
INTEGER = re.compile(r"[+-]?\d+")
MISSING = ("", "nan", "na", "n/a", "none", "null")  # content of cells without a number, in lower case


class ArrayFile(NamedTuple):
    """A table of numbers that was read from a file.

    Attributes:
        path: The file.
        array: The numbers, (n, d).
        names: The names of the columns, or None if the file has no header.
        remark: How the first row and the first column were read, or "" if there is nothing to say.
    """

    path: Path
    array: Array
    names: tuple[str, ...] | None = None
    remark: str = ""

    def describe(self) -> str:
        """Return one sentence that says what was read."""
        rows, columns = self.array.shape
        return f"read {rows:,} rows and {columns} columns from {self.path}{self.remark}"


def read_arrays(codes: Path, factors: Path, header: bool | None = None) -> tuple[ArrayFile, ArrayFile]:
    """Read codes and factors from two files.

    Args:
        codes: A .npy file, an .npz file that contains a single array or an array called "codes", or a .csv file.
        factors: A file of one of these kinds. The array in an .npz file is called "factors" instead of "codes".
        header: Whether the first row of a .csv file has the names of the columns. By default this is decided as
            follows. A row with a word is a header. A row 0, 1, 2, ... or 1, 2, 3, ... is a header if the numbers below
            it are not all whole, or if the two files would otherwise have different numbers of rows.

    Returns:
        The codes and the factors. A one-dimensional array becomes one column. If the first column of a .csv file has no
        name in the header and contains 0, 1, 2, ..., it is left out. Empty cells are NaN.

    Raises:
        UserError: If a file has another suffix or cannot be read as numbers, if the files have different numbers of
            rows, or if it is not clear whether the first row is a header.
    """
    choices = [_read_choices(path, name, header) for path, name in ((codes, "codes"), (factors, "factors"))]
    equal = [(a, b) for a in choices[0] for b in choices[1] if len(a.array) == len(b.array)]
    if not equal:
        a, b = (files[-1] for files in choices)
        longer = max(a, b, key=lambda file: len(file.array))
        hint = ""
        if abs(len(a.array) - len(b.array)) == 1 and longer.names is None and longer.path.suffix.lower() == ".csv":
            hint = f" If the first row of {longer.path} has the names of its columns, write them as words, such as z10."
        raise UserError(
            f"Codes and factors must have the same number of rows. Got {len(a.array)} and {len(b.array)} instead "
            f"({a.describe()}; {b.describe()}). Row i of both files must belong to the same example.{hint}"
        )
    if len(equal) > 1:
        unclear = next(files[0].path for files in choices if len(files) > 1)
        raise UserError(
            f"It must be clear whether the first row of {unclear} has the names of the columns. Got whole numbers that "
            "count the columns. Pass --header or --no-header."
        )
    return equal[0]


def _read_choices(path: Path, name: str, header: bool | None) -> list[ArrayFile]:
    """Return the possible contents of a file. There are two if it is not clear whether the first row is a header."""
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".npz", ".csv"):
        raise UserError(f"The file with the {name} must be a .npy, .npz or .csv file. Got {path} instead.")
    if not path.exists():
        raise UserError(f"There is no file {path} with the {name}. Check the path.")
    try:
        if not path.is_file():  # a pipe or a device could have no end
            raise UserError("it must be an ordinary file")
        if suffix == ".csv":
            rows = _csv_rows(path)
            found = _has_header(rows) if header is None else header
            return [_csv_table(path, rows, choice) for choice in ([True, False] if found is None else [found])]
        array = _read_npz(path, name) if suffix == ".npz" else _read_npy(path)
        if array.ndim not in (1, 2):
            raise UserError(f"its array must have one or two dimensions, but it has the shape {array.shape}")
    except READ_ERRORS as error:
        raise UserError(
            f"{path} cannot be read as numbers: {read_reason(error)}. Correct the file, or save it again."
        ) from error
    return [ArrayFile(path, array[:, None] if array.ndim == 1 else array)]


def _read_npy(path: Path) -> Array:
    """Return the array of a .npy file. `numpy.load` is not used, because it would also accept an .npz archive."""
    with path.open("rb") as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
    return array


def _read_npz(path: Path, name: str) -> Array:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
        keys = list(content)
        if name not in keys and len(keys) != 1:
            raise UserError(
                f"it must contain one array or one called {name!r}, but it contains {', '.join(keys) or 'none'}"
            )
        key = name if name in keys else keys[0]
        array: Array | bytes = content[key]
        if isinstance(array, bytes):  # numpy returns the bytes of a member that is not an array
            raise UserError(f"its member {key!r} must be an array")
        return array


def _csv_rows(path: Path) -> list[list[str]]:
    """Return the cells of all rows that are not empty."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    mark = next((mark for mark in SEPARATORS if lines and mark in lines[0]), ",")
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=mark) if row]
    if not rows:
        raise UserError("it is empty")
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise UserError(f"all rows must have {len(rows[0])} columns, but row {i + 1} has {len(row)}")
    return rows


def _has_header(rows: Sequence[Sequence[str]]) -> bool | None:
    """Return whether the first row has the names of the columns, or None if that is not clear."""
    first = [cell for cell in rows[0] if cell.lower() not in MISSING]
    if not all(map(_is_number, first)):
        return True
    start = 1 if rows[0][0] == "1" else 0
    counted = [str(j) for j in range(start, start + len(first))]
    if first != counted or len(first) < len(rows[0]) - 1:
        return False
    whole = all(INTEGER.fullmatch(cell) or cell.lower() in MISSING for row in rows[1:] for cell in row)
    if len(first) < len(rows[0]) and rows[0][0] == "":
        return True
    return None if whole else True


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(cell: str, row: int) -> float:
    """Return the number in a cell, or NaN if the cell has none."""
    if cell.lower() in MISSING:
        return np.nan
    if not _is_number(cell):
        raise UserError(f"every cell must be a number or empty, but row {row + 1} has {cell[:60]!r}")
    return float(cell)


def _csv_table(path: Path, rows: Sequence[Sequence[str]], header: bool) -> ArrayFile:
    """Return the numbers of a csv file, without the header and without a first column that counts the rows."""
    body = rows[1:] if header else rows
    if not body:
        raise UserError("it has no rows below the header")
    array = np.array([[_number(cell, i + header) for cell in row] for i, row in enumerate(body)])
    names = tuple(rows[0]) if header else None
    remark = " (the first row is a header)" if header else " (no header)"
    counts_rows = np.array_equal(array[:, 0], np.arange(len(array)))
    if names is not None and names[0] in ("", "Unnamed: 0") and len(names) > 1 and counts_rows:
        array, names = array[:, 1:], names[1:]
        remark = " (the first row is a header; the first column counts the rows and is left out)"
    return ArrayFile(path, array, names, remark)
