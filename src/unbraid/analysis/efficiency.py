"""The scores of single runs against the statistical efficiency of a downstream task."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.correlation import TASKS
from unbraid.analysis.results_table import (
    Result,
    check_enough_runs,
    check_table,
    columns_with_values,
    reject,
    score_columns,
    score_name,
    spearman,
)

EFFICIENCY = TASKS["GBT efficiency"]


def efficiency(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""Plot the statistical efficiency of gradient boosted trees against each score, with one point per run.

    .. math:: a_{100} / a_{10000}

    :math:`a_N` is the test accuracy, averaged over factors, of trees that were fitted to N labelled examples. The
    efficiency is the accuracy with 100 examples divided by the accuracy with 10,000 examples.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.5 and figure 6.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default all of the paper's six metrics that are in the table.

    Returns:
        A result whose table has one row per run and metric: `data`, `method`, `strength`, `level`, `seed`, `metric`,
        `score` and `efficiency`.

    Raises:
        UserError: If the table has no values of the efficiency, no scores or too few runs.
    """
    if not columns_with_values(table, {"efficiency": EFFICIENCY}):
        reject(f"The column {EFFICIENCY} must have values.", "none", "Score the runs with downstream_gbt.")
    columns = score_columns(table, metrics)
    rows = check_table(table, [EFFICIENCY, *columns.values()])
    check_enough_runs(rows, [EFFICIENCY, *columns.values()])
    keys = ["data", "method", "strength", "level", "seed"]
    parts = [
        rows[keys].assign(metric=metric, score=rows[column], efficiency=rows[EFFICIENCY])
        for metric, column in columns.items()
    ]
    points = pd.concat(parts, ignore_index=True).dropna(subset=["score", "efficiency"]).reset_index(drop=True)
    return Result(points, draw_points(points, list(columns)), summary_text(points))


def summary_text(points: DataFrame) -> str:
    """Give the median and the range of the rank correlation over combinations of a dataset and a metric."""
    groups = points.groupby(["data", "metric"], sort=False)
    found = [spearman(part["score"], part["efficiency"]) for _, part in groups]
    rho = pd.Series(found, dtype=float).dropna()
    if rho.empty:
        return "No combination of a dataset and a metric has enough runs with different scores."
    return (
        f"The rank correlation of a score with the statistical efficiency of trees is {rho.median():.2f} in the median "
        f"over combinations of a dataset and a metric (from {rho.min():.2f} to {rho.max():.2f})."
    )


def draw_points(points: DataFrame, metrics: list[str]) -> Figure:
    """Draw one row of axes per metric, one column per dataset, and one point per run in the style of its method."""
    names, styles = list(points["data"].unique()), plots.line_styles(points["method"])
    figure, grid = plots.grid_figure(len(metrics), len(names), size=(2.0, 1.9), sharex="row", sharey="col")
    for line, metric in zip(grid, metrics, strict=True):
        for axes, data in zip(line, names, strict=True):
            part = points[(points["data"] == data) & (points["metric"] == metric)]
            for method, runs in part.groupby("method", sort=False):
                axes.scatter(runs["score"], runs["efficiency"], s=9, alpha=0.6, linewidths=0, **styles[method])
            plots.set_labels(axes, x=score_name(metric))
    for axes, data in zip(grid[0], names, strict=True):
        plots.set_labels(axes, data)
    for axes in grid[:, 0]:
        plots.set_labels(axes, y="efficiency (GBT)")
    plots.draw_legend(figure, {plots.display_name(name): style for name, style in styles.items()})
    return figure
