"""95% confidence intervals of means and of differences between means, by Student's t distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

LEVEL = 0.95
Interval = tuple[float | None, float | None]


def mean_interval(values: Sequence[float] | Any) -> Interval:
    r"""Return the confidence interval of a mean, or (None, None) for fewer than two values.

    .. math:: \bar x \pm t_{n-1}\, s / \sqrt n

    :math:`\bar x` is the mean of the n values, s is their standard deviation (ddof 1), and :math:`t_{n-1}` is the 97.5%
    quantile of Student's t distribution with :math:`n-1` degrees of freedom. The interval assumes that the values are
    independent and approximately normal.

    >>> [round(end, 3) for end in mean_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    x = np.asarray(values, float)
    n = len(x)
    return (None, None) if n < 2 else _interval(float(x.mean()), float(x.var(ddof=1)) / n, n - 1)


def difference_interval(first: Sequence[float] | Any, second: Sequence[float] | Any) -> Interval:
    r"""Return the confidence interval of the mean of `second` minus the mean of `first` (Welch's t interval).

    The two groups are independent, and their variances may differ. The interval is (None, None) if a group has fewer
    than two values.

    Reference: Welch (1947), "The generalization of 'Student's' problem when several different population variances are
    involved".

    >>> [round(end, 3) for end in difference_interval([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])]
    [-1.267, 3.267]
    """
    x, y = np.asarray(first, float), np.asarray(second, float)
    if min(len(x), len(y)) < 2:
        return None, None
    parts = [float(part.var(ddof=1)) / len(part) for part in (x, y)]
    total = sum(parts)
    terms = sum(part**2 / (len(group) - 1) for part, group in zip(parts, (x, y), strict=True))
    return _interval(float(y.mean() - x.mean()), total, total**2 / terms if terms > 0 else 1.0)


def _interval(centre: float, variance: float, degrees: float) -> Interval:
    """Return the confidence interval around an estimate with this variance and number of degrees of freedom."""
    from scipy.special import stdtrit

    half = float(stdtrit(degrees, (1 + LEVEL) / 2)) * math.sqrt(variance)
    return centre - half, centre + half
