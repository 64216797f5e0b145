"""The effect of the final capacity of AnnealedVAE on scores and on the information about each factor."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.results_table import (
    Result,
    check_table,
    columns_with_values,
    count_best,
    quartiles,
    reject,
    score_columns,
    score_name,
)

METHOD, INFORMATION = "annealed_vae", "information."
KL_STYLE: dict[str, plots.Style] = {"train.kl": {"color": "#333333", "marker": "o"}}


def capacity(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""Show how scores, the KL and the information about each factor depend on the final capacity of AnnealedVAE.

    .. math:: E_q[-\log p(x|z)] + \gamma\, |KL(q(z|x) \| p(z)) - C|, \quad C \to C_{max}

    During training, the capacity C grows to :math:`C_{max}`, which is the column `strength`. The weight :math:`\gamma`
    is fixed. The quantities are the scores and, if the table has them, the final KL `train.kl` and the columns
    ``information.<factor>``, both in nats.

    Reference: Burgess et al. (2018), arXiv:1804.03599, equation 8.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default all of the six metrics in Locatello et al. (2019) that are in the table.

    Returns:
        A result whose table has one row per dataset, quantity and strength: `runs`, and the `low` quartile, `median`
        and `high` quartile over seeds.

    Raises:
        UserError: If the runs of AnnealedVAE have fewer than 2 strengths or fewer than 2 seeds, or if there are no
            scores.
    """
    columns = score_columns(table, metrics)
    nats = columns_with_values(
        table, {str(name): str(name) for name in table.columns if str(name).startswith(INFORMATION)}
    )
    reached = columns_with_values(table, {"train.kl": "train.kl"})
    quantities = {**columns, **reached, **nats}
    rows = check_table(table, quantities.values())
    rows = rows[rows["method"] == METHOD]
    if rows["strength"].nunique() < 2 or rows["seed"].nunique() < 2:
        got = f"{rows['strength'].nunique()} strengths and {rows['seed'].nunique()} seeds"
        remedy = f"Train {METHOD} with more strengths or seeds."
        reject(f"Runs of {METHOD} must have at least 2 strengths and 2 seeds.", got, remedy)
    by = ["data", "level", "strength"]
    parts = [quartiles(rows, column, by).assign(quantity=name) for name, column in quantities.items()]
    summary = pd.concat(parts, ignore_index=True)
    return Result(
        summary, draw_capacity(summary, list(columns), list(reached), list(nats)), summary_text(summary, list(columns))
    )


def summary_text(summary: DataFrame, metrics: list[str]) -> str:
    """Say which capacity has the best median most often, and how close the KL is to its target."""
    scored = summary[summary["quantity"].isin(metrics)]
    leaders, combinations = count_best(scored, "quantity", "strength")
    text = (
        f"A final capacity of {leaders.index[0]:g} nats has the best median score most often, in {leaders.iloc[0]} of "
        f"{combinations} combinations of a dataset and a metric."
    )
    kl = summary[summary["quantity"] == "train.kl"]
    gap = (kl["median"] - kl["strength"]).abs().median()
    return text if not len(kl) else f"{text} The median distance of the final KL from its target is {gap:.2g} nats."


def draw_capacity(summary: DataFrame, metrics: list[str], reached: list[str], nats: list[str]) -> Figure:
    """Draw rows of axes for the scores, the KL and the information about factors, with one column per dataset."""
    groups = {"score": metrics, "KL [nats]": reached, "information [nats]": nats}
    groups = {name: members for name, members in groups.items() if members}
    names = list(summary["data"].unique())
    figure, grid = plots.grid_figure(len(groups), len(names), size=(2.1, 2.1), sharex=True, sharey="row")
    styles = plots.line_styles(score_name(metric) for metric in metrics)
    for line, members in zip(grid, groups.values(), strict=True):
        for axes, data in zip(line, names, strict=True):
            part = summary[(summary["data"] == data) & summary["quantity"].isin(members)]
            factors = KL_STYLE if members is reached else plots.line_styles(part["quantity"])
            draw_curves(axes, part, styles if members is metrics else factors)
            if members is reached:
                axes.axline((0, 0), slope=1, color="grey", linewidth=0.8, linestyle="--")
            if members is nats and len(part):
                draw_factor_legend(axes, part)
    plots.label_edges(grid, names, list(groups), "final capacity [nats]")
    plots.draw_legend(figure, styles, above=True)  # near the scores, because the other rows use other colours
    return figure


def draw_curves(axes: Axes, part: DataFrame, styles: dict[str, plots.Style]) -> None:
    """Draw the median and the quartiles of each quantity."""
    for quantity, lines in part.groupby("quantity", sort=False):
        plots.draw_band(axes, lines, "strength", styles[score_name(str(quantity))])


def draw_factor_legend(axes: Axes, part: DataFrame) -> None:
    """Draw a small legend of the factors of one dataset, because datasets may have different factors."""
    for quantity, style in plots.line_styles(part["quantity"]).items():
        axes.plot([], [], label=quantity.removeprefix(INFORMATION), markersize=3.5, **style)
    axes.legend(fontsize=plots.SMALL - 1, frameon=False, handlelength=1.2, borderpad=0.1, labelspacing=0.2)
