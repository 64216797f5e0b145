"""Explicitness."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, as_codes, as_factors, labelled, refusal, same_columns, same_rows


def explicitness(codes: Codes, factors: Factors, test_codes: Codes, test_factors: Factors) -> dict[str, float]:
    r"""How well the values of each factor can be told from all codes by a linear classifier.

    .. math:: \frac{1}{k} \sum_j \frac{1}{|V_j|} \sum_{v \in V_j} \mathrm{AUC}_{jv}, \quad
        \mathrm{AUC}_{jv} = P\left( p_v(c) > p_v(c') \right) + \tfrac{1}{2} P\left( p_v(c) = p_v(c') \right)

    with :math:`c` a point whose factor j is v, :math:`c'` one whose factor is not, and :math:`p_v` the probability that
    a logistic regression from standardised codes to factor j gives to v.

    0.5: chance. 0: every value is ranked last where it is right, which only an unlucky test sample shows. 1: every
    value is ranked above all others. A perfect code of the usual datasets scores .99 to 1: the area saturates.

    Codes are standardised by mean and standard deviation of the training points. A constant training code becomes 0.
    A value missing from the test points, or held by all of them, has no area there and is left out of the mean of its
    factor; so is a value that occurs in the test points only. A factor of which no value is left is refused, and so is
    a factor of one training value.

    Beware: a rotated code scores as high as an aligned one, and copies lose nothing: explicitness is about what is told
    linearly, not where. Noise codes beside good ones cost little. Factors told by a code in a non-linear way (circular,
    folded) score low.

    Deviations: the reference raises for a constant code and for a value missing from the test points.

    Reference: Ridgeway and Mozer (2018), arXiv:1802.05312; the regression's defaults as in arXiv:1811.12359, with
    scikit-learn's multinomial default of 1.9, not the one-vs-rest of 2018.

    >>> factors = np.indices((3, 4)).reshape(2, -1).T
    >>> explicitness(factors[:, :1], factors[:, :1] > 1, factors[:, :1], factors[:, :1] > 1)
    {'explicitness_score_train': 1.0, 'explicitness_score_test': 1.0}
    """
    table, values = labelled(codes, factors)
    test_table, test_values = as_codes(test_codes, "Test codes"), as_factors(test_factors, "Test factors")
    same_rows(test_table, test_values)
    same_columns(table, test_table, "Codes")
    same_columns(values, test_values, "Factors")
    areas = areas_by_factor(table, values, test_table, test_values)
    return {f"explicitness_score_{part}": float(areas[i].mean()) for i, part in enumerate(("train", "test"))}


def areas_by_factor(
    codes: Float[np.ndarray, "n d"],
    factors: Int[np.ndarray, "n k"],
    test_codes: Float[np.ndarray, "m d"],
    test_factors: Int[np.ndarray, "m k"],
) -> Float[np.ndarray, "2 k"]:
    """The mean area of the values of every factor, on the training and on the test points.

    >>> points = np.array([[-1.0], [-2.0], [1.0], [2.0]])
    >>> areas_by_factor(points, (points > 0).astype(int), -points, (points > 0).astype(int)).tolist()
    [[1.0], [0.0]]
    """
    from unbraid.metrics.linear import logistic_regression

    live = np.ptp(codes, axis=0) > 0
    centre, spread = codes.mean(axis=0), np.where(live, codes.std(axis=0), 1.0)
    train, test = (np.where(live, (points - centre) / spread, 0.0) for points in (codes, test_codes))
    means = np.empty((2, factors.shape[1]))
    for j in range(factors.shape[1]):
        model = logistic_regression(train, factors[:, j])
        for i, (points, values) in enumerate(((train, factors), (test, test_factors))):
            areas = areas_under_curve(model.probabilities(points), values[:, j], model.classes)
            if np.isnan(areas).all():
                rule = "Some value of every factor must be shared by training points and some, not all, test points."
                raise refusal(rule, f"none in factor column {j}", "Pass other test points, or drop that factor.")
            means[i, j] = np.nanmean(areas)
    return means


def areas_under_curve(
    scores: Float[np.ndarray, "n c"], labels: Int[np.ndarray, " n"], classes: Int[np.ndarray, " c"]
) -> Float[np.ndarray, " c"]:
    r"""The area under the ROC curve of each class against the rest, ties counted half; NaN where it is undefined.

    .. math:: \frac{\sum_{i : y_i = v} r_i - n_v (n_v + 1) / 2}{n_v (n - n_v)}

    with :math:`r_i` the rank of score i among all n, the mean rank for equal scores.

    >>> scores = np.array([[0.1], [0.4], [0.4], [0.8]])
    >>> areas_under_curve(scores, np.array([0, 0, 1, 1]), np.array([1])).tolist()
    [0.875]
    """
    n, areas = len(labels), np.full(len(classes), np.nan)
    ordered = np.sort(scores, axis=0)
    for c, value in enumerate(classes):
        own = scores[labels == value, c]
        if 0 < len(own) < n:
            below, upto = (np.searchsorted(ordered[:, c], own, side).sum() for side in ("left", "right"))
            pairs = (int(below) + int(upto) - len(own) ** 2) / 2  # ranks start at 1: (below + upto + 1) / 2 each
            areas[c] = pairs / (len(own) * (n - len(own)))
    return areas
