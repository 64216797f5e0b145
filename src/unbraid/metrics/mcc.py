"""Mean correlation coefficient (MCC)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Real

from unbraid.metrics.arrays import Codes, Factors
from unbraid.metrics.labels import Continuous, as_codes_and_labels


def mcc(codes: Codes, factors: Factors, continuous: Continuous = None) -> dict[str, float]:
    r"""Measure the mean correlation of each factor with its own latent, under the best one-to-one assignment.

    .. math:: \frac{1}{k} \max_{\pi} \sum_j \left| \mathrm{corr}(c_{\pi(j)}, v_j) \right|

    where :math:`\pi` runs over the assignments of a different latent to each factor, and corr is Pearson's correlation
    coefficient of the values (`mcc_pearson`) or of their ranks, with ties averaged (`mcc_spearman`).

    The scores lie in [0, 1]. 0 means that no latent correlates with any factor. 1 means that every factor has its own
    latent, and that this latent is a linear (Pearson) or monotonic (Spearman) function of the factor.

    The mean is taken over factors. If there are fewer latents than factors, each unmatched factor contributes 0. If
    there are more latents than factors, the unmatched latents are ignored. An exactly constant latent has correlation 0
    with everything. Each of the two scores has its own optimal assignment. The integer labels of a factor are used as
    numbers, so their order matters and, for Pearson, also their spacing.

    Continuous factors: Correlations use the labels as numbers, so the formula is the same. `continuous` only permits
    labels that are not integers. The correlations of a factor use the rows that have a label for it.

    Limitations: A latent that determines a factor but does not preserve its order scores low, so cyclic factors
    (orientation, hue) and categorical factors (shape) lower the score of every model. Pearson also penalises curvature.
    Pure noise scores above 0, because the best of d correlations is taken and each is of the order of 1 / sqrt(n).
    Surplus latents do not lower the score. For example, perfect latents beside copies of themselves or beside noise
    score 1. The score of a rotated representation is the mean cosine of the angles between factors and assigned
    latents. If there are few factors, it is 0.5 or more.

    Deviations: In the papers, all sources are continuous and there are as many latents as sources. The rules for other
    numbers of latents are our own.

    Reference: Hyvarinen and Morioka (2016), arXiv:1605.06336. Ranks are used as in Klindt et al. (2021),
    arXiv:2007.10930.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.

    Returns:
        `mcc_pearson` and `mcc_spearman`, the two scores.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, or if a factor is constant.

    Example:
        >>> factors = np.indices((3, 3)).reshape(2, -1).T
        >>> scores = mcc(-(factors[:, ::-1] ** 2), factors)  # corr((0, 1, 2), (0, 1, 4)) = 4 / sqrt(52 / 3)
        >>> {key: round(value, 6) for key, value in scores.items()}
        {'mcc_pearson': 0.960769, 'mcc_spearman': 1.0}
    """
    from scipy.stats import rankdata

    table, labels = as_codes_and_labels(codes, factors, continuous)
    parts = [(table, as_numbers(labels.values))]
    if not labels.complete_rows().all():
        parts = [(table[c.rows], c.values[:, None].astype(np.float64)) for c in labels.columns()]
    pearson = [absolute_correlations(codes, values) for codes, values in parts]
    spearman = [absolute_correlations(rankdata(codes, axis=0), rankdata(values, axis=0)) for codes, values in parts]
    return {
        "mcc_pearson": best_assignment_mean(np.concatenate(pearson, axis=1)),
        "mcc_spearman": best_assignment_mean(np.concatenate(spearman, axis=1)),
    }


def as_numbers(values: Real[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Return labels as float64. Of integers, the smallest of each column is subtracted, so that large ones stay exact.

    >>> as_numbers(np.array([[2**60], [2**60 + 1]])).tolist()
    [[0.0], [1.0]]
    """
    if values.dtype.kind not in "iu":
        return values.astype(np.float64)
    return np.asarray((values - values.min(axis=0)).astype(np.uint64).astype(np.float64))  # unsigned, if they overflow


def absolute_correlations(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "d k"]:
    """Return the absolute Pearson correlation of each column of `a` with each column of `b`.

    Constant columns have correlation 0.

    >>> absolute_correlations(np.array([[0.0, 3.0], [1.0, 3.0]]), np.array([[1.0], [0.0]])).round(6).tolist()
    [[1.0], [0.0]]
    """
    return np.asarray(np.minimum(1.0, np.abs(_unit_columns(a).T @ _unit_columns(b))))


def _unit_columns(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return the columns centred and scaled to length 1. Constant columns become 0.

    Halving the values and dividing by the range first prevents overflow of the squares.
    """
    low, high = x.min(axis=0) / 2, x.max(axis=0) / 2
    varies = high > low
    scaled = np.where(varies, (x / 2 - low) / np.where(varies, high - low, 1), 0.0)
    centred = scaled - scaled.mean(axis=0)
    return np.asarray(centred / np.where(varies, np.linalg.norm(centred, axis=0), 1))


def best_assignment_mean(correlations: Float[np.ndarray, "d k"]) -> float:
    """Assign rows to columns one to one so that the sum of the assigned entries is largest. Return their mean.

    The mean is taken over all columns. A column without a row contributes 0.

    >>> best_assignment_mean(np.array([[0.9, 0.8], [0.8, 0.1]]))
    0.8
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(correlations, maximize=True)
    return float(correlations[rows, columns].sum() / correlations.shape[1])
