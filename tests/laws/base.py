"""The properties that tests/metrics/test_metrics.py checks for each metric, as one `Law` per metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from support.known_codes import Array

UNIT = (0.0, 1.0)
LENGTH = (0.0, float("inf"))


class Fact(NamedTuple):
    """Codes and factors whose score is known. `source` describes the codes or names the source of the score."""

    codes: Callable[[], Array]
    factors: Callable[[], Array]
    expected: float
    tolerance: float
    source: str
    key: str = ""  # the key of the score, or empty for the headline score


class Law(NamedTuple):
    """Ranges, invariances, an oracle and known scores of one metric."""

    ranges: Mapping[str, tuple[float, float]]  # range of every key that is returned for GRID, which has 120 rows
    tolerances: Mapping[str, float]  # maximum change of scores under each of MAPS (rows, codes, factors, affine)
    # Computes the headline score with simple loops. Codes and factors are used for training and for testing.
    oracle: Callable[[Array, Array], float]
    oracle_tolerance: float
    facts: tuple[Fact, ...]
    changes: Mapping[str, str] = {}  # keys that a positive affine map of the codes may change, and why
    options: Mapping[str, Any] = {}  # options of the metric in tests, such as smaller sizes
    oracle_options: Mapping[str, Any] = {}  # options of the metric when it is compared with the oracle
