"""Interventional robustness score."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from unbraid.errors import UserError
from unbraid.metrics.arrays import Codes, Factors, at_least, labelled
from unbraid.metrics.information import discretise


def irs(codes: Codes, factors: Factors, *, bins: int = 20, quantile: int | float = 0.99) -> dict[str, float]:
    r"""How little each code moves while the factor it follows best is held fixed and all others vary.

    .. math:: \frac{\sum_i m_i \max_j R_{ij}}{\sum_i m_i}, \quad m_i = \max |c_i - E[c_i]|, \quad
        R_{ij} = 1 - \frac{1}{m_i} \, \mathrm{mean}_a \, Q_{v_j = a} \left( |c_i - E[c_i \mid v_j = a]| \right)

    with :math:`Q` the given quantile over the rows that share the value :math:`a`.

    0: no code is steadied by any factor (or all codes are constant). 1: every code is a function of one factor.
    `num_active_dims` is the number of codes that vary. Exactly constant codes are left out, also where rounding gives
    them a variance of 3e-33. A value held by one row deviates by 0.

    The values of each factor are numbered in order and put into `bins` equal-width bins, as in the reference code and
    so in published numbers: a factor of more than `bins` values is held fixed only roughly, and a perfect code of it
    scores below 1 (for codes of equal range .985 on the factors of dSprites, .980 on those of Cars3D; for the raw
    labels .979 and .959, since long factors weigh more). With ``bins`` no less than the values of the largest factor
    every value is held fixed, and ``quantile=1`` takes the largest deviation, as in the paper.

    Beware: pure noise scores about .36, because a .99 quantile lies well below the largest deviation. Several codes
    may follow one factor, and a factor none: duplicated codes score 1. Codes of large scale weigh more, so rescaling
    one code changes the score. With few rows a value the quantile is near 0 and the score near 1.

    Deviations: the reference code returns the sum of all code values as `num_active_dims`. A negative average, which
    needs codes of two far clusters in every value of every factor, is returned as 0.

    Reference: Suter et al. (2019), arXiv:1811.00007; 20 bins and .99 as in Locatello et al. (2019), arXiv:1811.12359.

    >>> factors = np.indices((3, 4)).reshape(2, -1).T
    >>> irs(factors, factors)
    {'avg_score': 1.0, 'num_active_dims': 2.0}
    """
    table, values = labelled(codes, factors)
    found = robustness(table, values, bins=bins, quantile=quantile)
    active = found.max_deviations > 0
    scores, weights = found.matrix.max(axis=1)[active], found.max_deviations[active]
    average = float(np.average(scores, weights=weights / weights.max())) if active.any() else 0.0
    return {"avg_score": max(0.0, average), "num_active_dims": float(active.sum())}


class Robustness(NamedTuple):
    """How steady each code is under each factor, and the largest deviation of each code from its mean."""

    matrix: Float[np.ndarray, "d k"]
    max_deviations: Float[np.ndarray, " d"]


def robustness(
    codes: Float[np.ndarray, "n d"], factors: Int[np.ndarray, "n k"], *, bins: int = 20, quantile: int | float = 0.99
) -> Robustness:
    """The matrix of which IRS is the weighted mean of row maxima; rows of constant codes are 0.

    >>> robustness(np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([[0, 0], [0, 1], [1, 0], [1, 1]])).matrix.tolist()
    [[1.0, 0.0]]
    """
    at_least(0, quantile=quantile)
    if quantile > 1:
        raise UserError(f"The 'quantile' parameter must be <= 1. Got {quantile} instead.")
    varies = np.ptp(codes, axis=0) > 0
    largest = np.where(varies, np.abs(codes - codes.mean(axis=0)).max(axis=0), 0.0)
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in factors.T], axis=1)
    held = discretise(ranks, bins)
    deviations = np.stack([_deviations(codes, column, float(quantile)) for column in held.T], axis=1)
    matrix = np.zeros_like(deviations)
    np.divide(largest[:, None] - deviations, largest[:, None], out=matrix, where=varies[:, None])
    return Robustness(matrix, largest)


def _deviations(
    codes: Float[np.ndarray, "n d"], held: Int[np.ndarray, " n"], quantile: float
) -> Float[np.ndarray, " d"]:
    """The quantile of each code's distance from its mean under one value, averaged over the values."""
    order = np.argsort(held, kind="stable")
    groups = np.split(codes[order], np.flatnonzero(np.diff(held[order])) + 1)
    distances = [np.quantile(np.abs(rows - rows.mean(axis=0)), quantile, axis=0) for rows in groups]
    return np.asarray(np.mean(distances, axis=0))
