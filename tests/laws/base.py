"""The properties of each metric: one `Law` per metric, which tests/metrics/test_metrics.py checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from support.known_codes import Array

UNIT = (0.0, 1.0)
LENGTH = (0.0, float("inf"))


class Fact(NamedTuple):
    """A code whose score is known. `source` describes the code or names the source of the score."""

    codes: Callable[[], Array]
    factors: Callable[[], Array]
    expected: float
    tolerance: float
    source: str
    key: str = ""  # the headline by default


class Law(NamedTuple):
    """Ranges, invariances, an oracle and known values of one metric."""

    ranges: Mapping[str, tuple[float, float]]  # range of every key returned for the 120 rows of GRID
    tolerances: Mapping[str, float]  # largest change of scores under each of MAPS: rows, codes, factors, affine
    oracle: Callable[
        [Array, Array], float
    ]  # the headline computed with simple loops, with the same table for training and test
    oracle_tolerance: float
    facts: tuple[Fact, ...]
    changes: Mapping[str, str] = {}  # keys that a positive affine map of the codes may change, with the reason
    options: Mapping[str, Any] = {}  # options in tests, such as smaller sizes
    oracle_options: Mapping[str, Any] = {}  # options of the comparison with the oracle
