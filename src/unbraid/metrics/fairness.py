"""Unfairness of predictions: their dependence on a sensitive factor."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, check_at_least, check_factors_vary, input_error
from unbraid.metrics.interventions import check_draws
from unbraid.metrics.labels import Continuous, as_codes_and_labels
from unbraid.metrics.settings import intervention_rows, setting_numbers


def fairness(
    codes: Codes,
    factors: Factors,
    continuous: Continuous = None,
    draws: str = "disjoint",
    *,
    train: int = 10_000,
    test: int = 100,
    trees: str = "fast",
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure how much the predictions of one factor change when another, sensitive factor is changed.

    .. math:: \mathrm{mean}_{i \ne j} \; \mathrm{mean}_a \; \tfrac12 \sum_y
        \left| p(\hat v_i = y \mid do(v_j = a)) - \mathrm{mean}_b \, p(\hat v_i = y \mid do(v_j = b)) \right|

    where :math:`\hat v_i` is the prediction of factor i by boosted trees that are fitted to `train` random rows, and
    :math:`do(v_j = a)` means that factor j is set to the value a while all other factors stay the same. a and b run
    over the values of factor j, and y runs over the predicted values of factor i.

    The score is a mean total variation distance. Low values are better. 0 means that the predictions are fair, because
    they do not depend on the sensitive factor. 1 is never reached, because with m equally likely values of the
    sensitive factor a distance is at most 1 - 1/m.

    The arrays must hold the whole dataset and not a sample of it. To intervene on the sensitive factor j, the metric
    needs settings (combinations of values) of the other factors that occur together with every value of j. It draws
    `test` rows, with replacement, among the rows with such settings. If several rows have the same values of all
    factors, one of them is drawn. On a full grid, all rows can be drawn.

    The trees are fitted to rows that no intervention uses. If each combination of factor values occurs in two or more
    rows, the interventions use a random third of the rows of each combination. Otherwise they use at most about a third
    of the table, an equal part for each sensitive factor. In a small table, they therefore use only some of the
    settings. With ``draws="reference"``, the training rows are drawn from all rows, with replacement, as in published
    scores. The trees have then seen rows on which they are evaluated.

    Continuous factors: A continuous factor is sorted into 10 bins of equal counts. The bins are predicted and changed
    like the values of a discrete factor. Only rows with a label for every factor are used.

    Limitations: A low score is not evidence of a good representation. Three cases score 0: constant codes, a predictor
    that ignores its input, and a rotated representation from which the trees predict without error. Report the score
    together with the accuracy. Pure noise is unfair by chance. If every row is predicted at random, a distance is about
    0.4 sqrt(number of labels / test).

    Deviations: All predicted factors (targets) use the same draws, whereas the authors' code draws again for each pair
    of factors. Distances are computed in double precision. The authors' code uses single precision, and its distances
    differ by 1e-8.

    Reference: Locatello et al. (2019), arXiv:1905.13662.

    Args:
        codes: Array of shape (n, d), the codes of the whole dataset, one row per example and one column per latent.
        factors: Array of shape (n, k), the factors of the same examples, one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        draws: "disjoint" to fit the trees to rows that no intervention uses, or "reference" to draw the training rows
            from all rows.
        train: Number of rows to which the trees are fitted. If fewer rows are available, all of them are used.
        test: Number of interventions per sensitive factor.
        trees: "fast" for our implementation, or "sklearn" for scikit-learn's, which is about a hundred times slower.
        seed: Random seed for the draws and the trees.

    Returns:
        ``mean_fairness:mean_pred:mean_sens``, the score of the paper, which is the mean over pairs of a target and a
        sensitive factor; ``mean_fairness:pred0:sens1`` and so on, the score of target 0 and sensitive factor 1; further
        keys with means and maxima over targets and sensitive factors; and the same keys with ``max_fairness``, which
        takes the worst value a of the sensitive factor instead of the mean over a.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 factors, if the
            table is too small to leave training rows, or if it is too incomplete. It is too incomplete if, for some
            factor, the settings of the other factors that occur with all of its values are fewer than half of `test`
            and fewer than half of all settings.

    Example:
        >>> factors = np.indices((3, 4, 5)).reshape(3, -1).T
        >>> scores = fairness(factors, factors, train=200, test=20)
        >>> scores["mean_fairness:mean_pred:mean_sens"]
        0.0
    """
    check_at_least(2, train=train)
    check_at_least(1, test=test)
    check_draws(draws)
    table, labels = as_codes_and_labels(codes, factors, continuous, min_factors=2)
    complete = labels.require_complete_rows()
    table, values = table[complete], labels.binned()[complete]
    draw = _draw_rows if draws == "reference" else _draw_disjoint_rows
    rows, rows_by_sensitive = draw(values, train, test, np.random.default_rng(seed))
    k = values.shape[1]
    from unbraid.metrics.trees import boosted_trees

    means, maxima = np.zeros((k, k)), np.zeros((k, k))
    for i in range(k):
        forest = boosted_trees(table[rows], values[rows, i], seed=seed, trees=trees)
        for j in set(range(k)) - {i}:
            predictions = np.asarray(forest.predict(table[rows_by_sensitive[j].ravel()])).reshape(
                rows_by_sensitive[j].shape
            )
            means[i, j], maxima[i, j] = total_variation(_label_counts(predictions))
    return aggregate_scores(means, "mean_fairness") | aggregate_scores(maxima, "max_fairness")


