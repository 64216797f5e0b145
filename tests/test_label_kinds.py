"""Bins have nearly equal counts and never a single row."""

from __future__ import annotations

import numpy as np
import pytest

from unbraid.label_kinds import equal_count_bins


@pytest.mark.parametrize("n", [4, 11, 99, 1000, 1001])
@pytest.mark.parametrize("bins", [2, 3, 10, 20])
def test_distinct_values_fill_bins_equally(n: int, bins: int) -> None:
    values = np.random.default_rng(n).lognormal(size=n)
    counts = np.bincount(equal_count_bins(values, bins))
    assert len(counts) == max(1, min(bins, n // 2))
    assert counts.max() - counts.min() <= 1
    assert counts.min() >= 2


@pytest.mark.parametrize("seed", range(20))
def test_bins_with_ties_are_ordered_and_never_hold_a_single_row(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.where(rng.random(200) < rng.random(), 0.0, rng.choice(rng.normal(size=rng.integers(1, 40)), 200))
    number = equal_count_bins(values)
    order = np.argsort(values)
    assert (np.diff(number[order]) >= 0).all()
    assert len(np.unique(np.stack([values, number]), axis=1).T) == len(np.unique(values))
    counts = np.bincount(number)
    assert counts.min() >= 10
    assert len(counts) <= 10


def test_largest_value_alone_does_not_get_a_bin() -> None:
    """The recipe with np.digitize and equal widths leaves the maximum alone in the last bin."""
    assert np.bincount(equal_count_bins(np.array([*range(99), 1e6]))).tolist() == [10] * 10
