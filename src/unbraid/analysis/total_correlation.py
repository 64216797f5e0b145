"""The total correlation of mean and of sampled codes as a function of the regularisation strength."""

from __future__ import annotations

import math
from collections.abc import Collection

import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.results_table import Result, check_table, quartiles, reject
from unbraid.metrics import headline

CODES = {"sampled": headline("unsupervised") + ".sampled", "mean": headline("unsupervised")}
BY = ["data", "method", "level", "strength"]


def total_correlation(table: DataFrame, without: Collection[str] = ("annealed_vae",)) -> Result:
    r"""Show whether regularisation makes codes uncorrelated, measured by their total correlation at each strength.

    .. math:: TC = \tfrac12 \left( \sum_j \log \Sigma_{jj} - \log \det \Sigma \right)

    This is the total correlation, in nats, of a Gaussian with the covariance :math:`\Sigma` of the codes. It is
    computed for samples of q(z|x), which the objectives regularise, and for the means of q(z|x), which are used as
    codes.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.1 and figure 1.

    Args:
        table: A results table with one row per run.
        without: Methods to leave out. The paper leaves out AnnealedVAE, because a larger value of its swept setting,
            the final capacity, means less regularisation.

    Returns:
        A result whose table has one row per dataset, method, level and kind of codes (`codes`): `runs`, `low` quartile,
        `median` and `high` quartile over seeds.

    Raises:
        UserError: If no run has a total correlation, or if there are fewer than 2 seeds.
    """
    rows = check_table(table, CODES.values(), seeds=2)
    rows = rows[~rows["method"].isin(list(without))]
    if not len(rows) or rows[list(CODES.values())].isna().all(axis=None):
        got = f"none (methods left out: {', '.join(without) or 'none'})"
        remedy = "Score the runs with 'unsupervised', or leave out fewer methods."
        reject("At least one run must have a total correlation.", got, remedy)
    kinds = [quartiles(rows, column, BY).assign(codes=kind) for kind, column in CODES.items()]
    summary = pd.concat(kinds, ignore_index=True)
    return Result(summary, draw_total_correlation(summary), summary_text(summary))


def summary_text(summary: DataFrame) -> str:
    """Say how often the total correlation falls from the weakest to the strongest regularisation.

    Methods with one strength are left out. Also give the median total correlation of sampled and of mean codes.
    """
    ordered = summary.sort_values("level")
    several = ordered.groupby(["codes", "data", "method"]).filter(lambda lines: len(lines) > 1)
    ends = several.groupby(["codes", "data", "method"])["median"].agg(["first", "last"])
    counts = {kind: (int((e["last"] < e["first"]).sum()), len(e)) for kind, e in ends.groupby(level="codes")}
    low, high = (summary[summary["codes"] == kind]["median"].median() for kind in CODES)
    parts = [f"for {kind} codes in {counts[kind][0]} of {counts[kind][1]}" for kind in CODES if kind in counts]
    change = (
        f"From the weakest to the strongest regularisation, the total correlation falls {' and '.join(parts)} "
        "combinations of a method and a dataset."
    )
    if not parts:
        change = "Every method has only one strength."
    medians = {"sampled codes": low, "mean codes": high}
    known = [f"{value:.2g} nats for {codes}" for codes, value in medians.items() if not math.isnan(value)]
    return f"{change} The median total correlation is {' and '.join(known)}."


def draw_total_correlation(summary: DataFrame) -> Figure:
    """Draw sampled codes in the upper row and mean codes in the lower row, with one column per dataset."""
    names, styles = list(summary["data"].unique()), plots.line_styles(summary["method"])
    figure, grid = plots.grid_figure(2, len(names), size=(2.1, 2.1), sharex=True, sharey=True)
    for i, kind in enumerate(CODES):
        for axes, data in zip(grid[i], names, strict=True):
            part = summary[(summary["data"] == data) & (summary["codes"] == kind)]
            for method, lines in part.groupby("method", sort=False):
                plots.draw_band(axes, lines, "level", styles[method])
            axes.set_yscale("symlog", linthresh=0.1)
            axes.set_xticks(sorted(summary["level"].unique()))
    grid[0, 0].set_ylim(0, max(0.1, 1.2 * summary["high"].max()))
    plots.label_edges(grid, names, [f"TC of {kind} codes [nats]" for kind in CODES], "strength (level)")
    plots.draw_legend(figure, {plots.display_name(name): style for name, style in styles.items()})
    return figure
