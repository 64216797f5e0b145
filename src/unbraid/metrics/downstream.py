"""Downstream classification: the accuracy of predicting each factor from all latents, by number of training rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import (
    Codes,
    Factors,
    as_codes_and_factors,
    as_test_arrays,
    check_at_least,
    input_error,
)

SIZES = (10, 100, 1_000, 10_000)
Table = np.ndarray[Any, np.dtype[np.float64]]
Labels = np.ndarray[Any, np.dtype[np.int64]]
Fit = Callable[[Table, Labels, Table], tuple[Labels, Labels]]


def downstream(
    codes: Codes,
    factors: Factors,
    test_codes: Codes,
    test_factors: Factors,
    *,
    model: str = "gbt",
    sizes: Sequence[int] = SIZES,
    seed: int = 0,
) -> dict[str, float]:
    """Measure the accuracy of predicting each factor from all latents with the given model.

    The function calls `downstream_gbt` or `downstream_lr`, which document the score.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Integer array of shape (n, k), one row per example and one column per factor.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Integer array of shape (m, k), the factors of the test examples.
        model: "gbt" for gradient-boosted trees, or "lr" for logistic regression.
        sizes: Numbers of training rows. If the largest size exceeds the number of rows, all rows are used instead.
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
    return metric(codes, factors, test_codes, test_factors, sizes=sizes, seed=seed)


