"""Compare scores on original images, on images modified to mislead VAEs, and on images with noise of the same size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series

from unbraid.analysis import plots
from unbraid.analysis.results_table import (
    Array,
    Result,
    base_methods,
    check_columns,
    check_strengths,
    check_table,
    columns_with_values,
    name_variants,
    reject,
    score_name,
    sign,
)
from unbraid.metrics import headline
from unbraid.scoring.permutation import p_value

VARIANTS = ("original", "modified", "noise")
COLOURS = dict(zip(VARIANTS, plots.PALETTE, strict=False))
PRIMARY = 1  # level (index in the sweep over strengths) of the strengths in the tables of the paper
# Methods without a normal posterior. Their runs are never counted as over-pruned.
NO_NORMAL_POSTERIOR = (
    "ae", "pca", "ica", "ae_ica", "fsq", "tripod", "qlae", "sae", "pcl", "cl_ica", "ice_beem", "pmp", "diffusion_vae",
    "s_vae", "poincare_vae", "lsbd_vae",
)  # fmt: skip
UNITS, FACTORS = "active.units", "active.factors"
SCORES = {
    "MIG": "mig.discrete_mig",
    "DCI": "dci.disentanglement",  # uses the importances "mean", whose scores agree with the paper
    "DCI, per tree": "dci.disentanglement_per_tree",
    "FactorVAE": "factor_vae.eval_accuracy",
    "SAP": "sap.SAP_score",
}
MANIPULATED = ("manipulated", "manipulated_spread", "manipulated_factors", "manipulated_strengths")
SIGNIFICANCE = 0.05  # a loss with a smaller p-value is significant


def dataset_variant(data: str) -> tuple[str, str]:
    """Split the name of a dataset into the original dataset and the variant ("original", "modified" or "noise").

    >>> dataset_variant("dsprites"), dataset_variant("dsprites?noise=0.1")
    (('dsprites', 'original'), ('dsprites', 'noise'))
    >>> dataset_variant("photos?size=32&modified=default")
    ('photos?size=32', 'modified')
    """
    bare, mark, text = data.rpartition("?")
    options = text.split("&") if mark else []
    variants = [name for name in VARIANTS[1:] if any(option.startswith(f"{name}=") for option in options)]
    if not variants:
        return data, VARIANTS[0]
    left = "&".join(option for option in options if not option.startswith(("modified=", "noise=")))
    return bare + "?" * bool(left) + left, variants[0]


def discard_over_pruned(table: DataFrame) -> tuple[DataFrame, DataFrame]:
    r"""Remove over-pruned runs from a results table, and count them per dataset and method.

    A latent is active if its posterior is narrower than the prior, :math:`E_x[\sigma^2(x)] < 0.8`. A run is over-pruned
    if it has fewer active latents (column `active.units`) than the data have factors (column `active.factors`). Such a
    run cannot represent all factors. Methods without a normal posterior are never over-pruned. Unfinished and diverged
    runs are removed as well.

    Reference: Zietlow et al. (2021), arXiv:2102.06822. The threshold of 0.8 is given in the main paper. The captions of
    figures 4 to 6 in the supplement say that over-pruned runs were left out.

    Args:
        table: A results table with one row per run.

    Returns:
        The remaining rows, and a table with one row per dataset and method that has the numbers of finished (`runs`),
        over-pruned (`discarded`) and `diverged` runs.

    Raises:
        UserError: If the active latents of a VAE were not counted.
    """
    done = finished_runs(table)
    pruned = is_over_pruned(done)
    by = ["data", "method"]
    counts = done.groupby(by, sort=False).size().rename("runs").to_frame()
    counts["discarded"] = done[pruned].groupby(by).size()
    if "status" in table:
        lost = table[table["status"] == "diverged"].groupby(by).size().rename("diverged")
        counts = counts.join(lost, how="outer")
    counts = counts.reindex(columns=["runs", "discarded", "diverged"]).fillna(0).astype(int).reset_index()
    return done[~pruned], counts


def finished_runs(table: DataFrame) -> DataFrame:
    """Return the finished runs, or all runs if the table has no column `status`."""
    return table[table["status"] == "done"] if "status" in table else table


def is_over_pruned(done: DataFrame) -> Series:
    """Return whether each run has fewer active latents than factors.

    Raise a UserError if the number of active latents of a VAE is missing.
    """
    cannot_prune = base_methods(done["method"]).isin(NO_NORMAL_POSTERIOR)
    counted = done.reindex(columns=[UNITS, FACTORS]).astype(float)
    missing = done[~cannot_prune & counted.isna().any(axis=1)]
    if len(missing):
        row = missing.iloc[0]
        remedy = "Run the command of the study again. If the command has --metrics, add active to that list."
        reject(f"Every run of a VAE must have {UNITS} and {FACTORS}.", f"run {row['run']} without them", remedy)
    return ~cannot_prune & (counted[UNITS] < counted[FACTORS])


def manipulated(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""Compute how much the scores of each method fall on modified images and on images with noise of the same size.

    The modification is designed to mislead VAEs, so the scores of other methods should not fall. A loss is the mean
    score on the original images minus the mean score on the modified or noisy images. Its standard error is
    :math:`\sqrt{s_1^2 / n_1 + s_2^2 / n_2}`, with the sample standard deviations s and the numbers n of runs on the two
    kinds of images. Its p-value is that of a two-sided permutation test. Only runs at the primary strength of a method
    are used. A level is the index of a strength in the sweep. The primary strength is that of level 1, or of the
    lowest level if there is no level 1. Over-pruned runs are left out (see `discard_over_pruned`).

    Reference: Zietlow et al. (2021), arXiv:2102.06822, table 1, and tables 2 to 4 of its supplement.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default those of MIG, DCI, FactorVAE score and SAP that are in the table.

    Returns:
        A result whose table has one row per dataset, method and score, with `level` and `strength`. For each variant
        (`original`, `modified`, `noise`), the column ``<variant>`` is the mean, ``<variant>_std`` the sample standard
        deviation, ``<variant>_runs`` the number of runs and ``<variant>_discarded`` the number of over-pruned runs.
        `modified` and `noise` also have ``<variant>_loss``, its standard error ``<variant>_error`` and its p-value
        ``<variant>_p``.

    Raises:
        UserError: If there are no scores, if no dataset has runs on both its original and another variant, or if low
            scores of a metric are good.
    """
    columns = available_scores(table, metrics)
    rows = runs_at_primary_strength(comparable_runs(table, columns))
    summary = summarise_scores(rows, columns)
    return Result(summary, draw_manipulated(rows, columns), summary_text(summary, rows))


