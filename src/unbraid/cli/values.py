"""Values that a flag may hold: one, a comma list, or a range."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from unbraid.errors import UserError


def integers(text: str) -> list[int]:
    """`3`, `0,2,5`, `0-4` (both ends included), and lists of these.

    >>> integers("0-2,7")
    [0, 1, 2, 7]
    """
    return [value for part in text.split(",") for value in _expand(part, int)]


def numbers(text: str) -> list[float]:
    """`4`, `1,4,16`, `1-4` (whole steps), `0:1:5` (from, to, how many), and lists of these.

    >>> numbers("0:1:3,1e-4")
    [0.0, 0.5, 1.0, 0.0001]
    """
    return [float(value) for part in text.split(",") for value in _expand(part, float)]


def words(text: str) -> list[str]:
    """`weighted,stratified`."""
    return text.split(",")


def _expand(part: str, kind: Callable[[str], Any]) -> list[Any]:
    steps = re.fullmatch(r"(\d+)-(\d+)", part)
    if steps:
        low, high = int(steps[1]), int(steps[2])
        if low > high:
            raise UserError(f"A range must rise. Got {part!r} instead. Write {high}-{low}.")
        return list(range(low, high + 1))
    spaced = re.fullmatch(r"([^:]+):([^:]+):(\d+)", part)
    if spaced and kind is float:
        return [float(v) for v in np.linspace(float(spaced[1]), float(spaced[2]), int(spaced[3]))]
    try:
        return [kind(part)]
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise UserError(f"{part!r} is not {what}, a comma list or a range such as 0-4.") from None
