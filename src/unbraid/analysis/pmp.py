"""Tables for the study of PMP: the scores of PMP and Ada-GVAE, and the scores of variants of PMP that lack one term."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from pandas import DataFrame, Series

from unbraid.analysis import plots
from unbraid.analysis.results_table import Result, base_methods, check_table, reject, score_columns, score_name, sign

PMP, ADA_GVAE = "pmp", "ada_gvae"
WITHOUT = f"{PMP} (without "


def pmp_comparison(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    """Compare PMP with Ada-GVAE, by the median scores over all runs on each dataset.

    Reference: Fumero et al. (2021), arXiv:2103.01638, tables 1 to 4. The paper trains 5 seeds.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default those of the six metrics of Locatello et al. (2019) that are in the table.

    Returns:
        A result whose table has one row per dataset and method: `runs`, and the median score of each metric.

    Raises:
        UserError: If there are no scores, or no dataset has runs of both methods.
    """
    columns = score_columns(table, metrics)
    rows = check_table(table, columns.values())
    rows = runs_of_both(rows[rows["method"].isin([PMP, ADA_GVAE])], [PMP, ADA_GVAE])
    summary = median_scores(rows, columns)
    wide = summary.set_index(["data", "method"])
    better = {
        metric: sign(metric) * (wide.xs(PMP, level="method")[metric] - wide.xs(ADA_GVAE, level="method")[metric])
        for metric in columns
    }
    gains = DataFrame(better).stack().dropna()
    text = (
        f"The median score of PMP is better than that of Ada-GVAE in {int((gains > 0).sum())} of {len(gains)} "
        f"combinations of a dataset and a metric. {runs_text(summary)}"
    )
    return Result(summary, draw_medians(summary, list(columns)), text)


def pmp_ablation(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    """Show which terms PMP needs. Variants that lack one term are compared by their median scores over runs.

    The names of the variants are those of the study `pmp2021`, such as "without sparsity".

    Reference: Fumero et al. (2021), arXiv:2103.01638, ablation study.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default those of the six metrics of Locatello et al. (2019) that are in the table.

    Returns:
        A result whose table has one row per dataset and variant of PMP (`method`): `removed`, the name of the
        missing term (empty for the full method, which comes first), `runs`, and the median score of each metric.

    Raises:
        UserError: If there are no scores, or no dataset has runs of PMP with and without a term.
    """
    columns = score_columns(table, metrics)
    rows = check_table(table, columns.values())
    rows = rows[(rows["method"] == PMP) | rows["method"].str.startswith(WITHOUT)]
    ablations = [name for name in rows["method"].unique() if name != PMP]
    if not ablations:
        remedy = "Train them with: unbraid study pmp2021"
        reject("There must be runs of PMP without one of its terms.", "none", remedy)
    rows = full_method_first(runs_of_both(rows, [PMP]))
    summary = median_scores(rows, columns)
    removed = summary["method"].map(lambda name: name.removeprefix(WITHOUT).removesuffix(")") if name != PMP else "")
    summary.insert(2, "removed", removed)
    return Result(
        summary, draw_medians(summary, list(columns)), f"{losses_text(summary, columns)} {runs_text(summary)}"
    )


def runs_of_both(rows: DataFrame, methods: list[str]) -> DataFrame:
    """Return the rows of datasets that have runs of all these methods. Raise a UserError if no dataset has them."""
    found = rows.groupby("data")["method"].agg(set)
    complete = [data for data, names in found.items() if set(methods) <= names]
    if not complete:
        got = ", ".join(sorted(set(base_methods(rows["method"])))) or "none"
        remedy = "Train them with: unbraid study pmp2021"
        reject(f"At least one dataset must have runs of {' and '.join(methods)}.", f"runs of {got}", remedy)
    return rows[rows["data"].isin(complete)]


def full_method_first(rows: DataFrame) -> DataFrame:
    """Return the rows grouped by dataset. Within each dataset, the runs of the full method come first."""
    datasets = {data: i for i, data in enumerate(rows["data"].unique())}
    return rows.sort_values(
        ["data", "method"], key=lambda c: c.map(datasets) if c.name == "data" else c != PMP, kind="stable"
    )


def median_scores(rows: DataFrame, columns: dict[str, str]) -> DataFrame:
    """Return one row per dataset and method, in the order of the table, with the median of each metric.

    Runs without any score are left out.
    """
    groups = rows.dropna(subset=list(columns.values()), how="all").groupby(["data", "method"], sort=False)
    summary = groups[list(columns.values())].median().set_axis(list(columns), axis=1)
    summary.insert(0, "runs", groups.size())
    return summary.reset_index()


def losses_text(summary: DataFrame, columns: dict[str, str]) -> str:
    """Say without which term the scores of PMP fall most, on average over datasets and metrics."""
    wide, full = summary.set_index(["data", "removed"])[list(columns)], summary[summary["removed"] == ""]
    signs = Series({metric: sign(metric) for metric in columns})
    losses = (
        (full.set_index("data")[list(columns)] - wide).mul(signs, axis=1).stack().groupby("removed").mean().drop("")
    )
    if losses.dropna().empty:
        return "No score is available both with and without a term."
    return (
        f"The scores of PMP fall most without the term {losses.idxmax()}, by "
        f"{plots.format_decimal(losses.max())} on average over datasets and metrics."
    )


def runs_text(summary: DataFrame) -> str:
    """Say from how many runs the medians are computed."""
    low, high = int(summary["runs"].min()), int(summary["runs"].max())
    runs = str(low) if low == high else f"{low} to {high}"
    return f"Medians are over {runs} runs."


def draw_medians(summary: DataFrame, metrics: list[str]) -> Figure:
    """Draw one heat map per dataset, with one row per method and one column per metric."""
    names = list(summary["data"].unique())
    rows = int(summary.groupby("data").size().max())
    figure, grid = plots.panel_figure(len(names), across=2, size=(0.55 * len(metrics) + 2.2, 0.3 * rows + 1.3))
    for axes, data in zip(grid, names, strict=True):
        part = summary[summary["data"] == data].set_index("method")[metrics]
        plots.draw_heat_map(axes, part.rename(index=plots.display_name, columns=score_name), low=0, cmap="Blues")
        plots.set_labels(axes, data)
    figure.suptitle("Median score over runs", size=plots.TITLE, weight="bold")
    return figure