def _draw_rows(
    factors: Int[np.ndarray, "n k"], train: int, test: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " train"], list[Int[np.ndarray, "test _"]]]:
    """Draw training rows, with replacement, and the rows of `test` interventions on each factor."""
    rows = rng.integers(len(factors), size=train)
    check_factors_vary(factors[rows])
    return rows, [intervention_rows(factors, j, test, rng) for j in range(factors.shape[1])]


def _draw_disjoint_rows(
    factors: Int[np.ndarray, "n k"], train: int, test: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " train"], list[Int[np.ndarray, "test _"]]]:
    """Draw the rows of `test` interventions on each factor, and different training rows, without replacement."""
    n, k = factors.shape
    order = rng.permutation(n)
    cell = setting_numbers(factors[order])
    if np.bincount(cell).min() > 1:
        held_out = order[_first_third_of_groups(cell)]
        rows_by_sensitive = [held_out[intervention_rows(factors[held_out], j, test, rng)] for j in range(k)]
    else:
        rows_by_sensitive = [intervention_rows(factors, j, test, rng, max_rows=n / (3 * k)) for j in range(k)]
    unused = np.setdiff1d(np.arange(n), np.concatenate([rows.ravel() for rows in rows_by_sensitive]))
    rows = rng.choice(unused, size=min(train, len(unused)), replace=False)
    if not len(rows) or (factors[rows].min(axis=0) == factors[rows].max(axis=0)).any():
        rule = "The rows that no intervention uses must hold at least 2 values of every factor."
        remedy = "Pass a larger table, or draws='reference'."
        raise input_error(rule, f"{len(unused)} such rows among {n}", remedy)
    return rows, rows_by_sensitive


def _first_third_of_groups(group: Int[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
    """Return the positions of the first third of each group, rounded down, but at least one position per group.

    >>> _first_third_of_groups(np.array([1, 0, 1, 1, 1, 1, 1])).tolist()
    [1, 0, 2]
    """
    order, counts = np.argsort(group, kind="stable"), np.bincount(group)
    position = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(order[position < np.repeat(np.maximum(1, counts // 3), counts)])


def _label_counts(predictions: Int[np.ndarray, "count m"]) -> Int[np.ndarray, "y m"]:
    """Return how often each label was predicted for each value of the sensitive factor."""
    labels = np.unique(predictions)
    return np.stack([(predictions == label).sum(axis=0) for label in labels])


def total_variation(counts: Int[np.ndarray, "y m"]) -> tuple[float, float]:
    """Return the mean and the maximum total variation distance between the distribution of a column and that of all.

    `counts` holds how often each label (row) occurs for each value of the sensitive factor (column). The mean is
    weighted by the sums of the columns.

    >>> total_variation(np.array([[10, 0], [0, 10]]))
    (0.5, 0.5)
    """
    totals = counts.sum(axis=0)
    overall = counts.sum(axis=1) / totals.sum()
    distances = np.abs(counts / totals - overall[:, None]).sum(axis=0) / 2
    return float(distances @ totals / totals.sum()), float(distances.max())


def aggregate_scores(matrix: Float[np.ndarray, "k k"], prefix: str) -> dict[str, float]:
    """Return the off-diagonal entries of a matrix of scores (targets by sensitive factors), and their means and maxima.

    >>> aggregate_scores(np.array([[9.0, 1.0], [3.0, 9.0]]), "mean_fairness")["mean_fairness:mean_pred:max_sens"]
    2.0
    """
    k = len(matrix)
    scores = {f"{prefix}:pred{i}:sens{j}": matrix[i, j] for i in range(k) for j in range(k) if i != j}
    off = matrix[~np.eye(k, dtype=bool)].reshape(k, k - 1)
    off_columns = matrix.T[~np.eye(k, dtype=bool)].reshape(k, k - 1)
    for own, other, rows in (("pred", "sens", off), ("sens", "pred", off_columns)):
        inner = {"mean": rows.mean(axis=1), "max": rows.max(axis=1)}
        for name, values in inner.items():
            scores |= {f"{prefix}:{own}{i}:{name}_{other}": value for i, value in enumerate(values)}
            scores[f"{prefix}:mean_{own}:{name}_{other}"] = values.mean()
            scores[f"{prefix}:max_{own}:{name}_{other}"] = values.max()
    return {key: float(value) for key, value in scores.items()}
