"""Rank methods by each metric, with intervals over seeds, and measure how far the rankings agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame
from scipy.stats import rankdata

from unbraid.analysis import plots
from unbraid.analysis.correlation import draw_heat_maps
from unbraid.analysis.results_table import (
    Array,
    Result,
    check_enough_runs,
    check_table,
    reject,
    score_columns,
    score_name,
    sign,
    spearman,
)
from unbraid.scoring.intervals import LEVEL, mean_interval

RESAMPLES = 2_000  # number of bootstrap samples of the seeds, for intervals of ranks
MIN_METHODS = 3  # minimum number of methods for a rank correlation of two rankings
GROUP = ["data", "metric"]


def method_ranking(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""Rank methods by their mean score over seeds, for each dataset and metric.

    The score of a method for a seed is the mean over all its runs with this seed. The interval of a mean over n seeds
    is Student's 95 % interval, :math:`\bar x \pm t_{n-1}\, s / \sqrt n`, where s is the standard deviation over seeds
    and :math:`t_{n-1}` the 97.5 % quantile of the t distribution with n - 1 degrees of freedom. For the interval of a
    rank, the seeds of each method are repeatedly drawn with replacement (bootstrap). The ends of the interval are the
    2.5 % and 97.5 % quantiles of the resulting ranks. Rank 1 is the best. Methods with equal means share the mean of
    their ranks.

    Limitations: With few seeds, resampling underestimates the spread of ranks. For six methods that do not differ, the
    intervals contain the true rank in 72 % of cases with 2 seeds, 82 % with 3, 90 % with 5 and 95 % with 10. For a
    method with one seed, both intervals are NaN.

    Reference: none; the bootstrap is that of Efron (1979), "Bootstrap methods: another look at the jackknife".

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default all of the six metrics of Locatello et al. (2019) that are in the table.

    Returns:
        A result whose table has one row per dataset, metric and method, best first: the `rank` with the ends `rank_low`
        and `rank_high` of its interval, the `mean` score with the ends `low` and `high` of its interval, and the number
        of `seeds`.

    Raises:
        UserError: If there are no scores, fewer than 2 seeds or fewer than 2 methods, or if the scores do not differ.
    """
    columns = score_columns(table, metrics)
    ranking = rank_methods(table, columns, methods=2)
    return Result(ranking, draw_ranking(ranking, columns), describe_ranking(ranking))


