"""Compute how much of the variance of scores is explained by the objective and by its strength."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.results_table import SETTING, Result, score_name, scored_rows

PANEL_TITLES = {"objective": "objective alone", "setting": "objective and strength"}


def variance(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""Compute how much of the variance of scores is explained by the objective and by its strength.

    .. math:: R^2 = 1 - \frac{\sum_i (s_i - \hat s_{g(i)})^2}{\sum_i (s_i - \bar s)^2}

    This is the R² of ordinary least squares on one indicator per category. Here :math:`s_i` is the score of run i,
    :math:`g(i)` its category, :math:`\hat s_g` the mean score of category g, and :math:`\bar s` the mean score of all
    runs. A category is a method (`objective`), or a method with a strength (`setting`). The variance that the setting
    does not explain is due to the seed.

    With G categories and n runs, (G - 1) / (n - 1) of the variance of random scores is explained on average. This is
    2 % for the 36 settings and 50 seeds of the paper, and 20 % for 5 seeds.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.3. According to its two tables, the objective and
    the setting explain 26 % and 72 % for the MIG on dSprites, 47 % and 54 % for the FactorVAE score on dSprites, and
    13 % and 17 % for SAP on Cars3D.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default all of the paper's six metrics that are in the table.

    Returns:
        A result whose table has one row per dataset and metric: the explained fractions `objective` and `setting`, the
        fractions `objective_chance` and `setting_chance` that are expected by chance, and `runs`. The fractions
        are NaN if all runs on the dataset have the same score.

    Raises:
        UserError: If there are no scores, fewer than 2 seeds, or scores that do not differ.
    """
    rows, columns = scored_rows(table, metrics, minimum=3)
    lines = []
    for data, part in rows.groupby("data", sort=False):
        for metric, column in columns.items():
            objective, setting = explained_fraction(part, column, ["method"]), explained_fraction(part, column, SETTING)
            runs = int(part[column].notna().sum())
            line = {"data": data, "metric": metric, "objective": objective[0], "setting": setting[0]}
            lines.append({**line, "objective_chance": objective[1], "setting_chance": setting[1], "runs": runs})
    summary = DataFrame(lines)
    return Result(summary, draw_fractions(summary, list(columns)), summary_text(summary))


def explained_fraction(rows: DataFrame, column: str, by: list[str]) -> tuple[float, float]:
    """Return the fraction of the variance of a column that groups explain, and its expectation for random values."""
    rows = rows.dropna(subset=[column])
    groups, centred = rows.groupby(by)[column], rows[column] - rows[column].mean()
    total = float((centred**2).sum())
    if rows[column].nunique() < 2:
        return float("nan"), float("nan")
    residual = float(((rows[column] - groups.transform("mean")) ** 2).sum())
    return 1 - residual / total, (groups.ngroups - 1) / (len(rows) - 1)


def summary_text(summary: DataFrame) -> str:
    """Describe the median explained fractions over datasets and metrics."""
    median = summary[["objective", "setting", "objective_chance", "setting_chance"]].median()
    return (
        f"The objective explains {plots.format_percent(median['objective'])} of the variance of scores "
        f"({plots.format_percent(median['objective_chance'])} would be expected by chance). The objective and its "
        f"strength together explain {plots.format_percent(median['setting'])} "
        f"({plots.format_percent(median['setting_chance'])} by chance). The remaining variance is due to the seed. All "
        "percentages are medians over datasets and metrics."
    )


def draw_fractions(summary: DataFrame, metrics: list[str]) -> Figure:
    """Draw two heat maps with one row per dataset and one column per metric."""
    names = list(summary["data"].unique())
    figure, grid = plots.grid_figure(1, 2, size=(0.55 * len(metrics) + 1.2, 0.3 * len(names) + 1.2))
    for axes, (column, title) in zip(grid[0], PANEL_TITLES.items(), strict=True):
        wide = summary.pivot(index="data", columns="metric", values=column).loc[names, metrics]
        plots.draw_heat_map(axes, wide.rename(columns=score_name), low=0, cmap="Blues", form=lambda v: f"{100 * v:.0f}")
        plots.set_labels(axes, title)
        plots.hide_inner_labels(axes)
    figure.suptitle("Explained variance of scores, in per cent", size=plots.TITLE, weight="bold")
    return figure
