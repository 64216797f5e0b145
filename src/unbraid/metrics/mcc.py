"""Mean correlation coefficient."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from unbraid.metrics.arrays import Codes, Factors, as_codes_and_factors


def mcc(codes: Codes, factors: Factors) -> dict[str, float]:
    r"""The mean correlation of each factor with its own code, under the best one-to-one assignment.

    .. math:: \frac{1}{k} \max_{\pi} \sum_j \left| \mathrm{corr}(c_{\pi(j)}, v_j) \right|

    where :math:`\pi` runs over the assignments of different codes to factors, and corr is Pearson's coefficient of the
    values (`mcc_pearson`) or of their ranks, with ties averaged (`mcc_spearman`).

    The scores lie in [0, 1]. 0 means that no code correlates with any factor. 1 means that every factor has its own
    code, which is a linear (Pearson) or monotonic (Spearman) function of it.

    The mean is over factors. If there are fewer codes than factors, the unmatched factors count 0; if there are more
    codes, the unmatched codes are ignored. An exactly constant code has correlation 0 with everything. Each of the two
    scores has its own optimal assignment. Factors are integer labels that are read as numbers: their order and, for
    Pearson, their spacing matter.

    Limitations: A code that determines a factor but does not preserve its order scores low, so cyclic factors
    (orientation, hue) and categorical factors (shape) lower the score of every model. Pearson also penalises curvature.
    Noise scores above 0, by about the largest of d correlations of size 1 / sqrt(n). Surplus codes cost nothing: a
    perfect code beside copies of itself or noise scores 1. A rotated code scores its cosines, .5 and more for few
    factors.

    Deviations: Papers compare as many continuous sources as codes; the rules for other numbers of codes are our own.

    Reference: Hyvarinen and Morioka (2016), arXiv:1605.06336. Ranks are used as in Klindt et al. (2021),
    arXiv:2007.10930.

    Args:
        codes: Array of shape (n, d), one row per point and one column per code dimension.
        factors: Integer array of shape (n, k), one row per point and one column per factor.

    Returns:
        `mcc_pearson` and `mcc_spearman`, the two scores.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers, or if a factor is constant.

    Example:
        >>> factors = np.indices((3, 3)).reshape(2, -1).T
        >>> scores = mcc(-(factors[:, ::-1] ** 2), factors)  # (0, 1, 2) and (0, 1, 4) correlate 4 / sqrt(52 / 3)
        >>> {key: round(value, 6) for key, value in scores.items()}
        {'mcc_pearson': 0.960769, 'mcc_spearman': 1.0}
    """
    from scipy.stats import rankdata

    table, values = as_codes_and_factors(codes, factors)
    ranks, value_ranks = rankdata(table, axis=0), rankdata(values, axis=0)
    return {
        "mcc_pearson": best_assignment_mean(correlation(table, values.astype(np.float64))),
        "mcc_spearman": best_assignment_mean(correlation(ranks, value_ranks)),
    }


def correlation(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "d k"]:
    """Return the absolute Pearson correlation of each column of `a` with each column of `b`; 0 for constant columns.

    >>> correlation(np.array([[0.0, 3.0], [1.0, 3.0]]), np.array([[1.0], [0.0]])).round(6).tolist()
    [[1.0], [0.0]]
    """
    return np.asarray(np.minimum(1.0, np.abs(_unit(a).T @ _unit(b))))


def _unit(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return centred columns of length 1. Halving and dividing by the range first keeps squares from overflowing."""
    low, high = x.min(axis=0) / 2, x.max(axis=0) / 2
    varies = high > low
    scaled = np.where(varies, (x / 2 - low) / np.where(varies, high - low, 1), 0.0)
    centred = scaled - scaled.mean(axis=0)
    return np.asarray(centred / np.where(varies, np.linalg.norm(centred, axis=0), 1))


def best_assignment_mean(correlations: Float[np.ndarray, "d k"]) -> float:
    """Return the mean over columns of the best one-to-one assignment of rows; a column without a row counts 0.

    >>> best_assignment_mean(np.array([[0.9, 0.8], [0.8, 0.1]]))
    0.8
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(correlations, maximize=True)
    return float(correlations[rows, columns].sum() / correlations.shape[1])