def available_scores(table: DataFrame, metrics: Sequence[str] | None = None) -> dict[str, str]:
    """Return the columns of `SCORES` that have values in the table, by display name.

    If metrics are given, return the columns of these metrics instead. Raise a UserError if no column of `SCORES` has
    values, if a given metric has no column with values, or if low scores of a given metric are good.
    """
    low = [metric for metric in metrics or () if sign(metric) < 0]
    if low:
        remedy = "Choose other metrics, such as mig, dci, factor_vae and sap."
        reject("A loss needs a metric whose high scores are good.", low[0], remedy)
    chosen = [SCORES] if metrics is None else [metric_columns(metric) for metric in metrics]
    found = [columns_with_values(table, columns) for columns in chosen]
    for columns, available in zip(chosen, found, strict=True):
        if not available:
            wanted = ", ".join(columns.values())
            reject(f"One of these columns must have values: {wanted}.", "none of them", "Score the runs.")
    return {name: column for available in found for name, column in available.items()}


def metric_columns(metric: str) -> dict[str, str]:
    """Return the columns of a metric in `SCORES`, or its headline column if it has none there.

    >>> metric_columns("sap"), metric_columns("modularity")
    ({'SAP': 'sap.SAP_score'}, {'Modularity': 'modularity.modularity_score'})
    """
    columns = {name: column for name, column in SCORES.items() if column.startswith(f"{metric}.")}
    return columns or {score_name(metric): headline(metric)}


