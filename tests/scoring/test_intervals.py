"""Confidence intervals agree with scipy, and cover the true value as often as they should."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from unbraid.scoring.intervals import difference_interval, mean_interval


@pytest.mark.parametrize("sizes", [(2, 2), (3, 8), (20, 5)])
def test_intervals_equal_those_of_scipy(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(0, 1, sizes[0]), rng.normal(1, 3, sizes[1])
    expected = stats.t.interval(0.95, len(first) - 1, first.mean(), stats.sem(first))
    np.testing.assert_allclose(mean_interval(first), expected)
    welch = stats.ttest_ind(second, first, equal_var=False).confidence_interval(0.95)
    np.testing.assert_allclose(difference_interval(first, second), (welch.low, welch.high))


def test_intervals_cover_the_true_value() -> None:
    rng = np.random.default_rng(1)
    ends = np.array([difference_interval(rng.normal(0, 1, 4), rng.normal(2, 2, 7)) for _ in range(2000)])
    assert ((ends[:, 0] < 2) & (ends[:, 1] > 2)).mean() == pytest.approx(0.95, abs=0.02)


def test_few_or_equal_values() -> None:
    assert mean_interval([0.5]) == difference_interval([0.5], [1.0, 2.0]) == (None, None)
    assert mean_interval([0.5, 0.5]) == (0.5, 0.5)
    assert difference_interval([0.5, 0.5], [1.0, 1.0]) == (0.5, 0.5)
