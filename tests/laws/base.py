"""What a metric promises: one `Law` a metric, checked by tests/test_metrics.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from support.known_codes import Array

UNIT = (0.0, 1.0)
LENGTH = (0.0, float("inf"))


class Fact(NamedTuple):
    """A planted code whose score is known; `source` says from where."""

    codes: Callable[[], Array]
    factors: Callable[[], Array]
    expected: float
    tolerance: float
    source: str
    key: str = ""  # the headline unless said


class Law(NamedTuple):
    """Ranges, invariances, an oracle and known values of one metric."""

    ranges: Mapping[str, tuple[float, float]]  # every key it returns for the 120 rows of planted.GRID
    tolerances: Mapping[str, float]  # how closely scores stay under planted.MAPS: rows, codes, factors, affine
    oracle: Callable[[Array, Array], float]  # the headline by literal loops, the table being train and test
    oracle_tolerance: float
    facts: tuple[Fact, ...]
    changes: Mapping[str, str] = {}  # keys that a positive affine map of the codes may change, and why
    options: Mapping[str, Any] = {}  # sizes for tests
    oracle_options: Mapping[str, Any] = {}  # options with which the oracle is compared
