"""Entropy and mutual information of discrete columns, in nats, from counts."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, as_codes, as_factors, at_least, same_rows


def discretise(codes: Codes, bins: int = 20) -> Int[np.ndarray, "n d"]:
    r"""The number, 1 to `bins`, of the equal-width bin that holds each code.

    .. math:: b_{ij} = \max \{ b : e_{jb} \le c_{ij} \}, \quad
        e_{jb} = \min_i c_{ij} + \frac{b - 1}{\text{bins}} (\max_i c_{ij} - \min_i c_{ij})

    Equal width, not equal count: one outlier squeezes all other points into few bins. A constant column falls into one
    bin, and so does a column whose range is too narrow for `bins` distinct float64 edges (``np.histogram`` raises
    there). Otherwise exactly ``np.digitize(x, np.histogram(x, bins)[1][:-1])`` for every column.

    Reference: the discretiser of Locatello et al. (2019), arXiv:1811.12359.

    >>> discretise([[0.0], [0.4], [0.6], [1.0]], bins=2).T
    array([[1, 1, 2, 2]])
    """
    at_least(1, bins=bins)
    return np.stack([_bins(column, bins) for column in as_codes(codes).T], axis=1)


def _bins(x: Float[np.ndarray, " n"], bins: int) -> Int[np.ndarray, " n"]:
    edges = np.linspace(x.min(), x.max(), bins + 1)
    if not (np.diff(edges) > 0).all():  # np.histogram centres the bins on a constant
        edges = np.histogram_bin_edges(x[:1], bins)
        x = np.full_like(x, x[0])
    return np.searchsorted(edges[:-1], x, side="right")


def entropy(labels: Factors) -> Float[np.ndarray, " k"]:
    r"""How many nats each column of labels holds.

    .. math:: H(v_j) = -\sum_a \frac{n_a}{n} \log \frac{n_a}{n}

    0: a constant column. Its largest value is the log of the number of distinct labels.

    >>> entropy([[0, 7], [1, 7]]).round(4)
    array([0.6931, 0.    ])
    """
    checked = as_factors(labels, "Labels")
    counts = [np.bincount(_renumbered(column)) for column in checked.T]
    n = len(checked)
    return np.array([np.sum(count / n * np.log(n / count)) for count in counts])


def mutual_information(a: Codes, b: Factors) -> Float[np.ndarray, "d k"]:
    r"""How many nats each column of `a` tells of each column of `b`.

    .. math:: I(a_i; b_j) = \sum_{u, v} \frac{n_{uv}}{n} \log \frac{n \, n_{uv}}{n_u \, n_v}

    0: independent in the sample (exactly 0.0 when all counts factorise). Never above either entropy.
    The plug-in estimate is biased upwards by about (values of a - 1)(values of b - 1) / 2n: at n = 10,000 a column of
    20 noise bins has about .028 nats about a factor of 32 values. Rounding below zero is clipped.

    >>> mutual_information([[0], [1], [0], [1]], [[0, 0], [1, 0], [0, 1], [1, 1]]).round(4)
    array([[0.6931, 0.    ]])
    """
    rows, columns = as_factors(a, "Labels"), as_factors(b, "Labels")
    same_rows(rows, columns)
    right = [_renumbered(column) for column in columns.T]
    return np.array([[_information(left, other) for other in right] for left in map(_renumbered, rows.T)])


def _renumbered(labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """The labels as 0, 1, ..., so that counts are a short array without gaps."""
    return np.unique(labels, return_inverse=True)[1]


def _information(a: Int[np.ndarray, " n"], b: Int[np.ndarray, " n"]) -> float:
    """Mutual information of two renumbered columns."""
    n, width = len(a), int(b.max()) + 1
    cells, counts = _tally(a * width + b)
    independent = np.bincount(a)[cells // width] * np.bincount(b)[cells % width]
    # The ratio of integers is exactly 1 where the counts factorise: independence gives 0.0, not rounding noise.
    return max(0.0, float(np.sum(counts / n * np.log(counts * n / independent))))


def _tally(labels: Int[np.ndarray, " n"]) -> tuple[Int[np.ndarray, " c"], Int[np.ndarray, " c"]]:
    """The labels that occur, in order, and how often; counted where the range is short, sorted where it is long."""
    if labels.max() > 100 * len(labels):
        return np.unique(labels, return_counts=True)
    counts = np.bincount(labels)
    cells = np.flatnonzero(counts)
    return cells, counts[cells]
