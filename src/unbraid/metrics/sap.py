"""Separated attribute predictability (SAP)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Real

from unbraid.metrics.arrays import Codes, Factors
from unbraid.metrics.labels import Column, Continuous, as_codes_and_labels, as_test_arrays


def sap(
    codes: Codes, factors: Factors, test_codes: Codes, test_factors: Factors, *, continuous: Continuous = False
) -> dict[str, float]:
    r"""Measure the gap in the accuracy of predicting each factor between the best and the second-best latent.

    .. math:: \frac{1}{k} \sum_j \left( S_{i_1 j} - S_{i_2 j} \right)

    where :math:`S_{ij}` is the test accuracy of a linear SVM that predicts factor j from latent i alone, and
    :math:`i_1` and :math:`i_2` are the best and the second-best latent for factor j. If factor j is continuous,
    :math:`S_{ij}` is the squared correlation of latent and factor on the training examples.

    The score lies in [0, 1]. 0 means that for every factor the two best latents predict it equally well. 1 would mean
    that, for each factor, one latent predicts it without error and all other latents are always wrong, which is
    impossible in practice. A one-vs-rest linear classifier on one latent cannot select a value between two others, so
    even a perfect representation, centred at 0, scores only 0.24 to 0.41 on the usual datasets.

    Codes are not standardised, and the SVM penalises slope and intercept, so scaling or shifting a latent changes its
    accuracies. A test value that does not occur in the training examples is always counted as an error.

    Continuous factors: As in the paper, :math:`S_{ij}` of a continuous factor is the coefficient of determination of a
    linear regression on one latent. It equals the squared correlation. A perfect representation scores 1. For each
    factor, only the rows that have a label for it are used. ``continuous=True`` treats all factors as continuous and
    calls the score `SAP_score_continuous`, as in published tables.

    Limitations: Duplicated latents score 0, however informative they are. A factor with many values scores low, however
    well it is represented. The penalty suppresses latents with a small scale. Noise latents beside good latents lower
    the score only a little. Rotated representations score lower than aligned ones.

    Deviations: Each SVM is solved to its minimum, whereas scikit-learn stops liblinear at a tolerance of 1e-4. Single
    accuracies on 5,000 test examples differ by at most about 0.001. Older published scores were computed with
    scikit-learn's randomised dual solver.

    Reference: Kumar et al. (2018), arXiv:1711.00848. C = 0.01 and balanced classes follow Locatello et al. (2019),
    arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Array of shape (m, k), the factors of the test examples. For continuous factors, the test arrays
            are checked but not used.
        continuous: Whether each factor is continuous, or one bool for all factors.

    Returns:
        `SAP_score`, or `SAP_score_continuous` if `continuous` is true.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, or if there are fewer than 2 latents.

    Example:
        >>> factors = np.indices((2, 2)).reshape(2, -1).T
        >>> sap(10 * factors, factors, 10 * factors, factors)
        {'SAP_score': 0.5}
        >>> sap(factors, factors, factors, factors, continuous=True)
        {'SAP_score_continuous': 1.0}
    """
    table, labels = as_codes_and_labels(codes, factors, continuous, min_codes=2)
    test_table, test_labels = as_test_arrays(test_codes, test_factors, table, labels)
    scores = [
        scores_of_latents(table, column, test_table, test_column)
        for column, test_column in zip(labels.columns(), test_labels.columns(), strict=True)
    ]
    return {"SAP_score_continuous" if continuous is True else "SAP_score": mean_gap(np.stack(scores, axis=1))}


def scores_of_latents(
    codes: Float[np.ndarray, "n d"], column: Column, test_codes: Float[np.ndarray, "m d"], test_column: Column
) -> Float[np.ndarray, " d"]:
    """Return how well each latent alone predicts one factor."""
    from unbraid.metrics.linear import svm_accuracies

    rows, values = codes[column.rows], column.values[:, None]
    if column.continuous:
        return np.asarray(squared_correlation(rows, values)[:, 0])
    return np.asarray(svm_accuracies(rows, values, test_codes[test_column.rows], test_column.values[:, None])[:, 0])


def mean_gap(scores: Float[np.ndarray, "d k"]) -> float:
    """Return the difference between the best and the second-best score of each factor, averaged over factors."""
    ordered = np.sort(scores, axis=0)
    return float((ordered[-1] - ordered[-2]).mean())


def squared_correlation(codes: Float[np.ndarray, "n d"], factors: Real[np.ndarray, "n k"]) -> Float[np.ndarray, "d k"]:
    r"""Return the squared Pearson correlation of each latent with each factor, or 0 if a variance is at most 1e-12.

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
