"""More analyses of scores on modified images: distributions over seeds, single factors, and other strengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.demystifying import (
    COLOURS,
    VARIANTS,
    available_scores,
    comparable_runs,
    draw_variant_legend,
    primary_level,
    runs_at_primary_strength,
    summarise_scores,
)
from unbraid.analysis.results_table import Array, Result, columns_with_values, reject

MIG, GAPS = "mig.discrete_mig", "gaps."
BINS = 20


def manipulated_spread(table: DataFrame) -> Result:
    """Show the distribution of the MIG over seeds on original images, modified images and images with noise.

    Histograms have 20 bins from 0 to the largest MIG. As in `manipulated`, only runs at the primary strength are used,
    and over-pruned runs are left out.

    Reference: Zietlow et al. (2021), arXiv:2102.06822, supplement, figure 2.

    Args:
        table: A results table with one row per run.

    Returns:
        A result whose table has one row per dataset, method, variant and nonempty bin: the ends `low` and `high` of
        the bin, and the number of `runs`.

    Raises:
        UserError: If there is no MIG, or if no dataset has runs on both its original and another variant.
    """
    columns = columns_with_values(table, {"MIG": MIG})
    if not columns:
        reject(f"The column {MIG} must have values.", "none", "Score the runs with mig.")
    rows = runs_at_primary_strength(comparable_runs(table, columns))
    used = rows[~rows["pruned"]].dropna(subset=[MIG])
    edges = np.linspace(0.0, max(float(used[MIG].max()), 1e-3), BINS + 1)
    lines = []
    for (base, method, variant), part in used.groupby(["base", "method", "variant"], sort=False):
        counts, _ = np.histogram(part[MIG], edges)
        group = {"data": base, "method": method, "variant": variant}
        lines += [{**group, "low": edges[i], "high": edges[i + 1], "runs": int(counts[i])} for i in counts.nonzero()[0]]
    return Result(DataFrame(lines), draw_spread(used, edges), spread_text(used))


def spread_text(used: DataFrame) -> str:
    """Say which fraction of runs on each variant has a lower MIG than the median on the original images."""
    median = used[used["variant"] == VARIANTS[0]].groupby(["base", "method"])[MIG].median().rename("median")
    joined = used.join(median, on=["base", "method"]).dropna(subset=["median"])
    below = (joined[MIG] < joined["median"]).groupby(joined["variant"]).mean()
    names = {"modified": "modified images", "noise": "images with noise"}
    parts = [f"{plots.format_percent(below[v])} of runs on {names[v]}" for v in VARIANTS[1:] if v in below]
    return (
        f"{' and '.join(parts)} have a lower MIG than the median of their method on the original images. By chance, "
        "50 % would be expected."
    )


def draw_spread(used: DataFrame, edges: Array) -> Figure:
    """Draw one row of axes per method, one column per dataset, and one histogram per variant."""

    def draw_histograms(axes: Axes, part: DataFrame) -> None:
        for variant in VARIANTS:
            values = part.loc[part["variant"] == variant, MIG]
            axes.hist(values, list(edges), histtype="stepfilled", alpha=0.35, color=COLOURS[variant])
            axes.hist(values, list(edges), histtype="step", color=COLOURS[variant], linewidth=1.1)

    return draw_by_method(used, draw_histograms, "MIG")


def manipulated_factors(table: DataFrame) -> Result:
    r"""Compute the mutual information gap of each factor on original, modified and noisy images.

    .. math:: (I(c_{i_1}; v_j) - I(c_{i_2}; v_j)) / H(v_j)

    :math:`c_{i_1}` and :math:`c_{i_2}` are the two latents with the highest mutual information I with the factor
    :math:`v_j`, and H is the entropy. The mean of these gaps over the factors is the MIG. The gaps are in the columns
    ``gaps.<factor>``. A study computes these columns at its end. The metric `mig` uses a different sample of
    examples. As in `manipulated`, only runs at the primary strength are used, and over-pruned runs are left out.

    Reference: Zietlow et al. (2021), arXiv:2102.06822, supplement, figure 3.

    Args:
        table: A results table with one row per run.

    Returns:
        A result whose table has one row per dataset, method and `factor`, with the columns of `manipulated`.

    Raises:
        UserError: If there are no gaps, or if no dataset has runs on both its original and another variant.
    """
    columns = columns_with_values(
        table, {str(name)[len(GAPS) :]: str(name) for name in table if str(name).startswith(GAPS)}
    )
    if not columns:
        remedy = "Run the command of the study again. If the command has --metrics, add gaps to that list."
        reject(f"At least one column {GAPS}<factor> must have values.", "none", remedy)
    rows = runs_at_primary_strength(comparable_runs(table, columns))
    summary = summarise_scores(rows, columns).rename(columns={"score": "factor"})
    summary = summary[summary[[f"{variant}_runs" for variant in VARIANTS]].sum(axis=1) > 0].reset_index(drop=True)
    return Result(summary, draw_factors(summary), factors_text(summary))


def factors_text(summary: DataFrame) -> str:
    """Say which factor loses most on modified images, or on images with noise if there are no modified images."""
    variant = "modified" if summary["modified_loss"].notna().any() else "noise"
    mean = summary.groupby(["data", "factor"], sort=False)[f"{variant}_loss"].mean().dropna()
    if mean.empty:
        return "No method has gaps of the same factor on both original and modified images."
    data, factor = mean.idxmax()
    images = "modified images" if variant == "modified" else "images with noise"
    return (
        f"On {images}, the factor {factor} of {data} loses most. Its mutual information gap falls by "
        f"{plots.format_decimal(mean.max())} on average over methods. The mean loss over all factors is "
        f"{plots.format_decimal(mean.mean())}."
    )


def draw_factors(summary: DataFrame) -> Figure:
    """Draw one row of axes per method and one column per dataset, with one bar per factor and variant.

    Error bars are standard deviations over seeds.
    """

    def draw_bars(axes: Axes, part: DataFrame) -> None:
        positions = np.arange(len(part))
        for j, variant in enumerate(VARIANTS):
            style: dict[str, Any] = {"color": COLOURS[variant], "error_kw": {"linewidth": 0.8}}
            axes.bar(positions + 0.27 * (j - 1), part[variant], 0.27, yerr=part[f"{variant}_std"].fillna(0.0), **style)
        axes.set_xticks(positions, list(part["factor"]), rotation=40, ha="right", rotation_mode="anchor")

    shown = summary.rename(columns={"data": "base"})
    return draw_by_method(shown, draw_bars, "factor", share_x=False)


def manipulated_strengths(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    """Show whether a different regularisation strength compensates for the loss on modified images.

    The table and the figure contain the scores at all levels of the sweep over strengths. In the study
    `demystifying2021`, the strengths of levels 0 to 5 are 0.75, 1, 1.25, 1.5, 1.75 and 2 times the primary strength.

    Reference: Zietlow et al. (2021), arXiv:2102.06822, supplement, figures 4 to 6.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default those of MIG, DCI, FactorVAE score and SAP that are in the table.

    Returns:
        A result whose table has one row per dataset, method, level and score, with the columns of `manipulated`.

    Raises:
        UserError: If no method has several levels, or if no dataset has runs on both its original and another variant.
    """
    columns = available_scores(table, metrics)
    rows = comparable_runs(table, columns)
    levels = rows.groupby("method")["level"].nunique()
    several = levels[levels > 1].index
    if not len(several):
        remedy = "Train more strengths, for example by leaving out --only level=1."
        requirement = "At least one method must have at least 2 different values of 'level'."
        reject(requirement, "one per method", remedy)
    summary = summarise_scores(rows[rows["method"].isin(several)], columns)
    return Result(summary, draw_strengths(summary), strengths_text(summary))


def strengths_text(summary: DataFrame) -> str:
    """Say for each score how often the best strength on modified images reaches the score on the original images."""
    variant = "modified" if summary["modified"].notna().any() else "noise"
    images = "modified images" if variant == "modified" else "images with noise"
    counts = {score: count_compensated(part, variant) for score, part in summary.groupby("score", sort=False)}
    return (
        f"Counted over combinations of a dataset and a method, the mean score of the best strength on {images} is at "
        "least as high as that of the primary strength on the original images in "
        f"{'; '.join(f'{count} combinations for {score}' for score, count in counts.items())}."
    )


def count_compensated(rows: DataFrame, variant: str) -> str:
    """Count the combinations of a dataset and a method in which the best strength reaches the original score.

    Return the count and the number of all combinations as text, such as "3 of 8".
    """
    reached = []
    for _, part in rows.groupby(["data", "method"], sort=False):
        target = part.loc[part["level"] == primary_level(part["level"]), "original"].iloc[0]
        if np.isfinite(target) and part[variant].notna().any():
            reached.append(bool(part[variant].max() >= target))
    return f"{sum(reached)} of {len(reached)}"


def draw_strengths(summary: DataFrame) -> Figure:
    """Draw one block of axes per score, with one row per method and one column per dataset.

    The axes show the mean score at each level. The bands extend one standard deviation above and below the mean.
    """

    def draw_lines(axes: Axes, part: DataFrame) -> None:
        ordered = part.sort_values("level")
        for variant in VARIANTS:
            mean, std, color = ordered[variant], ordered[f"{variant}_std"].fillna(0.0), COLOURS[variant]
            axes.plot(ordered["level"], mean, color=color, marker="o", markersize=3, linewidth=1.3)
            axes.fill_between(ordered["level"], mean - std, mean + std, color=color, alpha=0.13, linewidth=0)
        axes.set_xticks(ordered["level"], [f"{strength:g}" for strength in ordered["strength"]])

    rows = summary.rename(columns={"data": "base"})
    scores, bases, methods = (list(rows[name].unique()) for name in ("score", "base", "method"))
    width, height = 2.4 * len(bases) * len(scores), max(1.9 * len(methods) + 0.8, 2.8)
    figure = Figure(figsize=(max(width, 4.5), height), layout="constrained")
    blocks: Any = figure.subfigures(1, len(scores), squeeze=False)[0]
    for block, score in zip(blocks, scores, strict=True):
        grid = plots.tidy_axes(block.subplots(len(methods), len(bases), squeeze=False, sharey="row"))
        block.suptitle(score, size=plots.TITLE, fontweight="bold")
        fill_by_method(grid, rows[rows["score"] == score], bases, methods, draw_lines, "strength")
    draw_variant_legend(figure, [name for name in VARIANTS if rows[name].notna().any()])
    return figure


def draw_by_method(rows: DataFrame, draw: Any, x: str, share_x: bool = True) -> Figure:
    """Create a figure with one row of axes per method and one column per dataset.

    `draw(axes, rows)` is called for each of the axes. If `share_x` is True, all axes share the x axis. Otherwise the
    axes of each row share the y axis.
    """
    bases, methods = list(rows["base"].unique()), list(rows["method"].unique())
    shared: dict[str, Any] = {"sharex": True} if share_x else {"sharey": "row"}
    figure, grid = plots.grid_figure(len(methods), len(bases), size=(3.0, 1.5 if share_x else 1.9), **shared)
    fill_by_method(grid, rows, bases, methods, draw, x)
    by_column = [name for name in VARIANTS if name in rows and rows[name].notna().any()]
    draw_variant_legend(figure, by_column or list(rows["variant"].unique()))
    return figure


def fill_by_method(grid: Any, rows: DataFrame, bases: Sequence[str], methods: Sequence[str], draw: Any, x: str) -> None:
    """Fill a grid of axes with one row per method and one column per dataset, and label its edges."""
    for line, method in zip(grid, methods, strict=True):
        for axes, base in zip(line, bases, strict=True):
            part = rows[(rows["method"] == method) & (rows["base"] == base)]
            if len(part):
                draw(axes, part)
    plots.label_edges(grid, bases, [plots.display_name(method) for method in methods], x)
