"""Scores on images that were modified to mislead VAEs: original images, modified images, and noise of the same size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series

from unbraid.analysis import plots
from unbraid.analysis.results_table import Array, Result, check_columns, check_table, columns_with_values, reject
from unbraid.scoring.permutation import p_value

VARIANTS = ("original", "modified", "noise")
COLOURS = dict(zip(VARIANTS, plots.PALETTE, strict=False))
PRIMARY = 1  # the level with the strengths in the tables of the paper
NO_NORMAL_POSTERIOR = (
    "ae",
    "pcl",
    "pmp",
    "diffusion_vae",
)  # methods whose latents have no normal posterior: they do not prune latents
UNITS, FACTORS = "active.units", "active.factors"
SCORES = {
    "MIG": "mig.discrete_mig",
    "DCI": "dci.disentanglement",  # with the importances that agree with the tables of the paper
    "DCI, per tree": "dci.disentanglement_per_tree",
    "FactorVAE": "factor_vae.eval_accuracy",
    "SAP": "sap.SAP_score",
}
MANIPULATED = ("manipulated", "manipulated_spread", "manipulated_factors", "manipulated_strengths")
SIGNIFICANCE = 0.05  # a loss with a smaller p-value is significant


def dataset_variant(data: str) -> tuple[str, str]:
    """Split the name of a dataset into the original dataset and the variant "original", "modified" or "noise".

    >>> dataset_variant("dsprites"), dataset_variant("dsprites?noise=0.1")
    (('dsprites', 'original'), ('dsprites', 'noise'))
    >>> dataset_variant("photos?size=32&modified=default")
    ('photos?size=32', 'modified')
    """
    bare, mark, text = data.rpartition("?")
    options = text.split("&") if mark else []
    summary = [form for form in VARIANTS[1:] if any(option.startswith(f"{form}=") for option in options)]
    if not summary:
        return data, VARIANTS[0]
    left = "&".join(option for option in options if not option.startswith(("modified=", "noise=")))
    return bare + "?" * bool(left) + left, summary[0]


def discard_over_pruned(table: DataFrame) -> tuple[DataFrame, DataFrame]:
    r"""Remove over-pruned runs from a results table, and count them per dataset and method.

    A latent is active if its posterior is narrower than the prior, :math:`E_x[\sigma^2(x)] < 0.8`. A run with fewer
    active latents (column `active.units`) than factors of the data (`active.factors`) cannot represent all factors and
    is over-pruned. Methods without a normal posterior never are. Unfinished and diverged runs are removed as well.

    Reference: Zietlow et al. (2021), arXiv:2102.06822. The bound is in the main paper; figures 4 to 6 of the supplement
    say that such runs were left out.

    Args:
        table: A results table with one row per run.

    Returns:
        The remaining rows, and a table with one row per dataset and method: `runs` (finished), `discarded`, `diverged`.

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
    """The finished runs; all runs if the table has no `status`."""
    return table[table["status"] == "done"] if "status" in table else table


def is_over_pruned(done: DataFrame) -> Series:
    """Whether each run has fewer active latents than factors. Raises a UserError if the count of a VAE is missing."""
    points = done["method"].isin(NO_NORMAL_POSTERIOR)
    counted = done.reindex(columns=[UNITS, FACTORS]).astype(float)
    missing = done[~points & counted.isna().any(axis=1)]
    if len(missing):
        row = missing.iloc[0]
        remedy = "Run the command of the study again, with `--metrics +active` if it names metrics."
        reject(f"Every run of a VAE must have {UNITS} and {FACTORS}.", f"run {row['run']} without them", remedy)
    return ~points & (counted[UNITS] < counted[FACTORS])


def manipulated(table: DataFrame) -> Result:
    r"""How much each method loses on modified images, and on images with noise of the same size.

    The modification is designed against VAEs, so other methods should lose nothing. A loss is the mean score on the
    original images minus the mean score on the modified images, with its standard error
    :math:`\sqrt{s_1^2 / n_1 + s_2^2 / n_2}` and the two-sided p-value of a permutation test. Only runs at the primary
    strength of a method are used (level 1, or its lowest level if it has no level 1), without over-pruned runs (see
    `discard_over_pruned`).

    Reference: Zietlow et al. (2021), arXiv:2102.06822, table 1, and tables 2 to 4 of its supplement.

    Args:
        table: A results table with one row per run.

    Returns:
        A result whose table has one row per dataset, method and score: `level`, `strength`; for each variant
        (`original`, `modified`, `noise`) its mean, ``<variant>_std`` (with n - 1), ``_runs`` and ``_discarded``; for
        `modified` and `noise` also ``_loss``, ``_error`` and ``_p``.

    Raises:
        UserError: If there are no scores, or no runs on both the original and a modified variant of a dataset.
    """
    columns = available_scores(table)
    rows = runs_at_primary_strength(comparable_runs(table, columns))
    summary = summarise(rows, columns)
    return Result(summary, draw_manipulated(rows, columns), summary_text(summary, rows))


