"""Unfairness of predictions under changes of a factor that should not matter."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, at_least, labelled, refusal, varied


def fairness(
    codes: Codes, factors: Factors, *, train: int = 10_000, test: int = 100, trees: str = "fast", seed: int = 0
) -> dict[str, float]:
    r"""How much predictions of one factor from the code change when another, sensitive factor is changed.

    .. math:: \mathrm{mean}_{i \ne j} \; \mathrm{mean}_a \; \tfrac12 \sum_y
        \left| p(\hat v_i = y \mid do(v_j = a)) - \mathrm{mean}_b \, p(\hat v_i = y \mid do(v_j = b)) \right|

    with :math:`\hat v_i` what boosted trees, fitted to `train` random rows, predict for target i. The average over
    pairs is ``mean_fairness:mean_pred:mean_sens``, the score of the paper. ``mean_fairness:pred0:sens1`` is the pair of
    target 0 and sensitive factor 1, further keys are means and maxima over targets and sensitive factors, and
    ``max_fairness`` takes the worst value a of the sensitive factor in place of the mean.

    0: fair, predictions do not depend on the sensitive factor. 1 is never reached: with m equally likely values a
    distance is at most 1 - 1/m. Total variation, without unit.

    Codes and factors are a whole table. For sensitive factor j, `test` rows are drawn (with replacement) among those
    for which every observed value of j occurs with all other factors equal, and those rows are the intervention; where
    several rows share all factors, one of them is drawn. On a full grid these are all rows. An incomplete table is
    refused where the complete settings of the other factors are fewer than half of `test` and than half of all.

    Beware: low is not good. Constant codes and any predictor that ignores its input are perfectly fair, and so is a
    rotated code from which trees predict without error: read it beside the accuracy. Noise is unfair by chance: where
    every row is predicted at random, a distance is about .4 sqrt(number of labels / test).

    Deviations: the same draws serve all targets, where the reference code draws anew for each pair; distances are
    computed in double precision (the reference: single, 1e-8 apart).

    Reference: Locatello et al. (2019), arXiv:1905.13662.

    >>> factors = np.indices((2, 3, 2)).reshape(3, -1).T
    >>> scores = fairness(factors, factors, train=200, test=20)
    >>> scores["mean_fairness:mean_pred:mean_sens"]
    0.0
    """
    at_least(2, train=train)
    at_least(1, test=test)
    table, values = labelled(codes, factors, min_factors=2)
    rng = np.random.default_rng(seed)
    rows = rng.integers(len(table), size=train)
    varied(values[rows])
    k = values.shape[1]
    changed = [interventions(values, j, test, rng) for j in range(k)]
    from unbraid.metrics.trees import boosted_trees

    means, maxima = np.zeros((k, k)), np.zeros((k, k))
    for i in range(k):
        forest = boosted_trees(table[rows], values[rows, i], seed=seed, trees=trees)
        for j in set(range(k)) - {i}:
            guesses = np.asarray(forest.predict(table[changed[j].ravel()])).reshape(changed[j].shape)
            means[i, j], maxima[i, j] = total_variation(_counts(guesses))
    return aggregates(means, "mean_fairness") | aggregates(maxima, "max_fairness")


def interventions(
    factors: Int[np.ndarray, "n k"], j: int, count: int, rng: np.random.Generator
) -> Int[np.ndarray, "count m"]:
    """Row numbers of `count` random settings of the other factors, one column for each value of factor j.

    >>> grid = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0]])
    >>> interventions(grid, 0, 2, np.random.default_rng(0)).tolist()  # the value 2 never meets the other's 1
    [[0, 2, 4], [0, 2, 4]]
    """
    place = _renumbered(factors[:, j])
    m = int(place.max()) + 1
    setting = _settings(np.delete(factors, j, axis=1))
    cell = setting * m + place
    order = np.argsort(cell, kind="stable")
    cells, starts, counts = np.unique(cell[order], return_index=True, return_counts=True)
    complete = np.bincount(cells // m) == m
    _enough(complete, count, j)
    possible = np.flatnonzero(complete[setting])
    wanted = setting[rng.choice(possible, size=count)][:, None] * m + np.arange(m)
    at = np.searchsorted(cells, wanted)
    return np.asarray(order[starts[at] + rng.integers(counts[at])])


def _enough(complete: np.ndarray[tuple[int], np.dtype[np.bool_]], count: int, j: int) -> None:
    """Refuse where too few settings of the other factors were seen with every value of factor j."""
    possible, settings = int(complete.sum()), len(complete)
    needed = -(-min(count, settings) // 2)
    if possible < needed:
        rule = f"Changing factor column {j} alone needs rows that differ in nothing else, for all of its values:"
        rule += f" at least {needed} such settings of the other factors."
        remedy = "Pass the whole table of factor combinations, lower 'test', or drop that factor."
        raise refusal(rule, f"{possible} among {settings} settings", remedy)


def _renumbered(labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """The labels as 0, 1, ... in their order; a short range is ticked off, which is much faster than sorting."""
    low, high = int(labels.min()), int(labels.max())
    if high - low > 4 * len(labels):
        return np.unique(labels, return_inverse=True)[1]
    seen = np.zeros(high - low + 1, dtype=np.int64)
    seen[labels - low] = 1
    return np.asarray((np.cumsum(seen) - 1)[labels - low])


def _settings(factors: Int[np.ndarray, "n k"]) -> Int[np.ndarray, " n"]:
    """A number, from 0 without gaps, for each different row."""
    setting = np.zeros(len(factors), dtype=np.int64)
    for column in factors.T:
        place = _renumbered(column)
        setting = setting * (int(place.max()) + 1) + place
        if setting.max() > 2**31:  # the next product must not overflow
            setting = _renumbered(setting)
    return _renumbered(setting)


def _counts(guesses: Int[np.ndarray, "count m"]) -> Int[np.ndarray, "y m"]:
    """How often each label was guessed under each sensitive value."""
    labels = np.unique(guesses)
    return np.stack([(guesses == label).sum(axis=0) for label in labels])


def total_variation(counts: Int[np.ndarray, "y m"]) -> tuple[float, float]:
    """Distance of each column's distribution from that of all columns: the mean weighted by counts, and the largest.

    >>> total_variation(np.array([[10, 0], [0, 10]]))
    (0.5, 0.5)
    """
    totals = counts.sum(axis=0)
    overall = counts.sum(axis=1) / totals.sum()
    distances = np.abs(counts / totals - overall[:, None]).sum(axis=0) / 2
    return float(distances @ totals / totals.sum()), float(distances.max())


def aggregates(matrix: Float[np.ndarray, "k k"], prefix: str) -> dict[str, float]:
    """Every entry of a matrix of targets by sensitive factors but its diagonal, and its means and maxima.

    >>> aggregates(np.array([[9.0, 1.0], [3.0, 9.0]]), "mean_fairness")["mean_fairness:mean_pred:max_sens"]
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
