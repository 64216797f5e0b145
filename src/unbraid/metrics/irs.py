"""Interventional robustness score (IRS)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from unbraid.errors import UserError
from unbraid.metrics.arrays import Codes, Factors, check_at_least
from unbraid.metrics.information import discretise
from unbraid.metrics.labels import Column, Continuous, Labels, as_codes_and_labels


def irs(
    codes: Codes,
    factors: Factors,
    continuous: Continuous = None,
    *,
    bins: int = 20,
    quantile: int | float = 0.99,
) -> dict[str, float]:
    r"""Measure how stable each latent is while the factor that stabilises it most is fixed and all others vary.

    .. math:: \frac{\sum_i m_i \max_j R_{ij}}{\sum_i m_i}, \quad m_i = \max |c_i - E[c_i]|, \quad
        R_{ij} = 1 - \frac{1}{m_i} \, \mathrm{mean}_a \, Q_{v_j = a} \left( |c_i - E[c_i \mid v_j = a]| \right)

    where :math:`c_i` is latent i, E is the mean over rows, :math:`Q` is the given quantile over the rows that have the
    value :math:`a` of factor j, and :math:`\mathrm{mean}_a` is the mean over the values of factor j.

    The score lies in [0, 1]. 0 means that fixing a factor stabilises no latent, or that all latents are constant. 1
    means that every latent is a function of one factor. Exactly constant latents are left out, even if rounding gives
    them a variance of 3e-33. A value that occurs in only one row contributes a deviation of 0.

    The values of each factor are numbered in order and sorted into `bins` equal-width bins, as in disentanglement_lib
    (the library of Locatello et al.) and therefore in published scores. A factor with more than `bins` values is then
    fixed only approximately, and a perfect representation of it scores below 1. If all latents have the same range, the
    perfect representation scores 0.985 for the factors of dSprites and 0.980 for those of Cars3D. If the latents are
    the raw labels, it scores 0.979 and 0.959, because factors with many values have larger weights. If `bins` is at
    least the maximum number of values, every value is fixed exactly. ``quantile=1`` takes the largest deviation, as in
    the paper.

    Continuous factors: The labels of a continuous factor are numbered in order and sorted into `bins` bins in the same
    way, so the bins have equal counts. The factor is then fixed only approximately, as a discrete factor with many
    values is. For each factor, only the rows that have a label for it are used.

    Limitations: Pure noise scores about 0.36, because the 0.99 quantile lies well below the largest deviation.
    Duplicated latents score 1, because several latents may depend on the same factor. A factor on which no latent
    depends does not lower the score. Latents with a large scale have larger weights, so rescaling one latent changes
    the score. With few rows per value, the quantile of the deviations is near 0 and the score is near 1.

    Deviations: `num_active_dims` is a count, whereas disentanglement_lib returns the sum of all codes under this name.
    The average can be negative only if the codes form two distant clusters within every value of every factor. It is
    then returned as 0.

    Reference: Suter et al. (2019), arXiv:1811.00007. The 20 bins and the quantile 0.99 follow Locatello et al. (2019),
    arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        bins: Number of equal-width bins into which the values of each factor are sorted.
        quantile: Quantile of the deviations, between 0 and 1.

    Returns:
        `avg_score`, the score, and `num_active_dims`, the number of latents that vary.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, or if `quantile` is outside [0, 1].

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> irs(factors, factors)
        {'avg_score': 1.0, 'num_active_dims': 2.0}
    """
    table, labels = as_codes_and_labels(codes, factors, continuous)
    matrix, max_deviations = robustness(table, labels, bins=bins, quantile=quantile)
    active = max_deviations > 0
    scores, weights = matrix.max(axis=1)[active], max_deviations[active]
    average = float(np.average(scores, weights=weights / weights.max())) if active.any() else 0.0
    return {"avg_score": max(0.0, average), "num_active_dims": float(active.sum())}


class Robustness(NamedTuple):
    """The stability of the latents under interventions.

    Attributes:
        matrix: Stability of each latent when each factor is fixed. Rows of constant latents are 0.
        max_deviations: Largest deviation of each latent from its mean.
    """

    matrix: Float[np.ndarray, "d k"]
    max_deviations: Float[np.ndarray, " d"]


def robustness(
    codes: Float[np.ndarray, "n d"], labels: Labels, *, bins: int = 20, quantile: int | float = 0.99
) -> Robustness:
    """Compute the stability of each latent when each factor is fixed.

    IRS is the mean of the row maxima of `matrix`, weighted by `max_deviations`.

    >>> from unbraid.metrics.labels import as_labels
    >>> labels = as_labels([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> robustness(np.array([[0.0], [0.0], [1.0], [1.0]]), labels).matrix.tolist()
    [[1.0, 0.0]]
    """
    check_at_least(0, quantile=quantile)
    if quantile > 1:
        raise UserError(f"The 'quantile' parameter must be <= 1. Got {quantile} instead.")
    varies = np.ptp(codes, axis=0) > 0
    max_deviations = np.where(varies, np.abs(codes - codes.mean(axis=0)).max(axis=0), 0.0)
    columns = [(codes[column.rows], _rank_bins(column, bins)) for column in labels.columns()]
    deviations = np.stack([_deviation_quantiles(rows, fixed, float(quantile)) for rows, fixed in columns], axis=1)
    matrix = np.zeros_like(deviations)
    np.divide(max_deviations[:, None] - deviations, max_deviations[:, None], out=matrix, where=varies[:, None])
    return Robustness(matrix, max_deviations)


def _rank_bins(column: Column, bins: int) -> Int[np.ndarray, " n"]:
    """Number the values of a factor in order, and sort the numbers into equal-width bins."""
    ranks = np.unique(column.values, return_inverse=True)[1]
    return np.asarray(discretise(ranks[:, None], bins)[:, 0])


def _deviation_quantiles(
    codes: Float[np.ndarray, "n d"], fixed: Int[np.ndarray, " n"], quantile: float
) -> Float[np.ndarray, " d"]:
    """Return, for each latent, a quantile of its distances from the mean of all rows with the same fixed value.

    The quantile is averaged over the fixed values.
    """
    order = np.argsort(fixed, kind="stable")
    groups = np.split(codes[order], np.flatnonzero(np.diff(fixed[order])) + 1)
    distances = [np.quantile(np.abs(rows - rows.mean(axis=0)), quantile, axis=0) for rows in groups]
    return np.asarray(np.mean(distances, axis=0))
