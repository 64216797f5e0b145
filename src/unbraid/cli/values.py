"""Parsers for the values of flags: a single value, a comma-separated list, or a range."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from unbraid.errors import UserError


def parse_integers(text: str) -> list[int]:
    """Parse `3`, `0,2,5`, `0-4` (which includes both ends), or a comma-separated list of these.

    >>> parse_integers("0-2,7")
    [0, 1, 2, 7]
    """
    return [value for part in text.split(",") for value in _parse_part(part, int)]


def parse_numbers(text: str) -> list[float]:
    """Parse `4`, `1,4,16`, `1-4` (steps of 1), `0:1:5` (first, last, count), or a comma-separated list of these.

    >>> parse_numbers("0:1:3,1e-4")
    [0.0, 0.5, 1.0, 0.0001]
    """
    return [float(value) for part in text.split(",") for value in _parse_part(part, float)]


def parse_words(text: str) -> list[str]:
    """Parse a comma-separated list such as `weighted,stratified`."""
    return text.split(",")


def argument_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Turn the function `parse` into an argparse type whose error messages are shown to the user unchanged."""

    def parse_argument(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse_argument


def _parse_part(part: str, kind: Callable[[str], Any]) -> list[Any]:
    steps = re.fullmatch(r"(\d+)-(\d+)", part)
    if steps:
        low, high = int(steps[1]), int(steps[2])
        if low > high:
            raise UserError(f"A range must be increasing. Got {part!r} instead. Write {high}-{low}.")
        return list(range(low, high + 1))
    try:
        spaced = re.fullmatch(r"([^:]+):([^:]+):([1-9]\d*)", part)
        if spaced and kind is float:
            return [float(v) for v in np.linspace(float(spaced[1]), float(spaced[2]), int(spaced[3]))]
        return [kind(part)]
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise UserError(f"{part!r} is not {what}, a comma-separated list, or a range such as 0-4.") from None