def available_scores(table: DataFrame) -> dict[str, str]:
    """The columns of `SCORES` that have values in the table, by display name."""
    columns = columns_with_values(table, SCORES)
    if not columns:
        wanted = ", ".join(SCORES.values())
        reject(f"One of these columns must hold scores: {wanted}.", "none of them", "Score the runs.")
    return columns


def comparable_runs(table: DataFrame, columns: dict[str, str]) -> DataFrame:
    """Finished runs on datasets with an original and at least one other variant.

    Adds the columns `base` (the original dataset), `variant` and `pruned` (whether the run is over-pruned).
    """
    check_columns(table, columns.values())
    done = finished_runs(table).assign(pruned=False)
    done[["base", "variant"]] = [dataset_variant(name) for name in done["data"]]
    forms = done.groupby("base")["variant"].nunique()
    originals = done.loc[done["variant"] == VARIANTS[0], "base"].unique()
    bases = [base for base in done["base"].unique() if base in originals and forms[base] > 1]
    if not bases:
        got = f"only {', '.join(map(str, done['data'].unique()[:4]))}"
        remedy = "Train on data?modified=FILE or data?noise=0.1 as well: unbraid study demystifying2021."
        reject("There must be runs on a dataset and on a modified variant of it.", got, remedy)
    done = done[done["base"].isin(bases)]
    _check_one_variant(done)
    done = done.assign(pruned=is_over_pruned(done))
    wanted = [*columns.values(), "base", "variant", "pruned"]
    return pd.concat([_checked_rows(done[done["base"] == base], wanted) for base in bases], ignore_index=True)


def _checked_rows(part: DataFrame, wanted: list[str]) -> DataFrame:
    """The checked rows of one dataset in all variants. Other datasets may have other strengths at the same level."""
    *columns, base, form, pruned = wanted
    return check_table(part, columns, seeds=2).assign(**{name: part[name].to_numpy() for name in (base, form, pruned)})


def _check_one_variant(done: DataFrame) -> None:
    """Raise a UserError if a dataset has two modifications or two strengths of noise."""
    names = done.groupby(["base", "variant"])["data"].agg(lambda data: sorted(set(data)))
    twice = names[names.map(len) > 1]
    if len(twice):
        got = " and ".join(twice.iloc[0])
        reject("A dataset must have one modification and one noise.", got, "Filter the table by 'data'.")


def runs_at_primary_strength(rows: DataFrame) -> DataFrame:
    """The runs at the primary strength of each method (see `primary_level`)."""
    return rows[rows["level"] == rows.groupby(["base", "method"])["level"].transform(primary_level)]


def primary_level(levels: Series) -> float:
    """Level 1, or the lowest level if there is no level 1."""
    return float(PRIMARY if (levels == PRIMARY).any() else levels.min())


def summarise(rows: DataFrame, columns: dict[str, str]) -> DataFrame:
    """One row per dataset, method, level and score, with the columns described in `manipulated`."""
    by = ["base", "method", "level", "strength"]
    lines = []
    for keys, part in rows.groupby(by, sort=False):
        group = dict(zip(["data", *by[1:]], keys, strict=True))
        lines += [{**group, "score": name, **summarise_score(part, column)} for name, column in columns.items()]
    return DataFrame(lines)


def summarise_score(part: DataFrame, column: str) -> dict[str, Any]:
    """Mean, standard deviation and number of runs of one score for each variant, and the losses."""
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
    """The difference of two means and its standard error. They are NaN if there are too few values.

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
    """In how many comparisons the first score is lost significantly, and which method loses most."""
    name = summary["score"].iloc[0]
    scored = summary[summary["score"] == name]
    parts = []
    for variant in VARIANTS[1:]:
        known = scored.dropna(subset=[f"{variant}_p"])
        if len(known):
            loses = (known[f"{variant}_p"] < SIGNIFICANCE) & (known[f"{variant}_loss"] > 0)
            median = plots.format_score(float(known[f"{variant}_loss"].median()))
            what = "modified images" if variant == "modified" else "images with noise"
            parts.append(f"{loses.sum()} of {len(known)} on {what} (median loss {median})")
    text = (
        f"Number of comparisons of a dataset and a method in which the {name} is significantly lower than on the "
        f"original images (p < .05): {', '.join(parts)}."
    )
    top = scored.dropna(subset=["modified_loss"]).nlargest(1, "modified_loss")
    for _, row in top.iterrows():
        ends = f"from {plots.format_score(row['original'])} to {plots.format_score(row['modified'])}"
        text += f" {plots.display_name(row['method'])} on {row['data']} loses most on modified images, {ends}."
    return f"{text} {int(rows['pruned'].sum())} of {len(rows)} runs were over-pruned and left out."


def draw_manipulated(rows: DataFrame, columns: dict[str, str]) -> Figure:
    """One row of axes per score, one column per dataset, and one dot per run in the colour of its variant."""
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
    plots.draw_legend(figure, {variant: {"color": COLOURS[variant], "marker": "o"} for variant in VARIANTS})
    return figure


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
