"""Linear support vector machines on single codes: the problem of ``LinearSVC``, solved exactly."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

C = 0.01


def svm_accuracies(
    codes: Float[np.ndarray, "n d"],
    factors: Int[np.ndarray, "n k"],
    test_codes: Float[np.ndarray, "m d"],
    test_factors: Int[np.ndarray, "m k"],
) -> Float[np.ndarray, "d k"]:
    """Return the test accuracy of a linear SVM (C = 0.01, balanced classes) from each single code to each factor.

    >>> codes = np.array([[-9.0], [-8.0], [8.0], [9.0]])
    >>> svm_accuracies(codes, (codes > 0).astype(int), codes, (codes > 0).astype(int)).tolist()
    [[1.0]]
    """
    from unbraid.metrics.linear.hinge import count_correct

    accuracies = np.empty((codes.shape[1], factors.shape[1]))
    orders = [np.argsort(code, kind="stable") for code in codes.T]
    for j, (factor, test_factor) in enumerate(zip(factors.T, test_factors.T, strict=True)):
        classes, y = np.unique(factor, return_inverse=True)
        place = np.minimum(np.searchsorted(classes, test_factor), len(classes) - 1)
        truth = np.where(
            classes[place] == test_factor, place, -1
        )  # a value that does not occur in training is always an error
        for i, order in enumerate(orders):
            slopes, intercepts = one_vs_rest_lines(codes[order, i], y[order], len(classes))
            accuracies[i, j] = count_correct(slopes, intercepts, np.ascontiguousarray(test_codes[:, i]), truth) / len(
                truth
            )
    return accuracies


def one_vs_rest_lines(
    x: Float[np.ndarray, " n"], y: Int[np.ndarray, " n"], k: int
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    r"""Return slope and intercept for each of k classes against the rest; x must be sorted and y be 0 to k - 1.

    .. math:: \min_{w, b} \tfrac{1}{2} (w^2 + b^2) + C \sum_i a_i \max(0, 1 - s_i (w x_i + b))^2

    where :math:`s_i = 1` and :math:`a_i = n / (k n_c)` for the :math:`n_c` rows of the class, and :math:`s_i = -1` and
    :math:`a_i = 1` for the rest, as in liblinear. With two classes one line is fitted, with class weights on both
    sides, and the first class has the line 0.

    >>> slopes, intercepts = one_vs_rest_lines(np.array([-9.0, -8.0, 8.0, 9.0]), np.array([0, 0, 1, 1]), 2)
    >>> float(slopes[0]), bool(slopes[1] > 0), abs(round(float(intercepts[1]), 12))
    (0.0, True, 0.0)
    """
    from unbraid.metrics.linear.hinge import fit_lines

    costs = C * len(y) / (k * np.bincount(y, minlength=k))
    slopes, intercepts = fit_lines(x, y, costs, C)
    return slopes, intercepts