def downstream_lr(
    codes: Codes,
    factors: Factors,
    test_codes: Codes,
    test_factors: Factors,
    *,
    sizes: Sequence[int] = SIZES,
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure the accuracy of predicting each factor from all latents with a cross-validated logistic regression.

    .. math:: \frac{1}{k} \sum_j \frac{1}{m} \sum_i \left[ \hat v_j(c_i) = v_{ij} \right]

    where :math:`\hat v_j` is fitted to the first N training rows, for each N in `sizes`, and i runs over the m test
    examples.

    The score lies in [0, 1]. 0 means that no prediction is correct. 1 means that all predictions are correct. A
    representation without information scores the frequency of the most common value.

    The penalty is selected from 10 values by cross-validation with 5 contiguous folds. Codes are not standardised, and
    the solver stops after 100 iterations. If all of the first N rows have the same value, this value is always
    predicted. A test value that does not occur in the first N rows is always counted as an error.

    Limitations: The regression does not converge in 100 iterations for factors with many values, and how far it gets
    depends on the scale of the codes. Scaling one latent changed the accuracy of a factor with 24 values from 0.57 to
    0.77. A linear model cannot separate neighbouring values well, so even a perfect representation of a factor with 40
    values scores well below 1. Rotated, mixed and duplicated latents do not lower the score, because it measures which
    information the codes contain and not how it is arranged. Contiguous folds are misleading if the rows are sorted by
    a factor.

    Deviations: The training sets are nested, because each size uses the first rows of one sample, whereas
    disentanglement_lib (the library of Locatello et al.) draws new rows for each size. The iterations equal those of
    scikit-learn up to rounding. If they do not converge, rounding affects the result. scikit-learn's own test accuracy
    for a factor with 24 values varied between 0.54 and 0.59 when its codes were changed by a relative 1e-15.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.5.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Integer array of shape (n, k), one row per example and one column per factor.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Integer array of shape (m, k), the factors of the test examples.
        sizes: Numbers of training rows. If the largest size exceeds the number of rows, all rows are used instead.
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
            integers, if a factor is constant, or if every size exceeds the number of training rows.

    Example:
        >>> codes = np.linspace(-1, 1, 40)[:, None]
        >>> scores = downstream_lr(codes, codes > 0, codes, codes > 0, sizes=[20, 40])
        >>> scores["20:mean_test_accuracy"], scores["40:min_test_accuracy"]
        (0.5, 1.0)
    """
    return _accuracy_scores(_predict_logistic, codes, factors, test_codes, test_factors, sizes)


def downstream_gbt(
    codes: Codes,
    factors: Factors,
    test_codes: Codes,
    test_factors: Factors,
    *,
    sizes: Sequence[int] = SIZES,
    trees: str = "fast",
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure the accuracy of predicting each factor from all latents with gradient-boosted trees.

    .. math:: \frac{1}{k} \sum_j \frac{1}{m} \sum_i \left[ \hat v_j(c_i) = v_{ij} \right]

    where :math:`\hat v_j` is a model with 100 stages of trees of depth 3, fitted to the first N training rows for each
    N in `sizes`, and i runs over the m test examples.

    The score lies in [0, 1]. 0 means that no prediction is correct. 1 means that all predictions are correct. A
    representation without information scores the frequency of the most common value.

    If all of the first N rows have the same value, this value is always predicted. A test value that does not occur in
    the first N rows is always counted as an error. Trees depend only on the order of the values of each latent, so
    scale and shift do not matter.

    Limitations: Trees memorise, so even noise latents predict well if test examples are also training examples. Trees
    cut along single latents, so a rotated representation scores a little lower than an aligned one. The score therefore
    depends both on the information in the codes and on how it is arranged. Duplicated and constant latents do not lower
    the score.

    Deviations: The training sets are nested, because each size uses the first rows of one sample, whereas
    disentanglement_lib (the library of Locatello et al.) draws new rows for each size.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.5.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Integer array of shape (n, k), one row per example and one column per factor.
        test_codes: Array of shape (m, d), the codes of the test examples.
        test_factors: Integer array of shape (m, k), the factors of the test examples.
        sizes: Numbers of training rows. If the largest size exceeds the number of rows, all rows are used instead.
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
            integers, if a factor is constant, or if every size exceeds the number of training rows.

    Example:
        >>> codes = np.linspace(-1, 1, 40)[:, None]
        >>> downstream_gbt(codes, codes > 0, codes, codes > 0, sizes=[40])["40:mean_test_accuracy"]
        1.0
    """
    return _accuracy_scores(
        partial(_predict_boosted, trees=trees, seed=seed), codes, factors, test_codes, test_factors, sizes
    )


def _predict_logistic(codes: Table, labels: Labels, test_codes: Table) -> tuple[Labels, Labels]:
    """Return the predictions for the training examples and for the test examples."""
    from unbraid.metrics.linear import logistic_regression_cv

    model = logistic_regression_cv(codes, labels)
    return model.predict(codes), model.predict(test_codes)


def _predict_boosted(
    codes: Table, labels: Labels, test_codes: Table, *, trees: str, seed: int
) -> tuple[Labels, Labels]:
    """Return the predictions for the training examples and for the test examples."""
    from unbraid.metrics.trees import boosted_trees

    if (labels == labels[0]).all():
        return labels, np.full(len(test_codes), labels[0])
    forest = boosted_trees(codes, labels, seed=seed, trees=trees)
    return forest.train_predictions, forest.predict(test_codes)


def _accuracy_scores(
    fit: Fit, codes: Codes, factors: Factors, test_codes: Codes, test_factors: Factors, sizes: Sequence[int]
) -> dict[str, float]:
    """Return the accuracies for every size that does not exceed the number of rows."""
    table, values = as_codes_and_factors(codes, factors)
    test_table, test_values = as_test_arrays(test_codes, test_factors, table, values)
    scores: dict[str, float] = {}
    for size in (used := _usable_sizes(sizes, len(table))):
        train_and_test = _accuracies_by_factor(fit, table[:size], values[:size], test_table, test_values)
        for part, accuracies in zip(("train", "test"), train_and_test, strict=True):
            scores[f"{size}:mean_{part}_accuracy"] = float(accuracies.mean())
            scores[f"{size}:min_{part}_accuracy"] = float(accuracies.min())
            scores |= {f"{size}:{part}_accuracy_factor_{j}": float(a) for j, a in enumerate(accuracies)}
    for part in ("train", "test"):
        scores[f"mean_{part}_accuracy"] = scores[f"{used[-1]}:mean_{part}_accuracy"]
    few, many = (scores.get(f"{size}:mean_test_accuracy", 0.0) for size in (100, 10_000))
    return scores | ({"statistical_efficiency": few / many} if {100, 10_000} <= set(used) and many > 0 else {})


def _usable_sizes(sizes: Sequence[int], rows: int) -> list[int]:
    """Return the sorted sizes that do not exceed the number of rows.

    If the largest size exceeds it, the number of rows is used in its place.
    """
    for size in sizes:
        check_at_least(2, sizes=size)
    used = sorted({int(size) for size in sizes if size <= rows} | {min(int(max(sizes, default=rows)), rows)})
    if not any(size <= rows for size in sizes):
        rule = "At least one of the 'sizes' must not exceed the number of training rows."
        raise input_error(rule, f"{list(sizes)} and {rows} rows", "Pass more rows or smaller sizes.")
    return used


def _accuracies_by_factor(
    fit: Fit,
    codes: Float[np.ndarray, "n d"],
    factors: Int[np.ndarray, "n k"],
    test_codes: Float[np.ndarray, "m d"],
    test_factors: Int[np.ndarray, "m k"],
) -> Float[np.ndarray, "2 k"]:
    """Return the accuracy of predicting each factor, on the training examples and on the test examples."""
    accuracies = np.empty((2, factors.shape[1]))
    for j in range(factors.shape[1]):
        train, test = fit(codes, factors[:, j], test_codes)
        accuracies[:, j] = np.mean(train == factors[:, j]), np.mean(test == test_factors[:, j])
    return accuracies