def comparable_runs(table: DataFrame, columns: dict[str, str]) -> DataFrame:
    """Return the finished runs on datasets that have runs on the original and on at least one other variant.

    The columns `base` (the original dataset), `variant` and `pruned` (whether the run is over-pruned) are added.
    """
    check_columns(table, columns.values())
    done = finished_runs(name_variants(table)).assign(pruned=False)
    done[["base", "variant"]] = [dataset_variant(name) for name in done["data"]]
    n_variants = done.groupby("base")["variant"].nunique()
    originals = done.loc[done["variant"] == VARIANTS[0], "base"].unique()
    bases = [base for base in done["base"].unique() if base in originals and n_variants[base] > 1]
    if not bases:
        got = f"only {', '.join(map(str, done['data'].unique()[:4]))}"
        remedy = "Also train on NAME?modified=FILE or NAME?noise=0.1, as in: unbraid study demystifying2021"
        reject("There must be runs on a dataset and on a modified variant of it.", got, remedy)
    done = done[done["base"].isin(bases)]
    _check_one_variant(done)
    done = done.assign(pruned=is_over_pruned(done))
    wanted = [*columns.values(), "base", "variant", "pruned"]
    return pd.concat([_check_rows(done[done["base"] == base], wanted) for base in bases], ignore_index=True)


def _check_rows(part: DataFrame, wanted: list[str]) -> DataFrame:
    """Check and return the rows of one dataset. Each level of a method must have the same strength in all variants."""
    *columns, base, variant, pruned = wanted
    check_strengths(part, str(part[base].iloc[0]))
    added = {name: part[name].to_numpy() for name in (base, variant, pruned)}
    return check_table(part.drop(columns=variant), columns, seeds=2).assign(**added)


def _check_one_variant(done: DataFrame) -> None:
    """Raise a UserError if a dataset has two modifications or two strengths of noise."""
    names = done.groupby(["base", "variant"])["data"].agg(lambda data: sorted(set(data)))
    twice = names[names.map(len) > 1]
    if len(twice):
        got = " and ".join(twice.iloc[0])
        requirement = "A dataset must have only one modification and one noise level."
        reject(requirement, got, "Filter the table by 'data'.")


def runs_at_primary_strength(rows: DataFrame) -> DataFrame:
    """Return the runs at the primary strength of each method (see `primary_level`)."""
    return rows[rows["level"] == rows.groupby(["base", "method"])["level"].transform(primary_level)]


def primary_level(levels: Series) -> float:
    """Return level 1, or the lowest level if there is no level 1."""
    return float(PRIMARY if (levels == PRIMARY).any() else levels.min())


def summarise_scores(rows: DataFrame, columns: dict[str, str]) -> DataFrame:
    """Return one row per dataset, method, level and score, with the columns described in `manipulated`."""
    by = ["base", "method", "level", "strength"]
    lines = []
    for keys, part in rows.groupby(by, sort=False):
        group = dict(zip(["data", *by[1:]], keys, strict=True))
        lines += [{**group, "score": name, **summarise_score(part, column)} for name, column in columns.items()]
    return DataFrame(lines)


def summarise_score(part: DataFrame, column: str) -> dict[str, Any]:
    """Return the mean, standard deviation and number of runs of one score for each variant, and the losses."""
    used = part[~part["pruned"]]
    values = {variant: used.loc[used["variant"] == variant, column].dropna().to_numpy() for variant in VARIANTS}
    line: dict[str, Any] = {}
    for variant, sample in values.items():
        line[variant] = sample.mean() if len(sample) else math.nan
        line[f"{variant}_std"] = sample.std(ddof=1) if len(sample) > 1 else math.nan
        line[f"{variant}_runs"] = len(sample)
        line[f"{variant}_discarded"] = int(part.loc[part["variant"] == variant, "pruned"].sum())
    for variant in VARIANTS[1:]:
        loss, error = mean_loss(values[VARIANTS[0]], values[variant])
        p = p_value(values[VARIANTS[0]], values[variant])
        line |= {f"{variant}_loss": loss, f"{variant}_error": error, f"{variant}_p": p}
    return line


