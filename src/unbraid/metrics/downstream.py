"""Downstream classification: the accuracy of predicting each factor from all latents, by number of training rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from unbraid.metrics.arrays import Codes, Factors, check_at_least, input_error
from unbraid.metrics.labels import Column, Continuous, Labels, as_codes_and_labels, as_test_arrays
from unbraid.metrics.regression import prediction_score

SIZES = (10, 100, 1_000, 10_000)
Table = np.ndarray[Any, np.dtype[np.float64]]
Values = np.ndarray[Any, np.dtype[Any]]
Fit = Callable[[Table, Column, Table], tuple[Values, Values]]


def downstream(
    codes: Codes,
    factors: Factors,
    test_codes: Codes,
    test_factors: Factors,
    continuous: Continuous = None,
    *,
    model: str = "gbt",
    sizes: Sequence[int] | int = SIZES,
    seed: int = 0,
) -> dict[str, float]:
    """Measure the accuracy of predicting each factor from all latents with the given model.

    The function calls `downstream_gbt` or `downstream_lr`, which document the score.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Array of shape (m, k), the factors of the test examples.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        model: "gbt" for gradient-boosted trees, or "lr" for logistic regression.
        sizes: Numbers of training rows, or one number. Sizes above the number n of rows are replaced by n.
        seed: Random seed for the model.

    Returns:
        The scores of the model.

    Raises:
        UserError: If `model` is unknown, or if the function for the model raises an error.

    Example:
        >>> codes = np.linspace(-1, 1, 40)[:, None]
        >>> downstream(codes, codes > 0, codes, codes > 0, model="lr", sizes=[40])["mean_test_accuracy"]
        1.0
    """
    if model not in ("gbt", "lr"):
        raise input_error("The 'model' parameter must be 'gbt' or 'lr'.", repr(model), "Choose one of them.")
    metric = downstream_gbt if model == "gbt" else downstream_lr
    return metric(codes, factors, test_codes, test_factors, continuous, sizes=sizes, seed=seed)


def downstream_lr(
    codes: Codes,
    factors: Factors,
    test_codes: Codes,
    test_factors: Factors,
    continuous: Continuous = None,
    *,
    sizes: Sequence[int] | int = SIZES,
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure the accuracy of predicting each factor from all latents with a cross-validated logistic regression.

    .. math:: \frac{1}{k} \sum_j \frac{1}{m} \sum_i \left[ \hat v_j(c_i) = v_{ij} \right]

    where :math:`\hat v_j` is fitted to the first N training rows, for each N in `sizes`, and i runs over the m test
    examples.

    The score lies in [0, 1]. 0 means that no prediction is correct. 1 means that all predictions are correct. A
    representation without information scores the mean frequency of the most common value of each factor.

    The penalty is selected from 10 values by cross-validation with 5 contiguous folds. Codes are not standardised, and
    the solver stops after 100 iterations. If all of the first N rows have the same value, this value is always
    predicted. A test value that does not occur in the first N rows is always counted as an error.

    Continuous factors: The model of a continuous factor is a ridge regression on standardised codes. Its penalty is
    selected from 10 values by 5-fold cross-validation. In place of the accuracy, the scores contain the coefficient of
    determination of its predictions, limited to [0, 1], so codes without information score 0. The training rows of each
    factor are the first N rows that have a label for it.

    Limitations: The regression does not converge in 100 iterations for factors with many values, and how far it gets
    depends on the scale of the codes. Scaling one latent changed the accuracy of a factor with 24 values from 0.57 to
    0.77. A linear model cannot separate neighbouring values well, so even a perfect representation of a factor with 40
    values scores well below 1. Rotated, mixed and duplicated latents do not lower the score, because it measures which
    information the codes contain and not how it is arranged. Contiguous folds are misleading if the rows are sorted by
    a factor.

    Deviations: The training sets are nested, because each size uses the first rows of one sample, whereas
    disentanglement_lib (the library of Locatello et al.) draws new rows for each size. The iterations equal those of
    scikit-learn up to rounding. If they do not converge, rounding affects the result. For example, the test accuracy of
    scikit-learn for a factor with 24 values varied between 0.54 and 0.59 when the codes were changed by a relative
    amount of 1e-15. From 1,000 rows on, the fits of the folds, which only select the penalty and the start of the last
    fit, are computed in float32 if that represents the codes exactly.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.5.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Array of shape (m, k), the factors of the test examples.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        sizes: Numbers of training rows, or one number. Sizes above the number n of rows are replaced by n.
        seed: Ignored, because nothing is drawn at random. It exists because all metrics with a downstream model take a
            seed.

    Returns:
        A dictionary of accuracies. For each size N it contains the mean over factors, ``N:mean_test_accuracy``; the
        accuracy of the worst factor, ``N:min_test_accuracy``; the accuracy of each factor j,
        ``N:test_accuracy_factor_j``; and the same keys with ``train`` for the N training rows. `mean_train_accuracy`
        and `mean_test_accuracy` repeat the means of the largest size. `statistical_efficiency` is the mean test
        accuracy with 100 rows divided by that with 10,000 rows. It is present if both sizes were used, and it is above
        1 if the predictions with fewer rows were better.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, or if a size is below 2.

    Example:
        >>> codes = np.linspace(-1, 1, 40)[:, None]
        >>> scores = downstream_lr(codes, codes > 0, codes, codes > 0, sizes=[20, 40])
        >>> scores["20:mean_test_accuracy"], scores["40:min_test_accuracy"]
        (0.5, 1.0)
    """
    return _accuracy_scores(_predict_linear, codes, factors, test_codes, test_factors, continuous, sizes)


