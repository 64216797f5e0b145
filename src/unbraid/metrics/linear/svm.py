"""Linear support vector machines on single latents.

They solve the optimisation problem of scikit-learn's ``LinearSVC`` exactly.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

C = 0.01  # inverse regularisation strength


def svm_accuracies(
    codes: Float[np.ndarray, "n d"],
    factors: Int[np.ndarray, "n k"],
    test_codes: Float[np.ndarray, "m d"],
    test_factors: Int[np.ndarray, "m k"],
) -> Float[np.ndarray, "d k"]:
    """Fit linear SVMs that predict each factor from each single latent, and return their test accuracies.

    Each SVM equals ``LinearSVC(C=0.01, class_weight="balanced")`` on a single latent.

    >>> codes = np.array([[-9.0], [-8.0], [8.0], [9.0]])
    >>> svm_accuracies(codes, (codes > 0).astype(int), codes, (codes > 0).astype(int)).tolist()
    [[1.0]]
    """
    from unbraid.metrics.linear.hinge import count_correct

    accuracies = np.empty((codes.shape[1], factors.shape[1]))
    orders = [np.argsort(column, kind="stable") for column in codes.T]
    for j, (factor, test_factor) in enumerate(zip(factors.T, test_factors.T, strict=True)):
        classes, y = np.unique(factor, return_inverse=True)
        index = np.minimum(np.searchsorted(classes, test_factor), len(classes) - 1)
        # A test value that does not occur in training gets the class -1, which is never predicted.
        truth = np.where(classes[index] == test_factor, index, -1)
        for i, order in enumerate(orders):
            slopes, intercepts = fit_one_vs_rest(codes[order, i], y[order], len(classes))
            correct = count_correct(slopes, intercepts, np.ascontiguousarray(test_codes[:, i]), truth)
            accuracies[i, j] = correct / len(truth)
    return accuracies


def fit_one_vs_rest(
    x: Float[np.ndarray, " n"], y: Int[np.ndarray, " n"], k: int
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    r"""Fit one line for each of k classes against all other classes, and return the slopes and intercepts.

    .. math:: \min_{w, b} \tfrac{1}{2} (w^2 + b^2) + C \sum_i a_i \max(0, 1 - s_i (w x_i + b))^2

    where :math:`s_i = 1` and :math:`a_i = n / (k n_c)` for the :math:`n_c` rows of the class, and :math:`s_i = -1` and
    :math:`a_i = 1` for all other rows. These are the weights that liblinear uses for ``class_weight="balanced"``. The
    predicted class is the one with the highest line.

    With two classes, one line separates both, as in liblinear. It is fitted for the second class, and each row
    has the weight n / (k n_c) of its own class. The first class has slope 0 and intercept 0, so the second class is
    predicted where its line is above 0.

    Args:
        x: Values of one latent, in increasing order.
        y: Class of each value, from 0 to k - 1.
        k: Number of classes.

    Returns:
        The slopes and the intercepts, one of each per class.

    Example:
        >>> slopes, intercepts = fit_one_vs_rest(np.array([-9.0, -8.0, 8.0, 9.0]), np.array([0, 0, 1, 1]), 2)
        >>> float(slopes[0]), bool(slopes[1] > 0), abs(round(float(intercepts[1]), 12))
        (0.0, True, 0.0)
    """
    from unbraid.metrics.linear.hinge import fit_all_classes

    costs = C * len(y) / (k * np.bincount(y, minlength=k))
    slopes, intercepts = fit_all_classes(x, y, costs, C)
    return slopes, intercepts
