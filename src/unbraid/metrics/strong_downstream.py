"""Strong downstream task: predicting a factor for values of another factor that did not occur in training."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, check_at_least, input_error
from unbraid.metrics.downstream import predict_boosted
from unbraid.metrics.interventions import check_draws
from unbraid.metrics.labels import MISSING, Column, Continuous, as_codes_and_labels
from unbraid.metrics.regression import prediction_score


def strong_downstream(
    codes: Codes,
    factors: Factors,
    continuous: Continuous = None,
    draws: str = "disjoint",
    *,
    train: int = 1_000,
    test: int = 1_000,
    experiments: int = 5,
    trees: str = "fast",
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure how accurately each factor is predicted when another factor has values that did not occur in training.

    .. math:: \frac{1}{kE} \sum_j \sum_e P\left( \hat v_j(c) = v_j \mid v_{l_e} \ne a_e \right), \quad
        \hat v_j \text{ fitted to rows with } v_{l_e} = a_e

    For each factor j and each of E experiments, another factor :math:`l_e` and one of its values :math:`a_e` are drawn.
    Boosted trees that predict factor j are fitted to rows in which factor :math:`l_e` has the value :math:`a_e`, and
    tested on rows in which factor :math:`l_e` has another value. `mean_strong_test_accuracy` is the accuracy of these
    trees. `mean_test_accuracy` is the accuracy without this shift: other trees are fitted to the same number of rows,
    in which factor :math:`l_e` may have any value, and are tested on the same number of such rows. The gap compares the
    two accuracies:

    .. math:: \text{strong\_generalization\_gap} = 1 - \frac{\text{mean\_strong\_test\_accuracy}}
        {\text{mean\_test\_accuracy}}

    Accuracies lie in [0, 1]. 0 means that no prediction is correct. 1 means that all predictions are correct. A gap of
    0 means that the shift does not matter, and a gap of 1 means that no prediction is correct after the shift. The gap
    is negative if predictions are better after the shift, and 0 if the accuracy without the shift is 0.

    The arrays must hold the whole dataset and not a sample of it. If fewer than `train` rows have the value
    :math:`a_e`, all of them are used. A value that occurs in one row only is never drawn. The rows for testing are
    different from those for training. With ``draws="reference"``, exactly `train` training rows and `test` test rows
    are drawn, with replacement, and without the shift a row can occur both in training and in testing.

    Continuous factors: The trees of a continuous factor are regression trees, and the coefficient of determination,
    limited to [0, 1], replaces the accuracy. A continuous factor :math:`l_e` is sorted into 10 bins with
    equal counts, and :math:`a_e` is a bin. An experiment uses the rows that have labels of both factors.

    Limitations: Representations without information have no gap, so read the gap together with the accuracies.
    Factors with many values leave few rows per value, so accuracies are low on small tables. The score varies with
    the drawn factors and values.

    Deviations: disentanglement_lib renders new images with the fixed value, so all experiments have the same number of
    training rows. It computes the accuracy without the shift once per factor. Here it is computed once per
    experiment, with the same number of rows as in the experiment. disentanglement_lib draws factors and values with the
    global random state of numpy.

    Reference: disentanglement_lib, the library of Locatello et al. (2019), arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), the codes of the whole dataset, one row per example and one column per latent.
        factors: Array of shape (n, k), the factors of the same examples, one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        draws: "disjoint" to draw rows without replacement, or "reference" to draw them with replacement.
        train: Maximum number of training rows of an experiment.
        test: Maximum number of test rows of an experiment.
        experiments: Number of experiments per factor.
        trees: "fast" for our implementation, or "sklearn" for scikit-learn's, which is about a hundred times slower.
        seed: Random seed for the draws, and for ties between equally good cuts.

    Returns:
        `mean_strong_test_accuracy` and `mean_strong_train_accuracy`, with the shift; `mean_test_accuracy` and
        `mean_train_accuracy`, without it; and `strong_generalization_gap`.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 factors, if
            `draws` is unknown, or if no value of the other factor occurs in two rows.

    Example:
        >>> factors = np.indices((3, 4, 5)).reshape(3, -1).T
        >>> strong_downstream(factors, factors)["mean_strong_test_accuracy"]
        1.0
    """
    check_at_least(2, train=train)
    check_at_least(1, test=test, experiments=experiments)
    check_draws(draws)
    table, labels = as_codes_and_labels(codes, factors, continuous, min_factors=2)
    bins, rng, scores = labels.binned(), np.random.default_rng(seed), []
    for j, column in enumerate(labels.columns()):
        for _ in range(experiments):
            fixed = int(rng.choice(np.delete(np.arange(bins.shape[1]), j)))
            drawn = _draw_experiment(bins, j, fixed, train, test, rng, replace=draws == "reference")
            values = labels.values[:, j] if column.continuous else bins[:, j]
            scores.append([_accuracies(table, values, column, rows, trees, seed) for rows in drawn])
    strong, plain = np.mean(scores, axis=0)
    return {
        "mean_train_accuracy": float(plain[0]),
        "mean_test_accuracy": float(plain[1]),
        "mean_strong_train_accuracy": float(strong[0]),
        "mean_strong_test_accuracy": float(strong[1]),
        "strong_generalization_gap": float(1 - strong[1] / plain[1]) if plain[1] > 0 else 0.0,
    }


class TrainAndTest(NamedTuple):
    """Row numbers for training and for testing."""

    train: Int[np.ndarray, " a"]
    test: Int[np.ndarray, " b"]


def _draw_experiment(
    bins: Int[np.ndarray, "n k"], j: int, fixed: int, train: int, test: int, rng: np.random.Generator, *, replace: bool
) -> tuple[TrainAndTest, TrainAndTest]:
    """Draw the rows of one experiment with the shift, and as many rows without it."""
    labelled = np.flatnonzero((bins[:, j] != MISSING) & (bins[:, fixed] != MISSING))
    values, counts = np.unique(bins[labelled, fixed], return_counts=True)
    if len(values) < 2 or counts.max() < 2:
        rule = f"Some value of factor column {fixed} must occur in at least 2 rows with a label of factor column {j},"
        rule += " and another value in at least 1."
        raise input_error(rule, f"counts {counts.tolist()[:9]}", "Pass the whole table, or drop that factor.")
    chosen = bins[labelled, fixed] == rng.choice(values[counts > 1])
    inside, outside = labelled[chosen], labelled[~chosen]
    if replace:
        return (
            TrainAndTest(rng.choice(inside, train), rng.choice(outside, test)),
            TrainAndTest(rng.choice(labelled, train), rng.choice(labelled, test)),
        )
    n_train, n_test = min(train, len(inside)), min(test, len(outside))
    strong = TrainAndTest(rng.permutation(inside)[:n_train], rng.permutation(outside)[:n_test])
    order = rng.permutation(labelled)
    return strong, TrainAndTest(order[:n_train], order[n_train : n_train + n_test])


def _accuracies(
    codes: Float[np.ndarray, "n d"],
    values: Float[np.ndarray, " n"] | Int[np.ndarray, " n"],
    column: Column,
    rows: TrainAndTest,
    trees: str,
    seed: int,
) -> tuple[float, float]:
    """Return the accuracies of predicting one factor on the training rows and on the test rows."""
    train, test = (column._replace(rows=part, values=values[part]) for part in rows)
    predictions = predict_boosted(codes[train.rows], train, codes[test.rows], trees=trees, seed=seed)
    return prediction_score(predictions[0], train), prediction_score(predictions[1], test)
