"""Parsers for the values of flags: a number in a range, a list or a range of numbers, a file, and a folder.

Every value is checked before anything is computed, so that a mistake costs no time and no memory.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unbraid.errors import UserError

MAX_VALUES = 100_000  # maximum number of values of one flag
MAX_NUMBER = 2**63 - 1
MAX_EXAMPLES = 10_000_000
MAX_JOBS = 1024


def parse_integers(text: str) -> list[int]:
    """Parse `3`, `0,2,5`, `0-4` (which includes both ends), or a comma-separated list of these.

    >>> parse_integers("0-2,7")
    [0, 1, 2, 7]
    """
    return _parse_parts(text, int)


def parse_numbers(text: str) -> list[float]:
    """Parse `4`, `1,4,16`, `1-4` (steps of 1), `0:1:5` (first, last, count), or a comma-separated list of these.

    >>> parse_numbers("0:1:3,1e-4")
    [0.0, 0.5, 1.0, 0.0001]
    """
    return [float(value) for value in _parse_parts(text, float)]


def parse_words(text: str) -> list[str]:
    """Parse a comma-separated list such as `weighted,stratified`."""
    return text.split(",")


def parse_text(text: str) -> list[str]:
    """Parse a single text, such as the path of a file."""
    return [text]


def argument_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Turn the function `parse` into an argparse type whose error messages are shown to the user unchanged."""

    def parse_argument(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error).rstrip(".")) from None

    return parse_argument


def whole_number(low: int = 0, high: int = MAX_NUMBER) -> Callable[[str], int]:
    """Return an argparse type for whole numbers from `low` to `high`.

    >>> whole_number(1, 8)("3")
    3
    """

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise UserError(f"must be a whole number from {low} to {high}. Got {text!r} instead")
        return value

    return argument_type(parse)


def finite_number(low: float) -> Callable[[str], float]:
    """Return an argparse type for finite numbers of at least `low`.

    >>> finite_number(low=0)("1e-4")
    0.0001
    """

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= low):
            raise UserError(f"must be a finite number of at least {low:g}. Got {text!r} instead")
        return value

    return argument_type(parse)


def _parse_path(text: str) -> Path:
    """Parse a path, which must not be empty."""
    if not text or "\0" in text:
        raise UserError(f"must be a path. Got {text!r} instead")
    return Path(text)


def _parse_file_to_write(text: str) -> Path:
    """Parse the path of a file to write. Its folder must not be a file, and the path must not be a folder."""
    path = _parse_path(text)
    try:
        if path.is_dir():
            raise UserError(f"must be a file. Got the folder {text!r} instead")
        above = next(folder for folder in path.parents if folder.exists())
    except OSError as error:
        raise UserError(f"must be a file that can be written. Got {text!r}: {error.strerror}") from None
    if not above.is_dir():
        raise UserError(f"must be a file in a folder. Got {text!r}, but {above} is a file")
    return path


path = argument_type(_parse_path)
file_to_write = argument_type(_parse_file_to_write)


def _parse_parts(text: str, kind: Callable[[str], Any]) -> list[Any]:
    """Parse a comma-separated list of values and ranges, of at most `MAX_VALUES` values."""
    values: list[Any] = []
    for part in text.split(","):
        values += _parse_part(part, kind)
        _check_count(len(values), text)
    return values


def _check_count(count: int, text: str) -> None:
    """Raise an error if a flag has too many values."""
    if count > MAX_VALUES:
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        raise UserError(f"A flag must have at most {MAX_VALUES:,} values. Got {shown!r} instead.")


def _parse_part(part: str, kind: Callable[[str], Any]) -> list[Any]:
    try:
        steps = re.fullmatch(r"(\d+)-(\d+)", part)
        if steps:
            return _parse_range(int(steps[1]), int(steps[2]), part)
        spaced = re.fullmatch(r"([^:]+):([^:]+):([1-9]\d*)", part)
        if spaced and kind is float:
            _check_count(int(spaced[3]), part)
            import numpy as np  # imported here, because `unbraid --help` does not need it

            return [float(v) for v in np.linspace(float(spaced[1]), float(spaced[2]), int(spaced[3]))]
        return [_check_size(kind(part), part)]
    except UserError:
        raise
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise UserError(f"{part!r} is not {what}, a comma-separated list, or a range such as 0-4.") from None


def _parse_range(low: int, high: int, part: str) -> list[int]:
    """Return all whole numbers from `low` to `high`."""
    if low > high:
        raise UserError(f"A range must be increasing. Got {part!r} instead. Write {high}-{low}.")
    _check_count(high - low + 1, part)
    return list(range(low, _check_size(high, part) + 1))


def _check_size(value: Any, part: str) -> Any:
    """Return a number, or raise an error if it is a whole number that does not fit into 64 bits."""
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        raise UserError(f"A number must be at most {MAX_NUMBER}. Got {part!r} instead.")
    return value