def mean_loss(original: Array, modified: Array) -> tuple[float, float]:
    """Return the difference of two means and its standard error, or NaN if there are too few values.

    >>> mean_loss(np.array([3.0, 5.0]), np.array([1.0, 1.0]))
    (3.0, 1.0)
    """
    if not (len(original) and len(modified)):
        return math.nan, math.nan
    loss = float(original.mean() - modified.mean())
    if min(len(original), len(modified)) < 2:
        return loss, math.nan
    return loss, math.sqrt(original.var(ddof=1) / len(original) + modified.var(ddof=1) / len(modified))


def summary_text(summary: DataFrame, rows: DataFrame) -> str:
    """Say how often the first score falls significantly, and for which method it falls most."""
    name = summary["score"].iloc[0]
    scored = summary[summary["score"] == name]
    parts = []
    for variant in VARIANTS[1:]:
        tested = scored.dropna(subset=[f"{variant}_p"])
        if len(tested):
            loses = (tested[f"{variant}_p"] < SIGNIFICANCE) & (tested[f"{variant}_loss"] > 0)
            median = plots.format_decimal(float(tested[f"{variant}_loss"].median()))
            what = "modified images" if variant == "modified" else "images with noise"
            parts.append(f"{loses.sum()} of {len(tested)} on {what} (median loss {median})")
    text = (
        f"The {name} is significantly lower than on the original images (p < 0.05) in the following number of "
        f"combinations of a dataset and a method: {' and '.join(parts)}."
    )
    top = scored.dropna(subset=["modified_loss"]).nlargest(1, "modified_loss")
    for _, row in top.iterrows():
        ends = f"from {plots.format_decimal(row['original'])} to {plots.format_decimal(row['modified'])}"
        text += f" {plots.display_name(row['method'])} on {row['data']} loses most on modified images, {ends}."
    return f"{text} {int(rows['pruned'].sum())} of {len(rows)} runs were over-pruned and left out."


def draw_manipulated(rows: DataFrame, columns: dict[str, str]) -> Figure:
    """Draw one row of axes per score, one column per dataset, and one dot per run in the colour of its variant."""
    bases, methods = list(rows["base"].unique()), list(rows["method"].unique())
    size = (max(2.6, 0.55 * len(methods)), 1.8)
    figure, grid = plots.grid_figure(len(columns), len(bases), size=size, sharex=True, sharey="row")
    for line, column in zip(grid, columns.values(), strict=True):
        for axes, base in zip(line, bases, strict=True):
            draw_dots(axes, rows[(rows["base"] == base) & ~rows["pruned"]], column, methods)
    for axes in grid[-1]:
        names = [plots.display_name(method) for method in methods]
        axes.set_xticks(range(len(methods)), names, rotation=40, ha="right", rotation_mode="anchor")
    plots.label_edges(grid, bases, list(columns), "")
    draw_variant_legend(figure, list(rows["variant"].unique()))
    return figure


def draw_variant_legend(figure: Figure, drawn: Sequence[str]) -> None:
    """Draw a legend with the variants of a dataset that the figure shows."""
    plots.draw_legend(figure, {name: {"color": COLOURS[name], "marker": "o"} for name in VARIANTS if name in drawn})


def draw_dots(axes: Axes, part: DataFrame, column: str, methods: list[str]) -> None:
    """Draw the runs of each method and variant side by side, and a bar at each mean."""
    for i, method in enumerate(methods):
        for j, variant in enumerate(VARIANTS):
            chosen = part[(part["method"] == method) & (part["variant"] == variant)].sort_values("seed")
            values = chosen[column].dropna().to_numpy()
            if len(values):
                center = i + 0.27 * (j - 1)
                spread = np.linspace(-0.08, 0.08, len(values)) if len(values) > 1 else np.zeros(1)
                axes.scatter(center + spread, values, s=9, color=COLOURS[variant], linewidths=0, alpha=0.8)
                axes.hlines(values.mean(), center - 0.12, center + 0.12, color="black", linewidth=1.2)
