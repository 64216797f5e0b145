"""Entropy and mutual information of discrete columns, in nats, computed from counts."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, as_codes, as_factors, check_at_least, check_same_rows


def discretise(codes: Codes, bins: int = 20) -> Int[np.ndarray, "n d"]:
    r"""Return the number, from 1 to `bins`, of the equal-width bin that contains each code.

    .. math:: b_{ij} = \max \{ b : e_{jb} \le c_{ij} \}, \quad
        e_{jb} = \min_i c_{ij} + \frac{b - 1}{\text{bins}} (\max_i c_{ij} - \min_i c_{ij})

    The bins have equal widths, not equal counts, so one outlier squeezes all other points into few bins. A constant
    column falls into one bin, and so does a column whose range is too narrow for `bins` distinct float64 edges
    (``np.histogram`` raises an error for it). Otherwise the result equals ``np.digitize(x, np.histogram(x,
    bins)[1][:-1])`` for every column.

    Reference: the discretiser of Locatello et al. (2019), arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d).
        bins: Number of bins per column.

    Returns:
        Integer array of shape (n, d).

    Example:
        >>> discretise([[0.0], [0.4], [0.6], [1.0]], bins=2).T
        array([[1, 1, 2, 2]])
    """
    check_at_least(1, bins=bins)
    return np.stack([_bin_numbers(column, bins) for column in as_codes(codes).T], axis=1)


def _bin_numbers(x: Float[np.ndarray, " n"], bins: int) -> Int[np.ndarray, " n"]:
    edges = np.linspace(x.min(), x.max(), bins + 1)
    if not (np.diff(edges) > 0).all():  # np.histogram centres its bins on a constant column
        edges = np.histogram_bin_edges(x[:1], bins)
        x = np.full_like(x, x[0])
    return np.searchsorted(edges[:-1], x, side="right")


def entropy(labels: Factors) -> Float[np.ndarray, " k"]:
    r"""Return the entropy of each column of labels, in nats.

    .. math:: H(v_j) = -\sum_a \frac{n_a}{n} \log \frac{n_a}{n}

    0 means a constant column. The largest possible value is the logarithm of the number of distinct labels.

    Args:
        labels: Integer array of shape (n, k).

    Returns:
        Array of shape (k,).

    Example:
        >>> entropy([[0, 7], [1, 7]]).round(4)
        array([0.6931, 0.    ])
    """
    checked = as_factors(labels, "Labels")
    counts = [np.bincount(consecutive_labels(column)) for column in checked.T]
    n = len(checked)
    return np.array([np.sum(count / n * np.log(n / count)) for count in counts])


def mutual_information(a: Codes, b: Factors) -> Float[np.ndarray, "d k"]:
    r"""Return the mutual information of each column of `a` with each column of `b`, in nats.

    .. math:: I(a_i; b_j) = \sum_{u, v} \frac{n_{uv}}{n} \log \frac{n \, n_{uv}}{n_u \, n_v}

    0 means independent in the sample, and is exact if all counts factorise. The value never exceeds either entropy. The
    plug-in estimate is biased upwards by about (values of a - 1)(values of b - 1) / 2n: at n = 10,000, a column of 20
    noise bins has about .028 nats of information about a factor of 32 values. Negative results of rounding are clipped
    to 0.

    Args:
        a: Integer array of shape (n, d).
        b: Integer array of shape (n, k).

    Returns:
        Array of shape (d, k).

    Example:
        >>> mutual_information([[0], [1], [0], [1]], [[0, 0], [1, 0], [0, 1], [1, 1]]).round(4)
        array([[0.6931, 0.    ]])
    """
    rows, columns = as_factors(a, "Labels"), as_factors(b, "Labels")
    check_same_rows(rows, columns)
    columns_b = [consecutive_labels(column) for column in columns.T]
    return np.array(
        [[_pair_information(left, right) for right in columns_b] for left in map(consecutive_labels, rows.T)]
    )


def consecutive_labels(labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Return the labels renumbered as 0, 1, ... in their order.

    Labels of a short range are marked in an array, which is much faster than sorting.

    >>> consecutive_labels(np.array([7, -2, 7, 3])).tolist()
    [2, 0, 2, 1]
    """
    low, high = int(labels.min()), int(labels.max())
    if high - low > 4 * len(labels):
        return np.unique(labels, return_inverse=True)[1]
    occurs = np.zeros(high - low + 1, dtype=np.int64)
    occurs[labels - low] = 1
    return np.asarray((np.cumsum(occurs) - 1)[labels - low])


def _pair_information(a: Int[np.ndarray, " n"], b: Int[np.ndarray, " n"]) -> float:
    """Return the mutual information of two columns of consecutive labels."""
    n, width = len(a), int(b.max()) + 1
    cells, counts = _count_labels(a * width + b)
    independent = np.bincount(a)[cells // width] * np.bincount(b)[cells % width]
    # The ratio of integers is exactly 1 if the counts factorise, so that independence gives exactly 0.0.
    return max(0.0, float(np.sum(counts / n * np.log(counts * n / independent))))


def _count_labels(labels: Int[np.ndarray, " n"]) -> tuple[Int[np.ndarray, " c"], Int[np.ndarray, " c"]]:
    """Return the labels that occur, sorted, and their counts. Long ranges are sorted instead of counted."""
    if labels.max() > 100 * len(labels):
        return np.unique(labels, return_counts=True)
    counts = np.bincount(labels)
    cells = np.flatnonzero(counts)
    return cells, counts[cells]
