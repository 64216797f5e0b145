"""Show how much scores vary within a method or strength, and how much they overlap between methods or strengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.results_table import (
    Result,
    count_best,
    quartiles,
    score_name,
    scored_rows,
    sign,
)

BY_STRENGTH = ["data", "method", "level", "strength"]


def scores(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    """Show how scores vary within a method and overlap between methods, over all strengths and seeds.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.3 and figure 3 (left).

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default all of the paper's six metrics that are in the table.

    Returns:
        A result whose table has one row per dataset, metric and method: `runs`, `low` quartile, `median`, `high`
        quartile, `least` and `most` (minimum and maximum).

    Raises:
        UserError: If there are no scores, fewer than 2 seeds, or scores that do not differ.
    """
    rows, columns = scored_rows(table, metrics)
    summary = quartiles_by_metric(rows, columns, ["data", "method"])
    summary = add_extremes(summary, rows, columns, ["data", "method"])
    leaders, combinations = count_best(summary, "metric", "method")
    text = (
        f"{plots.display_name(leaders.index[0])} has the best median score most often, in {leaders.iloc[0]} of "
        f"{combinations} combinations of a dataset and a metric. {len(leaders)} of {rows['method'].nunique()} methods "
        "have the best median, alone or tied, in at least one combination."
    )
    return Result(summary, draw_scores(rows, columns), text)


def strengths(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""Show how scores depend on the regularisation strength, as median and quartiles over seeds for each method.

    The text says how often a good seed compensates for a bad strength. For each seed, the strengths with the worst and
    the best median over all other seeds are chosen. Let s and s' be the scores of the runs with this seed at the worst
    and at the best strength. The text gives the probability :math:`P(s > s') + P(s = s') / 2` that s is better, over
    all seeds, averaged over datasets, metrics and methods. It is 0 if only the strength matters. It is 50 % on average
    if only the seed matters, because the compared runs are not used for the choice.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.3 and figures 3 (right) and 4.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default all of the paper's six metrics that are in the table.

    Returns:
        A result whose table has one row per dataset, metric, method and level. The level is the position of the
        strength in the sweep. The other columns are `strength`, `runs`, `low` quartile, `median`, `high` quartile.

    Raises:
        UserError: If there are no scores, fewer than 2 seeds, or scores that do not differ.
    """
    rows, columns = scored_rows(table, metrics)
    summary = quartiles_by_metric(rows, columns, BY_STRENGTH)
    groups = [part for _, part in rows.groupby(["data", "method"])]
    chances = [worst_beats_best(part, column, sign(metric)) for metric, column in columns.items() for part in groups]
    finite = np.array([chance for chance in chances if np.isfinite(chance)])
    text = "No method has at least two strengths with at least two seeds."
    if len(finite):
        text = (
            "A run at the worst strength of a method scores better than a run with the same seed at its best strength "
            f"in {plots.format_percent(finite.mean())} of pairs, on average over datasets, metrics and methods. The "
            "worst and the best strength are chosen by the scores of the other seeds."
        )
    return Result(summary, draw_strengths(summary, columns), text)


