"""Downstream classification: accuracy of predicting each factor from all codes, by number of labelled rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import (
    Codes,
    Factors,
    as_codes,
    as_factors,
    at_least,
    labelled,
    refusal,
    same_columns,
    same_rows,
)

SIZES = (10, 100, 1_000, 10_000)
Points = np.ndarray[Any, np.dtype[np.float64]]
Labels = np.ndarray[Any, np.dtype[np.int64]]
Fit = Callable[[Points, Labels, Points], tuple[Labels, Labels]]


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
    """`downstream_gbt` or `downstream_lr`, by the name of the model.

    >>> points = np.linspace(-1, 1, 40)[:, None]
    >>> downstream(points, points > 0, points, points > 0, model="lr", sizes=[40])["mean_test_accuracy"]
    1.0
    """
    if model not in ("gbt", "lr"):
        raise refusal("The 'model' parameter must be 'gbt' or 'lr'.", repr(model), "Choose one of them.")
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
    r"""How often a cross-validated logistic regression predicts a factor's value from all codes.

    .. math:: \frac{1}{k} \sum_j \frac{1}{m} \sum_i \left[ \hat v_j(c_i) = v_{ij} \right]

    with :math:`\hat v_j` fitted to the first N training rows, for every N of `sizes`, and i over the m test points.

    0: never right; chance is the share of the commonest value. 1: always right.
    Keys: for each N, `N:mean_test_accuracy` over factors, `N:min_test_accuracy` (the worst factor),
    `N:test_accuracy_factor_j`, and the same on the N training rows; `mean_train_accuracy` and `mean_test_accuracy`
    repeat those of the largest N; `statistical_efficiency` is the mean test accuracy of 100 rows over that of 10,000,
    where both were fitted (above 1 where fewer rows did better). If the largest N is above the number of rows, all rows
    take its place; if every N is, the rows are refused.

    The model is the best by 5 contiguous folds of 10 penalties, codes not standardised, stopped after 100 iterations.
    A single value among the first N rows is predicted always; a test value that was not among them counts as an error.
    Nothing is drawn: `seed` changes nothing, and is there because all metrics with a downstream model take it.

    Beware: many-valued factors do not converge in 100 iterations, and how far they come depends on the scale of the
    codes: the same code scaled moved the accuracy of a 24-valued factor from .57 to .77. Neighbouring values overlap
    for a linear model, so even a perfect code of a 40-valued factor stays well below 1. Rotated, mixed and duplicated
    codes lose nothing: the score says what is told, not where. Rows in order of a factor mislead the contiguous folds.

    Deviations: sizes are nested, the first rows of one sample, where the reference draws new rows for each size. The
    iterations are scikit-learn's up to rounding, but where they do not converge rounding decides: scikit-learn's own
    test accuracy of a 24-valued factor lay between .54 and .59 when its codes were changed by 1e-15 of their size.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.5.

    >>> points = np.linspace(-1, 1, 40)[:, None]
    >>> scores = downstream_lr(points, points > 0, points, points > 0, sizes=[20, 40])
    >>> scores["20:mean_test_accuracy"], scores["40:min_test_accuracy"]
    (0.5, 1.0)
    """
    return _scores(_logistic, codes, factors, test_codes, test_factors, sizes)


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
    r"""How often gradient-boosted trees predict a factor's value from all codes.

    .. math:: \frac{1}{k} \sum_j \frac{1}{m} \sum_i \left[ \hat v_j(c_i) = v_{ij} \right]

    with :math:`\hat v_j` 100 stages of trees of depth 3 fitted to the first N training rows, for every N of `sizes`,
    and i over the m test points.

    0: never right; chance is the share of the commonest value. 1: always right.
    Keys: for each N, `N:mean_test_accuracy` over factors, `N:min_test_accuracy` (the worst factor),
    `N:test_accuracy_factor_j`, and the same on the N training rows; `mean_train_accuracy` and `mean_test_accuracy`
    repeat those of the largest N; `statistical_efficiency` is the mean test accuracy of 100 rows over that of 10,000,
    where both were fitted (above 1 where fewer rows did better). If the largest N is above the number of rows, all rows
    take its place; if every N is, the rows are refused.

    A single value among the first N rows is predicted always; a test value that was not among them counts as an error.
    Trees see the order of each code only: scale and shift do not matter. `trees` and `seed` as in `boosted_trees`.

    Beware: trees remember: if test points are training points too, even codes of noise predict well. Trees cut along
    single codes, so a rotated code scores a little lower than an aligned one: the score mixes what is told with how it
    is laid out. Duplicated and constant codes cost nothing.

    Deviations: sizes are nested, the first rows of one sample, where the reference draws new rows for each size.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.5.

    >>> points = np.linspace(-1, 1, 40)[:, None]
    >>> downstream_gbt(points, points > 0, points, points > 0, sizes=[40])["40:mean_test_accuracy"]
    1.0
    """
    return _scores(partial(_boosted, trees=trees, seed=seed), codes, factors, test_codes, test_factors, sizes)


def _logistic(codes: Points, labels: Labels, test_codes: Points) -> tuple[Labels, Labels]:
    """Predictions for training and test points."""
    from unbraid.metrics.linear import logistic_regression_cv

    model = logistic_regression_cv(codes, labels)
    return model.predict(codes), model.predict(test_codes)


def _boosted(codes: Points, labels: Labels, test_codes: Points, *, trees: str, seed: int) -> tuple[Labels, Labels]:
    """Predictions for training and test points."""
    from unbraid.metrics.trees import boosted_trees

    if (labels == labels[0]).all():
        return labels, np.full(len(test_codes), labels[0])
    forest = boosted_trees(codes, labels, seed=seed, trees=trees)
    return forest.train_predictions, forest.predict(test_codes)


def _scores(
    fit: Fit, codes: Codes, factors: Factors, test_codes: Codes, test_factors: Factors, sizes: Sequence[int]
) -> dict[str, float]:
    """Accuracies for every size that the rows allow."""
    table, values = labelled(codes, factors)
    test_table, test_values = as_codes(test_codes, "Test codes"), as_factors(test_factors, "Test factors")
    same_rows(test_table, test_values)
    same_columns(table, test_table, "Codes")
    same_columns(values, test_values, "Factors")
    scores: dict[str, float] = {}
    for size in (used := _used(sizes, len(table))):
        right = _accuracies(fit, table[:size], values[:size], test_table, test_values)
        for part, accuracies in zip(("train", "test"), right, strict=True):
            scores[f"{size}:mean_{part}_accuracy"] = float(accuracies.mean())
            scores[f"{size}:min_{part}_accuracy"] = float(accuracies.min())
            scores |= {f"{size}:{part}_accuracy_factor_{j}": float(a) for j, a in enumerate(accuracies)}
    for part in ("train", "test"):
        scores[f"mean_{part}_accuracy"] = scores[f"{used[-1]}:mean_{part}_accuracy"]
    few, many = (scores.get(f"{size}:mean_test_accuracy", 0.0) for size in (100, 10_000))
    return scores | ({"statistical_efficiency": few / many} if {100, 10_000} <= set(used) and many > 0 else {})


def _used(sizes: Sequence[int], rows: int) -> list[int]:
    """The sizes that the rows allow, in order, and all rows in place of a largest size that they do not allow."""
    for size in sizes:
        at_least(2, sizes=size)
    used = sorted({int(size) for size in sizes if size <= rows} | {min(int(max(sizes, default=rows)), rows)})
    if not any(size <= rows for size in sizes):
        rule = "At least one of the 'sizes' must not be above the number of training rows."
        raise refusal(rule, f"{list(sizes)} and {rows} rows", "Pass more rows or smaller sizes.")
    return used


def _accuracies(
    fit: Fit,
    codes: Float[np.ndarray, "n d"],
    factors: Int[np.ndarray, "n k"],
    test_codes: Float[np.ndarray, "m d"],
    test_factors: Int[np.ndarray, "m k"],
) -> Float[np.ndarray, "2 k"]:
    """Share of training and test points of which each factor is predicted."""
    right = np.empty((2, factors.shape[1]))
    for j in range(factors.shape[1]):
        train, test = fit(codes, factors[:, j], test_codes)
        right[:, j] = np.mean(train == factors[:, j]), np.mean(test == test_factors[:, j])
    return right
