"""The factors of examples in the form that metrics take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unbraid.data.dataset import FactorData, IndexLike
from unbraid.metrics.protocol import Array


def factor_periods(data: FactorData) -> tuple[float | None, ...]:
    """Return one entry per factor of a dataset: its period, or None if the factor is not cyclic."""
    return tuple(data.cyclic.get(name) for name in data.names)


class FactorTable(NamedTuple):
    """The factors of examples in the form that metrics take.

    Attributes:
        values: Factor values, (n, k). They are int64, or float64 if a factor is continuous or a label is missing (NaN).
        continuous: Whether each factor is continuous, or None if no factor is.
    """

    values: Array
    continuous: tuple[bool, ...] | None

    @classmethod
    def of(cls, data: FactorData, index: IndexLike) -> FactorTable:
        """Return the factors of the examples at `index`."""
        if not data.continuous and not data.missing_labels:
            return cls(data.factors(index).cpu().numpy(), None)
        continuous = tuple(name in data.continuous for name in data.names)
        return cls(data.factor_values(index).cpu().numpy(), continuous if any(continuous) else None)

    def select(self, columns: Sequence[int]) -> FactorTable:
        """Return a table with only the factors at the indices `columns`."""
        flags = None if self.continuous is None else tuple(self.continuous[j] for j in columns)
        return FactorTable(self.values[:, list(columns)], flags)

    @property
    def missing(self) -> bool:
        """Whether at least one label is missing."""
        return self.values.dtype.kind == "f" and bool(np.isnan(self.values).any())
