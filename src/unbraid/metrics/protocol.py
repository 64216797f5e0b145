"""Which rows each metric sees: a sample to learn from, one to test on, and the table for interventions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Rows:
    """Codes and factors of a table, and the row numbers of a training and a test sample of it."""

    codes: Array
    factors: Array
    train: Array
    test: Array

    @classmethod
    def drawn(cls, codes: Array, factors: Array, train: int, test: int, seed: int) -> Rows:
        """Independent draws with replacement, as the large study samples a factor grid."""
        rng = np.random.default_rng(seed)
        return cls(codes, factors, rng.integers(len(codes), size=train), rng.integers(len(codes), size=test))

    @classmethod
    def split(cls, codes: Array, factors: Array, train: int, test: int, seed: int) -> Rows:
        """Disjoint parts of somebody's arrays: two thirds to learn from, one third to test, at most these numbers."""
        order = np.random.default_rng(seed).permutation(len(codes))
        cut = max(1, (2 * len(order)) // 3)
        return cls(codes, factors, order[:cut][:train], order[cut:][:test])

    def score(self, metric: Callable[..., dict[str, float]], whole_table: bool, seed: int) -> dict[str, float]:
        """Call a metric with the arrays its signature asks for."""
        names = inspect.signature(metric).parameters
        rows: Any = slice(None) if whole_table else self.train
        arrays = {"codes": self.codes[rows], "factors": self.factors[rows]}
        arrays |= {"test_codes": self.codes[self.test], "test_factors": self.factors[self.test]}
        wanted: dict[str, Any] = {name: value for name, value in arrays.items() if name in names}
        return metric(**wanted, **({"seed": seed} if "seed" in names else {}))


def chosen(names: Iterable[str] | None, known: Iterable[str]) -> list[str]:
    """The metrics asked for, all of them by default; unknown names are refused with the nearest."""
    from unbraid.errors import unknown

    valid = list(known)
    asked = valid if names is None else list(names)
    for name in asked:
        if name not in valid:
            raise ValueError(unknown("metric", name, valid))
    return asked
