"""Explicitness: how well factors can be predicted linearly."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, input_error
from unbraid.metrics.labels import Column, Continuous, Labels, as_codes_and_labels, as_test_arrays
from unbraid.metrics.regression import concordance


def explicitness(
    codes: Codes, factors: Factors, test_codes: Codes, test_factors: Factors, continuous: Continuous = None
) -> dict[str, float]:
    r"""Measure how well each factor can be predicted linearly from all latents, as the mean area under the ROC curve.

    .. math:: \frac{1}{k} \sum_j \frac{1}{|V_j|} \sum_{v \in V_j} \mathrm{AUC}_{jv}, \quad
        \mathrm{AUC}_{jv} = P\left( p_v(c) > p_v(c') \right) + \tfrac{1}{2} P\left( p_v(c) = p_v(c') \right)

    where :math:`c` are the codes of an example with value v of factor j, :math:`c'` are those of an example with a
    different value, and :math:`p_v` is the probability of v according to a logistic regression that predicts factor j
    from the standardised codes. :math:`V_j` is the set of values of factor j, and k is the number of factors.

    The score lies in [0, 1]. 1 means that examples with a value always receive a higher probability of this value than
    all other examples. Random guessing scores 0.5. 0 means the opposite ranking, which only an unusual test sample can
    produce. A perfect representation of the usual datasets scores 0.99 to 1, because the area saturates.

    Codes are standardised with the mean and standard deviation of the training examples. A latent that is constant in
    training is set to 0. The area of a value is undefined if the value occurs in none or all of the test examples, or
    if it does not occur in training. Such values are left out of the mean of their factor.

    Continuous factors: The area is replaced by the probability that the predictions of a linear regression on the
    standardised codes order two examples with different labels in the same way as their labels. For a factor with two
    values, this probability equals the area. Like the area, it is 0.5 for random guessing and 1 for a perfect order.
    For each factor, only the rows that have a label for it are used.

    Limitations: A rotated representation scores as high as an aligned one, and copies of latents do not lower the
    score, because the score measures what can be decoded linearly and not from which latent. Noise latents beside good
    latents lower the score only a little. Factors that are represented non-linearly, for example as an angle on a
    circle, score low.

    Deviations: disentanglement_lib (the library of Locatello et al.) raises an error for a constant latent and for a
    value that is missing from the test examples.

    Reference: Ridgeway and Mozer (2018), arXiv:1802.05312. The defaults of the regression follow Locatello et al.
    (2019), arXiv:1811.12359, with the multinomial default of scikit-learn 1.9 instead of the one-vs-rest default of
    2018.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Array of shape (m, k), the factors of the test examples.
        continuous: Whether each factor is continuous. By default all factors are discrete.

    Returns:
        `explicitness_score_test`, the score on the test examples, and `explicitness_score_train`, the score on the
        training examples.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant in training, or if the area of a factor is
            undefined for all of its values.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> explicitness(factors[:, :1], factors[:, :1] > 1, factors[:, :1], factors[:, :1] > 1)
        {'explicitness_score_train': 1.0, 'explicitness_score_test': 1.0}
    """
    table, labels = as_codes_and_labels(codes, factors, continuous)
    test_table, test_labels = as_test_arrays(test_codes, test_factors, table, labels)
    areas = areas_by_factor(table, labels, test_table, test_labels)
    return {f"explicitness_score_{part}": float(areas[i].mean()) for i, part in enumerate(("train", "test"))}


def areas_by_factor(
    codes: Float[np.ndarray, "n d"], labels: Labels, test_codes: Float[np.ndarray, "m d"], test_labels: Labels
) -> Float[np.ndarray, "2 k"]:
    """Return the mean area over the values of each factor, on the training examples and on the test examples.

    >>> from unbraid.metrics.labels import as_labels
    >>> codes = np.array([[-1.0], [-2.0], [1.0], [2.0]])
    >>> areas_by_factor(codes, as_labels(codes > 0), -codes, as_labels(codes > 0)).tolist()
    [[1.0], [0.0]]
    """
    varies = np.ptp(codes, axis=0) > 0
    centre, spread = codes.mean(axis=0), np.where(varies, codes.std(axis=0), 1.0)
    train, test = (np.where(varies, (table - centre) / spread, 0.0) for table in (codes, test_codes))
    means = np.empty((2, len(labels.continuous)))
    for j, columns in enumerate(zip(labels.columns(), test_labels.columns(), strict=True)):
        areas = _factor_areas(train, columns[0], test, columns[1])
        if any(np.isnan(area).all() for area in areas):
            rule = "At least one value of every factor must occur in training and in some, but not all, test examples."
            raise input_error(rule, f"none in factor column {j}", "Pass other test examples, or drop that factor.")
        means[:, j] = [np.nanmean(area) for area in areas]
    return means


def _factor_areas(
    train: Float[np.ndarray, "n d"], column: Column, test: Float[np.ndarray, "m d"], test_column: Column
) -> list[Float[np.ndarray, " _"]]:
    """Return the areas of the values of one factor on the training examples and on the test examples.

    For a continuous factor there is one area, which is the probability of the correct order.
    """
    from unbraid.metrics.linear import logistic_regression, ridge_regression

    parts = (train[column.rows], column.values), (test[test_column.rows], test_column.values)
    if column.continuous:
        line = ridge_regression(*parts[0])
        return [np.array([concordance(line.predict(table), values)]) for table, values in parts]
    model = logistic_regression(*parts[0])
    return [areas_under_curve(model.probabilities(table), values, model.classes) for table, values in parts]


def areas_under_curve(
    scores: Float[np.ndarray, "n c"], labels: Int[np.ndarray, " n"], classes: Int[np.ndarray, " c"]
) -> Float[np.ndarray, " c"]:
    r"""Return the area under the ROC curve of each class against the rest, or NaN where it is undefined.

    .. math:: \frac{\sum_{i : y_i = v} r_i - n_v (n_v + 1) / 2}{n_v (n - n_v)}

    where v is the class, :math:`y_i` is the label of row i, :math:`n_v` is the number of rows with label v, and
    :math:`r_i` is the rank of the score of row i for class v among all n rows. Equal scores have the mean of their
    ranks, so a tie contributes one half.

    >>> scores = np.array([[0.1], [0.4], [0.4], [0.8]])
    >>> areas_under_curve(scores, np.array([0, 0, 1, 1]), np.array([1])).tolist()
    [0.875]
    """
    n, areas = len(labels), np.full(len(classes), np.nan)
    ordered = np.sort(scores, axis=0)
    for c, value in enumerate(classes):
        own = scores[labels == value, c]
        if 0 < len(own) < n:
            below, up_to = (np.searchsorted(ordered[:, c], own, side).sum() for side in ("left", "right"))
            pairs = (
                int(below) + int(up_to) - len(own) ** 2
            ) / 2  # because the rank of a score is (below + up_to + 1) / 2
            areas[c] = pairs / (len(own) * (n - len(own)))
    return areas
