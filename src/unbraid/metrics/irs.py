"""Interventional robustness score."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from unbraid.errors import UserError
from unbraid.metrics.arrays import Codes, Factors, as_codes_and_factors, check_at_least
from unbraid.metrics.information import discretise


def irs(codes: Codes, factors: Factors, *, bins: int = 20, quantile: int | float = 0.99) -> dict[str, float]:
    r"""The stability of each code while its most stabilising factor is fixed and all others vary.

    .. math:: \frac{\sum_i m_i \max_j R_{ij}}{\sum_i m_i}, \quad m_i = \max |c_i - E[c_i]|, \quad
        R_{ij} = 1 - \frac{1}{m_i} \, \mathrm{mean}_a \, Q_{v_j = a} \left( |c_i - E[c_i \mid v_j = a]| \right)

    where :math:`Q` is the given quantile over the rows that share the value :math:`a`.

    The score lies in [0, 1]. 0 means that fixing a factor stabilises no code, or that all codes are constant. 1 means
    that every code is a function of one factor. Exactly constant codes are left out, even if rounding gives them a
    variance of 3e-33. A value that only one row has contributes a deviation of 0.

    The values of each factor are numbered in order and put into `bins` equal-width bins, as in the reference code and
    therefore in published numbers. A factor with more than `bins` values is then fixed only approximately, and its
    perfect code scores below 1. For codes of equal range the perfect code scores .985 on the factors of dSprites and
    .980 on those of Cars3D; for the raw labels it scores .979 and .959, because long factors have larger weights. If
    `bins` is at least the largest number of values, every value is fixed exactly. ``quantile=1`` takes the largest
    deviation, as in the paper.

    Limitations: Pure noise scores about .36, because a .99 quantile lies well below the largest deviation. Several
    codes may follow one factor and a factor may be followed by none: duplicated codes score 1. Codes of large scale
    have larger weights, so rescaling one code changes the score. With few rows per value the quantile is near 0 and the
    score near 1.

    Deviations: The reference code returns the sum of all code values as `num_active_dims`. A negative average, which
    occurs only if codes form two distant clusters within every value of every factor, is returned as 0.

    Reference: Suter et al. (2019), arXiv:1811.00007. The 20 bins and the quantile .99 follow Locatello et al. (2019),
    arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), one row per point and one column per code dimension.
        factors: Integer array of shape (n, k), one row per point and one column per factor.
        bins: Number of equal-width bins into which the values of each factor are put.
        quantile: Quantile of the deviations, between 0 and 1.

    Returns:
        `avg_score`, the score, and `num_active_dims`, the number of codes that vary.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers, if a factor is constant, or if `quantile` is outside [0, 1].

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> irs(factors, factors)
        {'avg_score': 1.0, 'num_active_dims': 2.0}
    """
    table, values = as_codes_and_factors(codes, factors)
    matrix, max_deviations = robustness(table, values, bins=bins, quantile=quantile)
    active = max_deviations > 0
    scores, weights = matrix.max(axis=1)[active], max_deviations[active]
    average = float(np.average(scores, weights=weights / weights.max())) if active.any() else 0.0
    return {"avg_score": max(0.0, average), "num_active_dims": float(active.sum())}


class Robustness(NamedTuple):
    """The stability of each code when each factor is fixed, and the largest deviation of each code from its mean."""

    matrix: Float[np.ndarray, "d k"]
    max_deviations: Float[np.ndarray, " d"]


def robustness(
    codes: Float[np.ndarray, "n d"], factors: Int[np.ndarray, "n k"], *, bins: int = 20, quantile: int | float = 0.99
) -> Robustness:
    """Return the matrix whose row maxima have IRS as their weighted mean; rows of constant codes are 0.

    >>> robustness(np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([[0, 0], [0, 1], [1, 0], [1, 1]])).matrix.tolist()
    [[1.0, 0.0]]
    """
    check_at_least(0, quantile=quantile)
    if quantile > 1:
        raise UserError(f"The 'quantile' parameter must be <= 1. Got {quantile} instead.")
    varies = np.ptp(codes, axis=0) > 0
    largest = np.where(varies, np.abs(codes - codes.mean(axis=0)).max(axis=0), 0.0)
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in factors.T], axis=1)
    fixed = discretise(ranks, bins)
    deviations = np.stack([_deviations(codes, column, float(quantile)) for column in fixed.T], axis=1)
    matrix = np.zeros_like(deviations)
    np.divide(largest[:, None] - deviations, largest[:, None], out=matrix, where=varies[:, None])
    return Robustness(matrix, largest)


def _deviations(
    codes: Float[np.ndarray, "n d"], fixed: Int[np.ndarray, " n"], quantile: float
) -> Float[np.ndarray, " d"]:
    """Return the quantile of the distance of each code from its mean within a value, averaged over values."""
    order = np.argsort(fixed, kind="stable")
    groups = np.split(codes[order], np.flatnonzero(np.diff(fixed[order])) + 1)
    distances = [np.quantile(np.abs(rows - rows.mean(axis=0)), quantile, axis=0) for rows in groups]
    return np.asarray(np.mean(distances, axis=0))