def distributions(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    """Show the distribution of scores over seeds at each regularisation strength of each method, as violins.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.3 and figure 3 (right).

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default all of the paper's six metrics that are in the table.

    Returns:
        A result whose table has one row per dataset, metric, method and level. The level is the position of the
        strength in the sweep. The other columns are `strength`, `runs`, `low` quartile, `median`, `high` quartile,
        `least` and `most` (minimum and maximum).

    Raises:
        UserError: If there are no scores, fewer than 2 seeds, or scores that do not differ.
    """
    rows, columns = scored_rows(table, metrics)
    summary = add_extremes(quartiles_by_metric(rows, columns, BY_STRENGTH), rows, columns, BY_STRENGTH)
    return Result(summary, draw_distributions(rows, columns), describe_distributions(summary))


def describe_distributions(summary: DataFrame) -> str:
    """Compare the range of the medians over strengths with the interquartile range over seeds at one strength.

    Strengths with a single run have no interquartile range. Methods with fewer than two other strengths are left out.
    """
    several = summary[summary["runs"] > 1].assign(spread=lambda lines: lines["high"] - lines["low"])
    groups = several.groupby(["data", "metric", "method"]).filter(lambda lines: len(lines) > 1)
    by_method = groups.groupby(["data", "metric", "method"])
    within, between = by_method["spread"].median(), by_method["median"].max() - by_method["median"].min()
    if not len(within):
        return "No method has at least two strengths with at least two seeds."
    return (
        f"In {int((between < within).sum())} of {len(within)} combinations of a dataset, a metric and a method, the "
        "difference between the highest and the lowest median of the strengths is smaller than the typical "
        "interquartile range over seeds at one strength."
    )


def add_extremes(summary: DataFrame, rows: DataFrame, columns: dict[str, str], by: list[str]) -> DataFrame:
    """Add the columns `least` and `most`, the minimum and maximum of each metric in each group."""
    for name, what in (("least", "min"), ("most", "max")):
        ends = [rows.groupby(by)[column].agg(what).rename(metric) for metric, column in columns.items()]
        wide = pd.concat(ends, axis=1).rename_axis(columns="metric").stack().rename(name)
        summary = summary.merge(wide.reset_index(), on=[*by, "metric"])
    return summary


def quartiles_by_metric(rows: DataFrame, columns: dict[str, str], by: list[str]) -> DataFrame:
    """Return the quartiles of each metric in each group, with one row per metric and group."""
    parts = [quartiles(rows, column, by).assign(metric=metric) for metric, column in columns.items()]
    return pd.concat(parts, ignore_index=True)


def worst_beats_best(part: DataFrame, column: str, sign: float = 1.0) -> float:
    """Return the probability that a run at the worst level has a better score than a run at the best level.

    For each seed, the worst and the best level are those with the worst and the best median over the other seeds, and
    their runs with this seed are compared. A tie contributes 1/2. The probability is NaN if no seed can be compared.
    """
    scored = part.dropna(subset=[column])
    wide = (sign * scored[column]).groupby([scored["level"], scored["seed"]]).mean().unstack()
    wins = []
    for seed in wide:
        medians = wide.drop(columns=seed).median(axis=1)[wide[seed].notna()].dropna()
        if len(medians) > 1:
            gap = wide.loc[medians.idxmin(), seed] - wide.loc[medians.idxmax(), seed]
            wins.append((np.sign(gap) + 1) / 2)
    return float(np.mean(wins)) if wins else float("nan")


def draw_scores(rows: DataFrame, columns: dict[str, str]) -> Figure:
    """Draw one row of axes per metric, one column per dataset, and one violin per method."""
    names, styles = list(rows["data"].unique()), plots.line_styles(rows["method"])
    methods = list(styles)
    figure, grid = plots.grid_figure(len(columns), len(names), sharex=True, sharey="row")
    for line, column in zip(grid, columns.values(), strict=True):
        for axes, data in zip(line, names, strict=True):
            part = rows[rows["data"] == data].dropna(subset=[column])
            groups = [part.loc[part["method"] == method, column].to_numpy() for method in methods]
            plots.draw_violins(axes, groups, [styles[method] for method in methods])
            axes.set_xticks(range(len(methods)))
    plots.label_edges(grid, names, [score_name(metric) for metric in columns], "method")
    numbered = {
        f"{i} {plots.display_name(method)}": {**styles[method], "marker": "s"} for i, method in enumerate(methods)
    }
    plots.draw_legend(figure, numbered)
    return figure


def draw_distributions(rows: DataFrame, columns: dict[str, str]) -> Figure:
    """Draw one row of axes per metric, one column per dataset, and one violin per method and strength."""
    names, styles = list(rows["data"].unique()), plots.line_styles(rows["method"])
    settings = [
        (method, level) for method in styles for level in sorted(rows.loc[rows["method"] == method, "level"].unique())
    ]
    size = (max(2.0, 0.16 * len(settings) + 0.6), 1.7)
    figure, grid = plots.grid_figure(len(columns), len(names), size=size, sharex=True, sharey="row")
    for line, column in zip(grid, columns.values(), strict=True):
        for axes, data in zip(line, names, strict=True):
            part = rows[rows["data"] == data].dropna(subset=[column])
            by_setting = {key: group[column].to_numpy() for key, group in part.groupby(["method", "level"])}
            groups = [by_setting.get(setting, np.array([])) for setting in settings]
            plots.draw_violins(axes, groups, [styles[method] for method, _ in settings])
            axes.set_xticks(range(len(settings)), [f"{level:g}" for _, level in settings])
    plots.label_edges(grid, names, [score_name(metric) for metric in columns], "strength (level)")
    plots.draw_legend(figure, {plots.display_name(name): {**style, "marker": "s"} for name, style in styles.items()})
    return figure


def draw_strengths(summary: DataFrame, columns: dict[str, str]) -> Figure:
    """Draw one row of axes per metric, one column per dataset, and one line per method."""
    names, styles = list(summary["data"].unique()), plots.line_styles(summary["method"])
    figure, grid = plots.grid_figure(len(columns), len(names), sharex=True, sharey="row")
    for line, metric in zip(grid, columns, strict=True):
        for axes, data in zip(line, names, strict=True):
            part = summary[(summary["data"] == data) & (summary["metric"] == metric)]
            for method, levels in part.groupby("method", sort=False):
                plots.draw_band(axes, levels, "level", styles[method])
            axes.set_xticks(sorted(summary["level"].unique()))
    plots.label_edges(grid, names, [score_name(metric) for metric in columns], "strength (level)")
    plots.draw_legend(figure, {plots.display_name(name): style for name, style in styles.items()})
    return figure