def ranking_agreement(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""Compute how far metrics agree in how they rank methods.

    .. math:: \rho(a, b) = \mathrm{cor}(\mathrm{rank}\, a, \mathrm{rank}\, b)

    a and b are the mean scores of the methods by two metrics on one dataset. If low scores are good, their sign is
    changed. The correlation is over methods. The analysis `agreement` correlates the scores of single runs instead, so
    it also depends on the variation over seeds.

    Reference: Spearman's rank correlation, as in Locatello et al. (2019), arXiv:1811.12359, section 5.2.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default all of the six metrics of Locatello et al. (2019) that are in the table.

    Returns:
        A result whose table has one row per dataset and ordered pair of metrics: `data`, `first`, `second`,
        `correlation`, `methods`. The correlation is NaN if fewer than 3 methods have both scores.

    Raises:
        UserError: If there are fewer than 2 metrics, 2 seeds or 3 methods, or if the scores do not differ.
    """
    columns = score_columns(table, metrics, minimum=2)
    ranking = rank_methods(table, columns, methods=MIN_METHODS)
    summary = pd.DataFrame([
        {"data": data, "first": first, "second": second, "correlation": correlation, "methods": count}
        for data, part in ranking.groupby("data", sort=False)
        for first in columns
        for second in columns
        for correlation, count in [correlate_rankings(part, first, second)]
    ])  # fmt: skip
    names = {name: score_name(name) for name in columns}
    return Result(
        summary, draw_heat_maps(summary, names, names, "Rank correlation over methods"), describe_agreement(summary)
    )


def rank_methods(table: DataFrame, columns: dict[str, str], methods: int) -> DataFrame:
    """Return the table of `method_ranking`. Raise a UserError if there are fewer than `methods` methods."""
    rows = check_table(table, columns.values(), seeds=2)
    check_enough_runs(rows, columns.values(), minimum=2)
    found = rows["method"].unique().tolist()
    if len(found) < methods:
        reject(f"A ranking needs at least {methods} methods.", f"only {', '.join(found)}", "Add runs of other methods.")
    parts = [
        _rank_by_seeds(part.groupby(["method", "seed"], sort=False)[column].mean().dropna(), sign(metric))
        .assign(data=data, metric=metric)
        for data, part in rows.groupby("data", sort=False)
        for metric, column in columns.items()
        if part[column].notna().any()
    ]  # fmt: skip
    ranking = pd.concat(parts, ignore_index=True)
    order = [*GROUP, "method", "rank", "rank_low", "rank_high", "mean", "low", "high", "seeds"]
    return ranking[order]


def _rank_by_seeds(scores: pd.Series, direction: float) -> DataFrame:
    """Rank methods, best first. The index of `scores` has two levels, method and seed.

    `direction` is 1 if high scores are good, and -1 otherwise. The result does not depend on the order of the scores.
    """
    ordered = scores.sort_index()
    values = {str(method): part.to_numpy() for method, part in ordered.groupby(level=0)}
    means = np.array([part.mean() for part in values.values()])
    single = np.array([len(part) < 2 for part in values.values()])
    low, high = (np.where(single, np.nan, ends) for ends in resampled_ranks(list(values.values()), direction))
    intervals = [mean_interval(part) for part in values.values()]
    found = DataFrame({
        "method": list(values), "rank": rankdata(-direction * means), "rank_low": low, "rank_high": high,
        "mean": means, "low": [interval[0] for interval in intervals], "high": [interval[1] for interval in intervals],
        "seeds": [len(part) for part in values.values()],
    })  # fmt: skip
    return found.astype({"low": float, "high": float}).sort_values("rank", kind="stable")


def resampled_ranks(values: Sequence[Array], direction: float = 1.0) -> tuple[Array, Array]:
    """Return the lower and upper ends of the 95 % intervals of the ranks of methods, by resampling their scores.

    `values` has one array per method, with one score per seed. `direction` is 1 if high scores are good, and -1
    otherwise.

    >>> low, high = resampled_ranks([np.array([1.0, 2.0]), np.array([5.0, 6.0])])
    >>> low.tolist(), high.tolist()
    ([2.0, 1.0], [2.0, 1.0])
    """
    random = np.random.default_rng(0)
    means = [part[random.integers(len(part), size=(RESAMPLES, len(part)))].mean(1) for part in values]
    ranks = rankdata(-direction * np.stack(means, 1), axis=1)
    low, high = np.quantile(ranks, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high


def correlate_rankings(part: DataFrame, first: str, second: str) -> tuple[float, int]:
    """Return the rank correlation of two metrics over the methods of one dataset, and the number of methods."""
    ranks = part.pivot(index="method", columns="metric", values="rank")
    if first not in ranks or second not in ranks:
        return float("nan"), 0
    both = ranks[[first, second]].dropna() if first != second else ranks[[first]].dropna()
    return spearman(both.iloc[:, 0], both.iloc[:, -1], MIN_METHODS), len(both)


def describe_ranking(ranking: DataFrame) -> str:
    """Say which method has the best mean rank, and how often the intervals of the two best ranks are disjoint.

    Combinations in which one of the two best methods has a single seed are left out of the second sentence.
    """
    mean_ranks = ranking.groupby("method", sort=False)["rank"].mean().sort_values()
    text = (
        f"Of {len(mean_ranks)} methods, {plots.display_name(str(mean_ranks.index[0]))} has the best mean rank, "
        f"{mean_ranks.iloc[0]:.1f}."
    )
    best_two = [part.sort_values("rank", kind="stable")[:2] for _, part in ranking.groupby(GROUP, sort=False)]
    tested = [part for part in best_two if len(part) == 2 and part["seeds"].min() > 1]
    if not tested:
        return f"{text} The best two methods have too few seeds for intervals of their ranks."
    clear = sum(part["rank_high"].iloc[0] < part["rank_low"].iloc[1] for part in tested)
    return (
        f"{text} In {clear} of {len(tested)} combinations of a dataset and a metric, the interval of the rank of the "
        "best method is separate from that of the second-best method."
    )


def describe_agreement(summary: DataFrame) -> str:
    """Give the median correlation between the rankings by two metrics, and say which two metrics agree least."""
    pairs = summary[summary["first"] < summary["second"]].dropna(subset=["correlation"])
    if not len(pairs):
        return "No two metrics rank enough methods to be compared."
    least = pairs.loc[pairs["correlation"].idxmin()]
    return (
        f"The median rank correlation between the rankings of methods by two metrics is "
        f"{plots.format_decimal(pairs['correlation'].median())}. The lowest is "
        f"{plots.format_decimal(least['correlation'])}, between {score_name(least['first'])} and "
        f"{score_name(least['second'])} on {least['data']}."
    )


def draw_ranking(ranking: DataFrame, columns: dict[str, str]) -> Figure:
    """Draw the mean of each method with its interval, in one row of axes per dataset and one column per metric.

    In all axes, methods are in the order of their mean rank, best at the top.
    """
    datasets = list(ranking["data"].unique())
    order = ranking.groupby("method")["rank"].mean().sort_values(ascending=False).index.tolist()
    size = (1.9, 0.19 * len(order) + 0.6)
    figure, grid = plots.grid_figure(len(datasets), len(columns), size=size, sharey=True)
    for line, data in zip(grid, datasets, strict=True):
        for axes, metric in zip(line, columns, strict=True):
            part = ranking[(ranking["data"] == data) & (ranking["metric"] == metric)]
            places = [order.index(method) for method in part["method"]]
            axes.hlines(places, part["low"], part["high"], color=plots.PALETTE[0], linewidth=1.2)
            axes.plot(part["mean"], places, "o", markersize=3, color=plots.PALETTE[0])
            axes.set_yticks(range(len(order)), [plots.display_name(method) for method in order])
    plots.label_edges(grid, [score_name(metric) for metric in columns], datasets, "mean, 95 % interval")
    return figure