def downstream_gbt(
    codes: Codes,
    factors: Factors,
    test_codes: Codes,
    test_factors: Factors,
    continuous: Continuous = None,
    *,
    sizes: Sequence[int] | int = SIZES,
    trees: str = "fast",
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure the accuracy of predicting each factor from all latents with gradient-boosted trees.

    .. math:: \frac{1}{k} \sum_j \frac{1}{m} \sum_i \left[ \hat v_j(c_i) = v_{ij} \right]

    where :math:`\hat v_j` is a model with 100 stages of trees of depth 3, fitted to the first N training rows for each
    N in `sizes`, and i runs over the m test examples.

    The score lies in [0, 1]. 0 means that no prediction is correct. 1 means that all predictions are correct. A
    representation without information scores the mean frequency of the most common value of each factor.

    If all of the first N rows have the same value, this value is always predicted. A test value that does not occur in
    the first N rows is always counted as an error. Trees depend only on the order of the values of each latent, so
    scale and shift do not matter.

    Continuous factors: The trees of a continuous factor are regression trees, fitted to the squared error with the same
    stages and depth. In place of the accuracy, the scores contain the coefficient of determination of their
    predictions, limited to [0, 1], so codes without information score 0. The training rows of each factor are the first
    N rows that have a label for it.

    Limitations: Trees memorise, so even noise latents predict well if test examples are also training examples. Trees
    cut along single latents, so a rotated representation scores a little lower than an aligned one. The score therefore
    depends both on the information in the codes and on how it is arranged. Duplicated and constant latents do not lower
    the score.

    Deviations: The training sets are nested, because each size uses the first rows of one sample, whereas
    disentanglement_lib (the library of Locatello et al.) draws new rows for each size.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.5.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Array of shape (m, k), the factors of the test examples.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        sizes: Numbers of training rows, or one number. Sizes above the number n of rows are replaced by n.
        trees: "fast" for our implementation, or "sklearn" for scikit-learn's, which is about a hundred times slower.
        seed: Random seed that breaks ties between equally good cuts.

    Returns:
        A dictionary of accuracies. For each size N it contains the mean over factors, ``N:mean_test_accuracy``; the
        accuracy of the worst factor, ``N:min_test_accuracy``; the accuracy of each factor j,
        ``N:test_accuracy_factor_j``; and the same keys with ``train`` for the N training rows. `mean_train_accuracy`
        and `mean_test_accuracy` repeat the means of the largest size. `statistical_efficiency` is the mean test
        accuracy with 100 rows divided by that with 10,000 rows. It is present if both sizes were used, and it is above
        1 if the predictions with fewer rows were better.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, or if a size is below 2.

    Example:
        >>> codes = np.linspace(-1, 1, 40)[:, None]
        >>> downstream_gbt(codes, codes > 0, codes, codes > 0, sizes=[40])["40:mean_test_accuracy"]
        1.0
    """
    fit = partial(predict_boosted, trees=trees, seed=seed)
    return _accuracy_scores(fit, codes, factors, test_codes, test_factors, continuous, sizes)


def _predict_linear(codes: Table, column: Column, test_codes: Table) -> tuple[Values, Values]:
    """Fit a linear model of one factor, and return its predictions for the training and the test examples."""
    from unbraid.metrics.linear import logistic_regression_cv, ridge_regression_cv

    if column.continuous:
        line = ridge_regression_cv(codes, column.values)
        return line.predict(codes), line.predict(test_codes)
    model = logistic_regression_cv(codes, column.values)
    return model.predict(codes), model.predict(test_codes)


def predict_boosted(codes: Table, column: Column, test_codes: Table, *, trees: str, seed: int) -> tuple[Values, Values]:
    """Fit boosted trees to one factor, and return their predictions for the training and the test examples."""
    from unbraid.metrics.trees import boosted_regression, boosted_trees

    values = column.values
    if (values == values[0]).all():
        return values, np.full(len(test_codes), values[0])
    forest = (boosted_regression if column.continuous else boosted_trees)(codes, values, seed=seed, trees=trees)
    return forest.train_predictions, forest.predict(test_codes)


def _accuracy_scores(
    fit: Fit,
    codes: Codes,
    factors: Factors,
    test_codes: Codes,
    test_factors: Factors,
    continuous: Continuous,
    sizes: Sequence[int] | int,
) -> dict[str, float]:
    """Return the accuracies for every size. Sizes above the number of rows are replaced by the number of rows."""
    table, labels = as_codes_and_labels(codes, factors, continuous)
    test_table, test_labels = as_test_arrays(test_codes, test_factors, table, labels)
    scores: dict[str, float] = {}
    for size in (used := _usable_sizes(sizes, len(table))):
        train_and_test = accuracies_by_factor(fit, size, table, labels, test_table, test_labels)
        for part, accuracies in zip(("train", "test"), train_and_test, strict=True):
            scores[f"{size}:mean_{part}_accuracy"] = float(accuracies.mean())
            scores[f"{size}:min_{part}_accuracy"] = float(accuracies.min())
            scores |= {f"{size}:{part}_accuracy_factor_{j}": float(a) for j, a in enumerate(accuracies)}
    for part in ("train", "test"):
        scores[f"mean_{part}_accuracy"] = scores[f"{used[-1]}:mean_{part}_accuracy"]
    few, many = (scores.get(f"{size}:mean_test_accuracy", 0.0) for size in (100, 10_000))
    return scores | ({"statistical_efficiency": few / many} if {100, 10_000} <= set(used) and many > 0 else {})


def _usable_sizes(sizes: Sequence[int] | int, rows: int) -> list[int]:
    """Return the sizes in increasing order. Sizes above the number of rows are replaced by the number of rows."""
    given = list(sizes) if isinstance(sizes, Sequence | np.ndarray) else [sizes]
    for size in given:
        check_at_least(2, sizes=size)
    if not given:
        raise input_error("There must be at least one of the 'sizes'.", "none", "Pass a number of training rows.")
    return sorted({min(int(size), rows) for size in given})


def accuracies_by_factor(
    fit: Fit,
    size: int,
    codes: Float[np.ndarray, "n d"],
    labels: Labels,
    test_codes: Float[np.ndarray, "m d"],
    test_labels: Labels,
) -> Float[np.ndarray, "2 k"]:
    """Return the accuracy of predicting each factor, on the training examples and on the test examples.

    The training examples are the first `size` examples that have a label for the factor.
    """
    accuracies = np.empty((2, len(labels.continuous)))
    for j, (column, test_column) in enumerate(zip(labels.columns(), test_labels.columns(), strict=True)):
        first = column._replace(values=column.values[:size])
        train, test = fit(codes[column.rows][:size], first, test_codes[test_column.rows])
        accuracies[:, j] = prediction_score(train, first), prediction_score(test, test_column)
    return accuracies
