"""More views of scores on changed images: how they spread, which factors are lost, and whether strengths make up."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.demystifying import (
    COLOURS,
    VARIANTS,
    comparable,
    method_name,
    primary,
    primary_level,
    scores_held,
    summarised,
)
from unbraid.analysis.results_table import Array, Result, held, refuse

MIG, GAPS = "mig.discrete_mig", "gaps."
BINS = 20


def manipulated_spread(table: DataFrame) -> Result:
    """How the MIG spreads over seeds on originals, modified images and noise: histograms of 20 bins from 0 on.

    Runs of the primary strength, without over-pruned ones, as in `manipulated`.
    Table: a row a dataset, method, form and bin that is not empty: `low`, `high`, `runs`.
    Reference: Zietlow et al. (2021), arXiv:2102.06822, supplement, figure 2.
    """
    columns = held(table, {"MIG": MIG})
    if not columns:
        refuse(f"The column {MIG} must hold scores.", "no such score", "Score the runs with mig.")
    rows = primary(comparable(table, columns))
    used = rows[~rows["pruned"]].dropna(subset=[MIG])
    edges = np.linspace(0.0, max(float(used[MIG].max()), 1e-3), BINS + 1)
    found = []
    for (base, method, form), part in used.groupby(["base", "method", "variant"], sort=False):
        counts, _ = np.histogram(part[MIG], edges)
        place = {"data": base, "method": method, "variant": form}
        found += [{**place, "low": edges[i], "high": edges[i + 1], "runs": int(counts[i])} for i in counts.nonzero()[0]]
    return Result(DataFrame(found), draw_spread(used, edges), say_spread(used))


def say_spread(used: DataFrame) -> str:
    """The share of runs of each form with less than the median MIG of the originals."""
    middle = used[used["variant"] == VARIANTS[0]].groupby(["base", "method"])[MIG].median().rename("middle")
    joined = used.join(middle, on=["base", "method"]).dropna(subset=["middle"])
    below = (joined[MIG] < joined["middle"]).groupby(joined["variant"]).mean()
    parts = [f"{plots.percent(below[form])} of runs on {form} images" for form in VARIANTS[1:] if form in below]
    return f"Below the median MIG of their method on the originals are {' and '.join(parts)}; chance has 50 %."


def draw_spread(used: DataFrame, edges: Array) -> Figure:
    """A row a method, a column a dataset, three histograms over each other."""

    def histograms(axes: Axes, part: DataFrame) -> None:
        for form in VARIANTS:
            values = part.loc[part["variant"] == form, MIG]
            axes.hist(values, list(edges), histtype="stepfilled", alpha=0.35, color=COLOURS[form])
            axes.hist(values, list(edges), histtype="step", color=COLOURS[form], linewidth=1.1)

    return by_method(used, histograms, "MIG")


def manipulated_factors(table: DataFrame) -> Result:
    r"""The gap of each factor on originals, modified images and noise; their mean over factors is the MIG.

    .. math:: (I(c_{i_1}; v_j) - I(c_{i_2}; v_j)) / H(v_j)

    Runs of the primary strength, without over-pruned ones, as in `manipulated`. Gaps are the columns ``gaps.<factor>``
    that a study makes at its end, of another draw of examples than `mig`.
    Table: a row a dataset, method and factor, with the columns of `manipulated`.
    Reference: Zietlow et al. (2021), arXiv:2102.06822, supplement, figure 3.
    """
    columns = held(table, {str(name)[len(GAPS) :]: str(name) for name in table if str(name).startswith(GAPS)})
    if not columns:
        do = "Give the command of the study again, with `--metrics +gaps` if it names metrics."
        refuse(f"Some column {GAPS}<factor> must hold gaps.", "no such column", do)
    rows = primary(comparable(table, columns))
    found = summarised(rows, columns).rename(columns={"score": "factor"})
    found = found[found[[f"{form}_runs" for form in VARIANTS]].sum(axis=1) > 0].reset_index(drop=True)
    return Result(found, draw_factors(found), say_factors(found))


def say_factors(found: DataFrame) -> str:
    """Which factor loses most on modified images, else on noise."""
    form = "modified" if found["modified_loss"].notna().any() else "noise"
    mean = found.groupby(["data", "factor"], sort=False)[f"{form}_loss"].mean().dropna()
    if mean.empty:
        return "No method has gaps of the same factor on the originals and on changed images."
    data, factor = mean.idxmax()
    top = f"{factor} of {data} loses most, {plots.short(mean.max())} of its gap"
    return f"On {form} images {top}, on average over methods; the mean over factors is {plots.short(mean.mean())}."


def draw_factors(found: DataFrame) -> Figure:
    """A row a method, a column a dataset, three bars a factor with their standard deviations."""

    def bars(axes: Axes, part: DataFrame) -> None:
        place = np.arange(len(part))
        for j, form in enumerate(VARIANTS):
            look: dict[str, Any] = {"color": COLOURS[form], "error_kw": {"linewidth": 0.8}}
            axes.bar(place + 0.27 * (j - 1), part[form], 0.27, yerr=part[f"{form}_std"].fillna(0.0), **look)
        axes.set_xticks(place, list(part["factor"]), rotation=40, ha="right", rotation_mode="anchor")

    shown = found.rename(columns={"data": "base"})
    return by_method(shown, bars, "factor", share=False)


def manipulated_strengths(table: DataFrame) -> Result:
    """Whether another strength makes up for what is lost: scores over the levels of the line search.

    Level by level the shares of the primary strength, .75, 1, 1.25, 1.5, 1.75 and 2 in the study `demystifying2021`.
    Table: as that of `manipulated`, with a row a level. The figure shows the first score that the table has.
    Reference: Zietlow et al. (2021), arXiv:2102.06822, supplement, figures 4 to 6.
    """
    columns = scores_held(table)
    rows = comparable(table, columns)
    levels = rows.groupby("method")["level"].nunique()
    several = levels[levels > 1].index
    if not len(several):
        do = "Train more strengths: leave out --only level=1."
        refuse("Some method must have at least 2 different values of 'level'.", "one of each", do)
    found = summarised(rows[rows["method"].isin(several)], columns)
    first = found[found["score"] == next(iter(columns))]
    return Result(found, draw_strengths(first, next(iter(columns))), say_strengths(first))


def say_strengths(first: DataFrame) -> str:
    """In how many cases the best strength on modified images reaches the primary one's mean on the originals."""
    form = "modified" if first["modified"].notna().any() else "noise"
    reached = []
    for _, part in first.groupby(["data", "method"], sort=False):
        aim = part.loc[part["level"] == primary_level(part["level"]), "original"].iloc[0]
        if np.isfinite(aim) and part[form].notna().any():
            reached.append(bool(part[form].max() >= aim))
    what = f"the {first['score'].iloc[0]} that the primary strength has on the originals"
    return f"On {form} images some strength reaches {what} in {sum(reached)} of {len(reached)} cases."


