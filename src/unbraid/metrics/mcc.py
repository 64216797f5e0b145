"""Mean correlation coefficient."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from unbraid.metrics.arrays import Codes, Factors, labelled


def mcc(codes: Codes, factors: Factors) -> dict[str, float]:
    r"""How well each factor correlates with a code of its own, under the best one-to-one assignment.

    .. math:: \frac{1}{k} \max_{\pi} \sum_j \left| \mathrm{corr}(c_{\pi(j)}, v_j) \right|

    with :math:`\pi` over the assignments of different codes to factors, and corr Pearson's coefficient of the values
    (`mcc_pearson`, lines) or of their ranks with ties averaged (`mcc_spearman`, monotone curves).

    0: no code correlates with any factor. 1: every factor has its own code, a line (or a monotone curve) of it.
    The mean runs over factors: with fewer codes than factors the unmatched factors count 0, with more codes the others
    are ignored. An exactly constant code correlates 0 with everything. The assignment is optimal for each of the two.

    Factors are integer labels read as numbers: their order and, for Pearson, their spacing matter.

    Beware: a code that knows a factor perfectly but not in its order scores low, so cyclic factors (orientation, hue)
    and categorical ones (shape) pull the score down for every model; Pearson punishes curvature too. Noise scores
    above 0, by about the largest of d correlations of size 1 / sqrt(n). Surplus codes cost nothing: a perfect code with
    copies of itself or noise beside it scores 1. A rotated code scores its cosines, .5 and more for few factors.

    Deviations: papers compare as many continuous sources as codes; the rules for other numbers of codes are ours.

    Reference: Hyvarinen and Morioka (2016), arXiv:1605.06336; with ranks as in Klindt et al. (2021), arXiv:2007.10930.

    >>> factors = np.indices((3, 3)).reshape(2, -1).T
    >>> scores = mcc(-(factors[:, ::-1] ** 2), factors)  # (0, 1, 2) and (0, 1, 4) correlate 4 / sqrt(52 / 3)
    >>> {key: round(value, 6) for key, value in scores.items()}
    {'mcc_pearson': 0.960769, 'mcc_spearman': 1.0}
    """
    from scipy.stats import rankdata

    table, values = labelled(codes, factors)
    ranks, value_ranks = rankdata(table, axis=0), rankdata(values, axis=0)
    return {
        "mcc_pearson": matched(correlation(table, values.astype(np.float64))),
        "mcc_spearman": matched(correlation(ranks, value_ranks)),
    }


def correlation(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "d k"]:
    """Absolute Pearson correlation of every column of `a` with every column of `b`; 0 for exactly constant columns.

    >>> correlation(np.array([[0.0, 3.0], [1.0, 3.0]]), np.array([[1.0], [0.0]])).round(6).tolist()
    [[1.0], [0.0]]
    """
    return np.asarray(np.minimum(1.0, np.abs(_unit(a).T @ _unit(b))))


def _unit(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Columns centred and of length 1; halved and divided by their range first, so that no square overflows."""
    low, high = x.min(axis=0) / 2, x.max(axis=0) / 2
    varies = high > low
    scaled = np.where(varies, (x / 2 - low) / np.where(varies, high - low, 1), 0.0)
    centred = scaled - scaled.mean(axis=0)
    return np.asarray(centred / np.where(varies, np.linalg.norm(centred, axis=0), 1))


def matched(correlations: Float[np.ndarray, "d k"]) -> float:
    """The mean over columns of the best one-to-one assignment of rows; a column without a row counts 0.

    >>> matched(np.array([[0.9, 0.8], [0.8, 0.1]]))
    0.8
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(correlations, maximize=True)
    return float(correlations[rows, columns].sum() / correlations.shape[1])
