"""Separated attribute predictability."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Real

from unbraid.metrics.arrays import Codes, Factors, as_codes, as_factors, same_columns, same_rows, varied


def sap(
    codes: Codes, factors: Factors, test_codes: Codes, test_factors: Factors, *, continuous: bool = False
) -> dict[str, float]:
    r"""How much better the best single code predicts each factor than the second best.

    .. math:: \frac{1}{k} \sum_j \left( S_{i_1 j} - S_{i_2 j} \right)

    with :math:`S_{ij}` the test accuracy of a linear SVM from code i to factor j, or, where `continuous`, their squared
    correlation on the training points (the test points are checked but not used, and factors may be any real number).

    0: every factor is predicted equally by two codes. 1: one code predicts the factor, all others always fail; with
    accuracies that is out of reach. One-vs-rest lines through one code cannot pick a middle value, so even a perfect
    code, centred at 0, scores only .25 to .41 on the usual datasets. Codes are not standardised, and the SVM penalises
    slope and intercept: scaling or shifting a code changes its accuracies. Needs at least 2 codes; a factor of one
    value is refused, and a test value that was never trained on counts as an error.

    Beware: duplicated codes score 0, whatever they tell; a factor of many values scores low however well it is told; a
    squeezed code (small in scale) is regularised away. Noise codes beside good ones cost little. Rotated ones score
    lower.

    Deviations: each SVM is solved to its minimum, where scikit-learn stops liblinear at a tolerance of 1e-4: single
    accuracies of 5,000 test points differ by at most about .001. Older tables used scikit-learn's random dual solver.

    Reference: Kumar et al. (2018), arXiv:1711.00848; C = 0.01 and balanced classes as in arXiv:1811.12359.

    >>> factors = np.indices((2, 2)).reshape(2, -1).T
    >>> sap(10 * factors, factors, 10 * factors, factors)
    {'SAP_score': 0.5}
    >>> sap(factors, factors, factors, factors, continuous=True)
    {'SAP_score_continuous': 1.0}
    """
    table, test_table = as_codes(codes, columns=2), as_codes(test_codes, "Test codes")
    read = as_codes if continuous else as_factors
    values, test_values = read(factors, "Factors"), read(test_factors, "Test factors")
    same_rows(table, values)
    same_rows(test_table, test_values)
    same_columns(table, test_table, "Codes")
    same_columns(values, test_values, "Factors")
    varied(values)
    if continuous:
        return {"SAP_score_continuous": _gap(squared_correlation(table, values))}
    from unbraid.metrics.linear import svm_accuracies

    return {"SAP_score": _gap(svm_accuracies(table, values, test_table, test_values))}


def _gap(scores: Float[np.ndarray, "d k"]) -> float:
    """The mean over factors of the best minus the second best score."""
    ordered = np.sort(scores, axis=0)
    return float((ordered[-1] - ordered[-2]).mean())


def squared_correlation(codes: Float[np.ndarray, "n d"], factors: Real[np.ndarray, "n k"]) -> Float[np.ndarray, "d k"]:
    r"""Squared Pearson correlation of every code with every factor; 0 where a variance is at most 1e-12.

    .. math:: S_{ij} = \frac{\mathrm{Cov}(c_i, v_j)^2}{\mathrm{Var}(c_i) \mathrm{Var}(v_j)}

    >>> squared_correlation(np.array([[0.0, 3.0], [1.0, 3.0]]), np.array([[1], [0]])).tolist()
    [[1.0], [0.0]]
    """
    c, v = codes - codes.mean(axis=0), factors - factors.mean(axis=0)
    spread_c, spread_v = codes.var(axis=0, ddof=1), factors.var(axis=0, ddof=1)
    scores = np.zeros((len(spread_c), len(spread_v)))
    live = np.outer(spread_c > 1e-12, spread_v > 1e-12)
    np.divide((c.T @ v / (len(c) - 1)) ** 2, np.outer(spread_c, spread_v), out=scores, where=live)
    return scores
