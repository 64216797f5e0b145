"""The stability of affine parametrisations in VITAE: the ELBO at each learning rate, and learning curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.results_table import Result, check_columns, quartiles, reject

METHOD = "c_vitae"
ELBO, TRANSFORM = "train.elbo", "setting.transform"
GROUP = ["data", "parametrisation", "learning_rate"]


def stability(table: DataFrame, folder: str | Path | None = None) -> Result:
    """Show at which learning rates C-VITAE can be trained with each parametrisation of affine maps.

    Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement, section 3 and figure 1.

    Args:
        table: A results table with one row per run, for example of the study `vitae_stability`.
        folder: The folder of the runs. If it is given, their logs are read, and the figure has learning curves.

    Returns:
        A result whose table has one row per dataset, parametrisation and learning rate: the number of `runs`, how many
        of them `diverged`, and the quartiles and the median of the final ELBO in nats per example. Diverged runs are
        left out of the quartiles and the median, and runs that are not finished are left out altogether. The upper row
        of the figure shows the final ELBO. Points are missing where all runs diverged. The lower row shows the ELBO at
        each step, at the lowest learning rate.

    Raises:
        UserError: If there are no finished runs of C-VITAE with several learning rates.
    """
    check_columns(table, ["learning_rate", "status", ELBO, TRANSFORM])
    runs = table[(table["method"] == METHOD) & table["status"].isin(["done", "diverged"])]
    if runs["learning_rate"].nunique() < 2:
        got = f"{runs['learning_rate'].nunique()} learning rates"
        reject(
            f"There must be finished runs of {METHOD} with several learning rates.",
            got,
            "Run: unbraid study vitae_stability",
        )
    runs = runs.assign(parametrisation=parametrisations(runs))
    summary = summarise(runs)
    lowest = runs[runs["learning_rate"] == runs["learning_rate"].min()]
    curves = None if folder is None else learning_curves(lowest, Path(folder))
    return Result(summary, draw_stability(summary, curves), stability_text(summary))


def parametrisations(runs: DataFrame) -> Any:
    """Return the parametrisation of each run: its variant in the study or, if it has none, its transformation."""
    transforms = runs[TRANSFORM].astype(str)
    if "variant" not in runs:
        return transforms
    variants = runs["variant"].fillna("").astype(str)
    return variants.where(variants != "", transforms)


def summarise(runs: DataFrame) -> DataFrame:
    """Return one row per dataset, parametrisation and learning rate."""
    failed = runs["status"] == "diverged"
    counts = runs.assign(failed=failed).groupby(GROUP, sort=False)["failed"].agg(["size", "sum"]).reset_index()
    counts = counts.set_axis([*GROUP, "runs", "diverged"], axis=1)
    elbo = quartiles(runs[~failed], ELBO, GROUP).drop(columns="runs")
    return counts.merge(elbo, how="left", on=GROUP)


def learning_curves(runs: DataFrame, folder: Path) -> DataFrame:
    """Return quartiles of the ELBO over seeds at each logged step, per dataset and parametrisation."""
    from unbraid.runs.folder import RunFolder

    rows = []
    for run in runs.to_dict("records"):
        path = folder / run["run"]
        log = RunFolder.open(path).read_log() if (path / "run.json").exists() else []
        key = {"data": run["data"], "parametrisation": run["parametrisation"]}
        rows += [{**key, "step": line["step"], ELBO: -line["rec"] - line["kl"]} for line in log]
    curves = pd.DataFrame(rows, columns=["data", "parametrisation", "step", ELBO])
    return quartiles(curves, ELBO, ["data", "parametrisation", "step"]) if rows else curves


def stability_text(summary: DataFrame) -> str:
    """Say at which learning rates each parametrisation did not diverge, and which parametrisation has the best ELBO."""
    trained = summary[summary["diverged"] < summary["runs"]]
    highest = trained.groupby("parametrisation", sort=False)["learning_rate"].max()
    parts = [f"{name} {rate:g}" for name, rate in highest.items()]
    failed = f"{int(summary['diverged'].sum())} of {int(summary['runs'].sum())} runs diverged."
    if summary["median"].isna().all():
        return failed
    best = summary.loc[summary["median"].idxmax()]
    return (
        f"{failed} Highest learning rate at which at least one run did not diverge: {', '.join(parts)}. The highest "
        f"median ELBO is {best['median']:.1f} nats ({best['parametrisation']}, learning rate "
        f"{best['learning_rate']:g})."
    )


def draw_stability(summary: DataFrame, curves: DataFrame | None) -> Figure:
    """Draw one column per dataset: the ELBO at each learning rate and, below it, the learning curves."""
    names, styles = list(summary["data"].unique()), plots.line_styles(summary["parametrisation"])
    parts = [(summary, "learning_rate")]
    if curves is not None and len(curves):
        parts.append((curves, "step"))
    figure, grid = plots.grid_figure(len(parts), len(names), size=(3.6, 2.3))
    for line, (frame, x) in zip(grid, parts, strict=True):
        for axes, data in zip(line, names, strict=True):
            for name, part in frame[frame["data"] == data].groupby("parametrisation", sort=False):
                style = styles[str(name)]
                plots.draw_band(axes, part, x, style if x == "learning_rate" else {**style, "marker": ""})
            plots.set_labels(axes, x=x.replace("_", " "))
    rates = summary["learning_rate"]
    for axes, data in zip(grid[0], names, strict=True):
        axes.set_xscale("log")
        axes.set_xlim(rates.min() / 1.5, rates.max() * 1.5)  # also where all runs diverged
        plots.set_labels(axes, data)
    for line in grid:
        plots.set_labels(line[0], y="ELBO [nats]")
    plots.draw_legend(figure, styles, columns=2)
    return figure