def draw_strengths(first: DataFrame, name: str) -> Figure:
    """A row a method, a column a dataset; means over levels with a band of one standard deviation."""

    def lines(axes: Axes, part: DataFrame) -> None:
        ordered = part.sort_values("level")
        for form in VARIANTS:
            mean, std = ordered[form], ordered[f"{form}_std"].fillna(0.0)
            axes.plot(ordered["level"], mean, color=COLOURS[form], marker="o", markersize=3, linewidth=1.3)
            axes.fill_between(ordered["level"], mean - std, mean + std, color=COLOURS[form], alpha=0.13, linewidth=0)
        axes.set_xticks(ordered["level"], [f"{strength:g}" for strength in ordered["strength"]])

    return by_method(first.rename(columns={"data": "base"}), lines, f"strength ({name} above)", share=False)


def by_method(rows: DataFrame, paint: Any, x: str, share: bool = True) -> Figure:
    """A matrix of axes, a row a method and a column a dataset, painted from their rows."""
    bases, methods = list(rows["base"].unique()), list(rows["method"].unique())
    shared: dict[str, Any] = {"sharex": True} if share else {"sharey": "row"}
    figure, grid = plots.matrix(len(methods), len(bases), size=(3.0, 1.5 if share else 1.9), **shared)
    for line, method in zip(grid, methods, strict=True):
        for axes, base in zip(line, bases, strict=True):
            part = rows[(rows["method"] == method) & (rows["base"] == base)]
            if len(part):
                paint(axes, part)
    plots.edges(grid, bases, [method_name(method) for method in methods], x)
    plots.legend(figure, {form: {"color": COLOURS[form], "marker": "o"} for form in VARIANTS})
    return figure
