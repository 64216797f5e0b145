"""Separated attribute predictability."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Real

from unbraid.metrics.arrays import (
    Codes,
    Factors,
    as_codes,
    as_factors,
    check_factors_vary,
    check_same_columns,
    check_same_rows,
)


def sap(
    codes: Codes, factors: Factors, test_codes: Codes, test_factors: Factors, *, continuous: bool = False
) -> dict[str, float]:
    r"""The gap in the accuracy of predicting each factor between the best and the second-best single code.

    .. math:: \frac{1}{k} \sum_j \left( S_{i_1 j} - S_{i_2 j} \right)

    where :math:`S_{ij}` is the test accuracy of a linear SVM from code i to factor j, and :math:`i_1` and :math:`i_2`
    are the best and the second-best code of factor j. If `continuous`, :math:`S_{ij}` is the squared correlation of
    code and factor on the training points.

    The score lies in [0, 1]. 0 means that two codes predict every factor equally well. 1 means that one code predicts
    each factor and all other codes are always wrong. Accuracies cannot reach that. One-vs-rest lines on one code cannot
    select a middle value, so even a perfect code, centred at 0, scores only .25 to .41 on the usual datasets.

    Codes are not standardised, and the SVM penalises slope and intercept, so scaling or shifting a code changes its
    accuracies. A test value that does not occur in the training points counts as an error.

    Limitations: Duplicated codes score 0, however informative they are. A factor with many values scores low, however
    well it is represented. A code of small scale is suppressed by the penalty. Noise codes beside good codes cost
    little. Rotated codes score lower.

    Deviations: Each SVM is solved to its minimum, whereas scikit-learn stops liblinear at a tolerance of 1e-4: single
    accuracies on 5,000 test points differ by at most about .001. Older tables used scikit-learn's randomised dual
    solver.

    Reference: Kumar et al. (2018), arXiv:1711.00848. C = 0.01 and balanced classes follow Locatello et al. (2019),
    arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), one row per point and one column per code dimension.
        factors: Integer array of shape (n, k), one row per point and one column per factor. If `continuous`, any real
            numbers.
        test_codes: Array of shape (m, d), the codes of the test points.
        test_factors: Integer array of shape (m, k), the factors of the test points. If `continuous`, the test points
            are checked but not used.
        continuous: Whether to use squared correlations instead of SVM accuracies.

    Returns:
        `SAP_score`, or `SAP_score_continuous` if `continuous`.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers, if a factor is constant, or if there are fewer than 2 codes.

    Example:
        >>> factors = np.indices((2, 2)).reshape(2, -1).T
        >>> sap(10 * factors, factors, 10 * factors, factors)
        {'SAP_score': 0.5}
        >>> sap(factors, factors, factors, factors, continuous=True)
        {'SAP_score_continuous': 1.0}
    """
    table, test_table = as_codes(codes, columns=2), as_codes(test_codes, "Test codes")
    convert = as_codes if continuous else as_factors
    values, test_values = convert(factors, "Factors"), convert(test_factors, "Test factors")
    check_same_rows(table, values)
    check_same_rows(test_table, test_values)
    check_same_columns(table, test_table, "Codes")
    check_same_columns(values, test_values, "Factors")
    check_factors_vary(values)
    if continuous:
        return {"SAP_score_continuous": _gap(squared_correlation(table, values))}
    from unbraid.metrics.linear import svm_accuracies

    return {"SAP_score": _gap(svm_accuracies(table, values, test_table, test_values))}


def _gap(scores: Float[np.ndarray, "d k"]) -> float:
    """Return the mean over factors of the difference between the best and the second-best score."""
    ordered = np.sort(scores, axis=0)
    return float((ordered[-1] - ordered[-2]).mean())


def squared_correlation(codes: Float[np.ndarray, "n d"], factors: Real[np.ndarray, "n k"]) -> Float[np.ndarray, "d k"]:
    r"""Return the squared Pearson correlation of each code with each factor; 0 if a variance is at most 1e-12.

    .. math:: S_{ij} = \frac{\mathrm{Cov}(c_i, v_j)^2}{\mathrm{Var}(c_i) \mathrm{Var}(v_j)}

    >>> squared_correlation(np.array([[0.0, 3.0], [1.0, 3.0]]), np.array([[1], [0]])).tolist()
    [[1.0], [0.0]]
    """
    c, v = codes - codes.mean(axis=0), factors - factors.mean(axis=0)
    variance_c, variance_v = codes.var(axis=0, ddof=1), factors.var(axis=0, ddof=1)
    scores = np.zeros((len(variance_c), len(variance_v)))
    varying = np.outer(variance_c > 1e-12, variance_v > 1e-12)
    np.divide((c.T @ v / (len(c) - 1)) ** 2, np.outer(variance_c, variance_v), out=scores, where=varying)
    return scores
