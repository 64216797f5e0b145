"""Linear support vector machines on one code at a time: what ``LinearSVC`` approaches, solved exactly."""

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
    """Test accuracy of a linear SVM (C = 0.01, balanced classes) from every single code to every factor.

    >>> codes = np.array([[-9.0], [-8.0], [8.0], [9.0]])
    >>> svm_accuracies(codes, (codes > 0).astype(int), codes, (codes > 0).astype(int)).tolist()
    [[1.0]]
    """
    from unbraid.metrics.linear.hinge import hits

    accuracies = np.empty((codes.shape[1], factors.shape[1]))
    orders = [np.argsort(code, kind="stable") for code in codes.T]
    for j, (factor, test_factor) in enumerate(zip(factors.T, test_factors.T, strict=True)):
        classes, y = np.unique(factor, return_inverse=True)
        place = np.minimum(np.searchsorted(classes, test_factor), len(classes) - 1)
        truth = np.where(classes[place] == test_factor, place, -1)  # a value never trained on is always missed
        for i, order in enumerate(orders):
            slopes, intercepts = lines(codes[order, i], y[order], len(classes))
            accuracies[i, j] = hits(slopes, intercepts, np.ascontiguousarray(test_codes[:, i]), truth) / len(truth)
    return accuracies


def lines(
    x: Float[np.ndarray, " n"], y: Int[np.ndarray, " n"], k: int
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    r"""Slope and intercept for each of k classes against the rest; x must be sorted and y be 0 to k - 1.

    .. math:: \min_{w, b} \tfrac{1}{2} (w^2 + b^2) + C \sum_i a_i \max(0, 1 - s_i (w x_i + b))^2

    with :math:`s_i = 1` and :math:`a_i = n / (k n_c)` for the :math:`n_c` rows of the class, and :math:`s_i = -1`,
    :math:`a_i = 1` for the rest, as liblinear weights them. With two classes one line is fitted, whose both sides are
    weighted; the first class gets the line 0.

    >>> slopes, intercepts = lines(np.array([-9.0, -8.0, 8.0, 9.0]), np.array([0, 0, 1, 1]), 2)
    >>> float(slopes[0]), bool(slopes[1] > 0), abs(round(float(intercepts[1]), 12))
    (0.0, True, 0.0)
    """
    from unbraid.metrics.linear.hinge import fitted

    costs = C * len(y) / (k * np.bincount(y, minlength=k))
    slopes, intercepts = fitted(x, y, costs, C)
    return slopes, intercepts
