"""Scores by method and by regularisation strength: how wide they spread and how much they overlap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.results_table import Array, Result, checked, enough, quartiles, score_columns, score_name, sign


def scores(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    """How scores spread within a method and overlap between methods, over all strengths and seeds.

    Table: a row a dataset, metric and method: `runs`, `low` and `high` quartile, `median`, `least`, `most`.
    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.3 and figure 3 (left).
    """
    columns = score_columns(table, metrics)
    rows = checked(table, columns.values(), seeds=2)
    enough(rows, columns.values(), fewest=2)
    found = gathered(rows, columns, ["data", "method"])
    for name, what in (("least", "min"), ("most", "max")):
        ends = [rows.groupby(["data", "method"])[column].agg(what).rename(metric) for metric, column in columns.items()]
        wide = pd.concat(ends, axis=1).rename_axis(columns="metric").stack().rename(name)
        found = found.merge(wide.reset_index(), on=["data", "method", "metric"])
    good = found["median"] * found["metric"].map(sign)
    leaders = found.loc[good.groupby([found["data"], found["metric"]]).idxmax(), "method"].value_counts()
    text = (
        f"{plots.method_name(leaders.index[0])} has the best median most often, in {leaders.iloc[0]} of "
        f"{leaders.sum()} pairs of a dataset and a metric; {len(leaders)} of {rows['method'].nunique()} methods lead "
        "somewhere."
    )
    return Result(found, draw_scores(rows, columns), text)


def strengths(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""How scores depend on regularisation strength: median and quartiles over seeds, a line a method.

    The text says how often a lucky seed makes up for a bad strength: the probability
    :math:`P(s > s') + P(s = s') / 2` of a run at the level with the worst median against one at the level with the
    best, averaged over datasets, metrics and methods. It is 0 where the strength decides and up to 50 % where the seed
    does; the levels are picked by the same runs, so that it is too low with few seeds.

    Table: a row a dataset, metric, method and level: `strength`, `runs`, `low` and `high` quartile, `median`.
    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.3 and figures 3 (right) and 4.
    """
    columns = score_columns(table, metrics)
    rows = checked(table, columns.values(), seeds=2)
    enough(rows, columns.values(), fewest=2)
    found = gathered(rows, columns, ["data", "method", "level", "strength"])
    groups = [part for _, part in rows.groupby(["data", "method"])]
    chances = [upset(part, column, sign(metric)) for metric, column in columns.items() for part in groups]
    held = np.array([chance for chance in chances if np.isfinite(chance)])
    if not len(held):
        return Result(found, draw_strengths(found, columns), "Every method has one strength only.")
    text = (
        f"A run at the worst strength of a method beats one at its best strength in {plots.percent(held.mean())} "
        "of pairs, on average over datasets, metrics and methods."
    )
    return Result(found, draw_strengths(found, columns), text)


def gathered(rows: DataFrame, columns: dict[str, str], by: list[str]) -> DataFrame:
    """Quartiles of every metric in every group."""
    parts = [quartiles(rows, column, by).assign(metric=metric) for metric, column in columns.items()]
    return pd.concat(parts, ignore_index=True)


def upset(part: DataFrame, column: str, sign: float = 1.0) -> float:
    """The probability that a run at the level with the worst median beats one at the best, ties by half."""
    held = part.dropna(subset=[column])
    groups = (sign * held[column]).groupby(held["level"])
    medians = groups.median()
    if len(medians) < 2:
        return float("nan")
    return above(*(groups.get_group(level).to_numpy() for level in (medians.idxmin(), medians.idxmax())))


def above(first: Array, second: Array) -> float:
    """P(first > second) + P(first = second) / 2 for independent draws.

    >>> above(np.array([1.0, 3.0]), np.array([1.0, 2.0]))
    0.625
    """
    gap = first[:, None] - second[None, :]
    return float((gap > 0).mean() + (gap == 0).mean() / 2)


def draw_scores(rows: DataFrame, columns: dict[str, str]) -> Figure:
    """A row a metric, a column a dataset, a violin a method."""
    names, styles = list(rows["data"].unique()), plots.looks(rows["method"])
    methods = list(styles)
    figure, grid = plots.matrix(len(columns), len(names), sharex=True, sharey="row")
    for line, column in zip(grid, columns.values(), strict=True):
        for axes, data in zip(line, names, strict=True):
            part = rows[rows["data"] == data].dropna(subset=[column])
            groups = [part.loc[part["method"] == method, column].to_numpy() for method in methods]
            plots.violins(axes, groups, [styles[method] for method in methods])
            axes.set_xticks(range(len(methods)))
    plots.edges(grid, names, [score_name(metric) for metric in columns], "method")
    numbered = {
        f"{i} {plots.method_name(method)}": {**styles[method], "marker": "s"} for i, method in enumerate(methods)
    }
    plots.legend(figure, numbered)
    return figure


def draw_strengths(found: DataFrame, columns: dict[str, str]) -> Figure:
    """A row a metric, a column a dataset, a line a method."""
    names, styles = list(found["data"].unique()), plots.looks(found["method"])
    figure, grid = plots.matrix(len(columns), len(names), sharex=True, sharey="row")
    for line, metric in zip(grid, columns, strict=True):
        for axes, data in zip(line, names, strict=True):
            part = found[(found["data"] == data) & (found["metric"] == metric)]
            for method, levels in part.groupby("method", sort=False):
                plots.band(axes, levels, "level", styles[method])
            axes.set_xticks(sorted(found["level"].unique()))
    plots.edges(grid, names, [score_name(metric) for metric in columns], "strength (level)")
    plots.legend(figure, {plots.method_name(name): look for name, look in styles.items()})
    return figure
