"""The effect of the dimension, the capacity and the random walk of diffusion VAEs on their scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame, Series

from unbraid.analysis import plots
from unbraid.analysis.results_table import (
    Result,
    check_columns,
    check_table,
    columns_with_values,
    count_best,
    quartiles,
    reject,
    score_columns,
    score_name,
)

METHOD = "diffusion_vae"
SETTINGS = {"d": "d", "C_max": "setting.c_max", "L": "setting.walk_steps", "beta": "setting.beta"}
DIMENSIONS: dict[str, Callable[[int], int]] = {
    "sphere": lambda latents: latents - 1,
    "projective": lambda latents: latents - 1,
    "torus": lambda latents: 2,
    "flat_torus": lambda latents: latents // 2,
    "rotations": lambda latents: 3,
}  # dimension of each latent space as a function of the number of latents
REACHED = {"KL [nats]": "train.kl"}


def challenge(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""Show how the scores of diffusion VAEs depend on their dimension d, final capacity and length of the random walk.

    The settings are the dimension d of the latent space, the final capacity :math:`C_{max}` in nats, the number L of
    steps of the random walk, and the weight :math:`\beta`. Runs that have the same values of all four differ in the
    seed only. The final KL is also summarised, because it shows whether the capacity was reached.

    Reference: Perez Rey (2019), NeurIPS 2019 Disentanglement Challenge, table 1. The report lists the settings
    without their scores.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default those of the six metrics of Locatello et al. (2019) that are in the table.

    Returns:
        A result whose table has one row per dataset, quantity and combination of the settings `d`, `C_max`, `L` and
        `beta`. Its other columns are `runs`, and the `low` quartile, `median` and `high` quartile over seeds.

    Raises:
        UserError: If there are no scores or no runs of diffusion VAEs.
    """
    columns = score_columns(table, metrics)
    check_columns(table, columns.values())
    runs = table[table["method"] == METHOD]
    if not len(runs):
        got = ", ".join(map(str, table["method"].unique()))
        reject(f"There must be runs of {METHOD}.", got, "Train them with: unbraid study diffusion2019")
    rows = add_settings(runs, columns | columns_with_values(runs, REACHED))
    quantities = columns | columns_with_values(runs, REACHED)
    parts = [quartiles(rows, column, ["data", *SETTINGS]).assign(quantity=name) for name, column in quantities.items()]
    summary = pd.concat(parts, ignore_index=True)
    return Result(summary, draw_challenge(summary, list(columns)), summary_text(summary, list(columns)))


def add_settings(runs: DataFrame, columns: dict[str, str]) -> DataFrame:
    """Check the runs and return the columns of `KEYS`, the given columns and the columns of `SETTINGS`.

    The runs with the same values of `SETTINGS` must have different seeds.
    """
    check_columns(runs, ["latents", "setting.space", *list(SETTINGS.values())[1:]])
    pairs = zip(runs["setting.space"], runs["latents"], strict=True)
    dimensions = Series([DIMENSIONS[space](latents) for space, latents in pairs], runs.index)
    added = DataFrame({"d": dimensions} | {name: runs[column] for name, column in list(SETTINGS.items())[1:]})
    variants = added.astype(float).apply(lambda row: ", ".join(f"{name} {row[name]:g}" for name in SETTINGS), axis=1)
    rows = check_table(runs.assign(variant=variants), columns.values())
    return rows.assign(**{name: added[name].to_numpy() for name in SETTINGS})


def summary_text(summary: DataFrame, metrics: list[str]) -> str:
    """Say which dimension has the best median most often, and which values of the other settings there are."""
    scored = summary[summary["quantity"].isin(metrics)].reset_index(drop=True)
    best, combinations = count_best(scored, "quantity", "d")
    others = [f"{name} {', '.join(f'{v:g}' for v in sorted(summary[name].unique()))}" for name in list(SETTINGS)[1:]]
    return (
        f"Dimension {best.index[0]} has the best median score most often, in {best.iloc[0]} of {combinations} "
        f"combinations of a dataset and a metric, over all runs with {'; '.join(others)}."
    )


def draw_challenge(summary: DataFrame, metrics: list[str]) -> Figure:
    """Draw one row of axes per quantity and one column per dataset, with one line per dimension, C_max and L."""
    names, quantities = list(summary["data"].unique()), list(dict.fromkeys(summary["quantity"]))
    labels = summary[["d", "C_max", "L"]].apply(
        lambda row: f"d = {row['d']:g}, C_max {row['C_max']:g}, L {row['L']:g}", 1
    )
    styles = plots.line_styles(labels)
    figure, grid = plots.grid_figure(len(quantities), len(names), size=(2.1, 1.7), sharex=True, sharey="row")
    for line, quantity in zip(grid, quantities, strict=True):
        for axes, data in zip(line, names, strict=True):
            chosen = (summary["data"] == data) & (summary["quantity"] == quantity)
            for label, part in summary[chosen].groupby(labels[chosen], sort=False):
                plots.draw_band(axes, part, "beta", styles[str(label)])
    sides = [score_name(name) if name in metrics else name for name in quantities]
    plots.label_edges(grid, names, sides, "beta")
    plots.draw_legend(figure, styles, columns=2)
    return figure
