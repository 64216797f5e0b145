"""Entropy and mutual information of discrete columns, in nats, computed from counts."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, as_codes, as_factors, check_at_least, check_same_rows


def discretise(codes: Codes, bins: int = 20) -> Int[np.ndarray, "n d"]:
    r"""Return the number, from 1 to `bins`, of the equal-width bin that contains each entry of the codes.

    .. math:: b_{ij} = \max \{ b : e_{jb} \le c_{ij} \}, \quad
        e_{jb} = \min_i c_{ij} + \frac{b - 1}{\text{bins}} (\max_i c_{ij} - \min_i c_{ij})

    The bins have equal widths and not equal counts, so one outlier can move all other examples of a latent into few
    bins. All entries of a constant column are in one bin, and so are those of a column whose range is too narrow for
    `bins` distinct float64 edges (``np.histogram`` raises an error for such a column). For all other columns the result
    equals ``np.digitize(x, np.histogram(x, bins)[1][:-1])``.

    Reference: the discretisation of Locatello et al. (2019), arXiv:1811.12359.

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
    """Return the bin number of each entry of one column."""
    edges = np.linspace(x.min(), x.max(), bins + 1)
    if not (np.diff(edges) > 0).all():  # use the bins of np.histogram for a constant column
        edges = np.histogram_bin_edges(x[:1], bins)
        x = np.full_like(x, x[0])
    return np.searchsorted(edges[:-1], x, side="right")


def entropy(labels: Factors, *, corrected: bool = False) -> Float[np.ndarray, " k"]:
    r"""Return the entropy of each column of labels, in nats.

    .. math:: H(v_j) = -\sum_a \frac{n_a}{n} \log \frac{n_a}{n}

    where :math:`n_a` of the n rows have the label a. 0 means that the column is constant. The maximum is the logarithm
    of the number of distinct labels.

    Args:
        labels: Integer array of shape (n, k).
        corrected: Whether to add (distinct labels - 1) / 2n, the correction of Miller (1955), because the estimate is
            biased downwards by about this much.

    Returns:
        Array of shape (k,).

    Example:
        >>> entropy([[0, 7], [1, 7]]).round(4)
        array([0.6931, 0.    ])
    """
    checked = as_factors(labels, "Labels")
    counts = [np.bincount(consecutive_labels(column)) for column in checked.T]
    n = len(checked)
    plug_in = np.array([np.sum(count / n * np.log(n / count)) for count in counts])
    return plug_in + np.array([(len(count) - 1) / (2 * n) for count in counts]) if corrected else plug_in


def mutual_information(a: Codes, b: Factors, *, corrected: bool = False) -> Float[np.ndarray, "d k"]:
    r"""Return the mutual information of each column of `a` with each column of `b`, in nats.

    .. math:: I(a_i; b_j) = \sum_{u, v} \frac{n_{uv}}{n} \log \frac{n \, n_{uv}}{n_u \, n_v}

    where :math:`n_u` of the n rows have the value u in :math:`a_i`, :math:`n_v` rows have the value v in :math:`b_j`,
    and :math:`n_{uv}` rows have both.

    0 means that the columns are independent in the sample. The result is exactly 0 if :math:`n \, n_{uv} = n_u \, n_v`
    for all pairs of values. Information never exceeds the entropy of either column. The plug-in estimate is biased
    upwards by about (values of a - 1)(values of b - 1) / 2n. At n = 10,000, for example, a column of noise in 20 bins
    has about 0.028 nats of information about a factor with 32 values. If rounding or the correction makes a result
    negative, it is set to 0.

    Args:
        a: Integer array of shape (n, d).
        b: Integer array of shape (n, k).
        corrected: Whether to add the correction of Miller (1955), which removes most of the bias. It is (values of a +
            values of b - pairs of values - 1) / 2n, where only values and pairs that occur are counted.

    Returns:
        Array of shape (d, k).

    Example:
        >>> mutual_information([[0], [1], [0], [1]], [[0, 0], [1, 0], [0, 1], [1, 1]]).round(4)
        array([[0.6931, 0.    ]])
    """
    table_a, table_b = as_factors(a, "Labels"), as_factors(b, "Labels")
    check_same_rows(table_a, table_b)
    columns_b = [consecutive_labels(column) for column in table_b.T]
    return np.array(
        [
            [_pair_information(left, right, corrected) for right in columns_b]
            for left in map(consecutive_labels, table_a.T)
        ]
    )


def consecutive_labels(labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Return the labels renumbered as 0, 1, ... in increasing order.

    If the labels span a short range, an array with one entry per integer in the range marks the labels that occur. This
    is much faster than sorting.

    >>> consecutive_labels(np.array([7, -2, 7, 3])).tolist()
    [2, 0, 2, 1]
    """
    low, high = int(labels.min()), int(labels.max())
    if high - low > 4 * len(labels):
        return np.unique(labels, return_inverse=True)[1]
    occurs = np.zeros(high - low + 1, dtype=np.int64)
    occurs[labels - low] = 1
    return np.asarray((np.cumsum(occurs) - 1)[labels - low])


def _pair_information(a: Int[np.ndarray, " n"], b: Int[np.ndarray, " n"], corrected: bool) -> float:
    """Return the mutual information of two columns of consecutive labels."""
    n, width = len(a), int(b.max()) + 1
    cells, counts = _count_labels(a * width + b)
    independent = np.bincount(a)[cells // width] * np.bincount(b)[cells % width]
    # If the counts factorise, each ratio of integers is exactly 1, and independence gives exactly 0.0.
    correction = (int(a.max()) + width - len(cells)) / (2 * n) if corrected else 0.0
    return max(0.0, float(np.sum(counts / n * np.log(counts * n / independent))) + correction)


def _count_labels(labels: Int[np.ndarray, " n"]) -> tuple[Int[np.ndarray, " c"], Int[np.ndarray, " c"]]:
    """Return the distinct labels in increasing order and their counts. Sort the labels if their range is long."""
    if labels.max() > 100 * len(labels):
        return np.unique(labels, return_counts=True)
    counts = np.bincount(labels)
    cells = np.flatnonzero(counts)
    return cells, counts[cells]
