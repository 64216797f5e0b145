"""Whether a good setting on one metric and dataset is good on another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.results_table import (
    SETTING,
    Array,
    Result,
    checked,
    enough,
    refuse,
    score_columns,
    score_name,
    sign,
    spearman,
)

CHOICES = {"by_mean": "chosen by mean of other seeds", "by_seed": "chosen by one other seed"}
CASES = ("same metric, same data", "other metric, same data", "same metric, other data", "other metric, other data")


def transfer(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""How often a setting chosen on one metric and dataset beats a random one on another, with a new seed.

    .. math:: P(s_B(c, r) > s_B(o, r)) + \tfrac12 P(s_B(c, r) = s_B(o, r)), \quad c = \arg\max_c \bar s_A(c)

    A setting is a method with a strength. For every seed r the setting c with the best score on metric and dataset A is
    compared on B with every other setting o, both trained with seed r, and c is chosen without seed r: by the mean over
    all other seeds (`by_mean`), or by one other seed, averaged over which (`by_seed`). All choices of A, B, r and o are
    enumerated, none drawn. Settings that are best together share the choice; 50 % is chance.

    `correlation` is the rank correlation of the settings' mean scores on A and on B: the paper's transfer matrices,
    where the metric is the same. NaN scores are left out of means and comparisons.

    Open, because the seed text gives results only (80.7 % for the same metric and dataset with another seed, 59.3 % for
    the same metric across datasets, 54.9 % across both): whether one seed or a mean chooses (both are given), whether
    the random setting may be the chosen one (here not, so that a setting that is best everywhere wins 100 %), what ties
    count (here half) and whether seeds are shared between the two (here so, as nothing was chosen by them).
    Table: a row an ordered pair of A (`from_metric`, `from_data`) and B; `win_rates` averages it over cases.
    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.4.
    """
    columns = score_columns(table, metrics)
    rows = checked(table, columns.values(), seeds=2, datasets=2)
    enough(rows, columns.values(), fewest=2)
    if rows.groupby(SETTING).ngroups < 2:
        refuse("There must be at least 2 settings to choose from.", "one", "Add a method or a strength.")
    cube = Cube.of(rows, columns)
    found = pairs(cube)
    rates = win_rates(found)["by_mean"]
    said = [f"{plots.percent(rates[case])} with the {case}" for case in CASES if np.isfinite(rates.get(case, np.nan))]
    text = f"A setting chosen by its mean score beats a random one in these shares of cases: {'; '.join(said)}."
    return Result(found, draw(found, cube), text)


class Cube(NamedTuple):
    """Scores by metric, dataset, setting and seed, the higher the better; NaN where there is no run."""

    values: Array
    metrics: list[str]
    data: list[str]

    @classmethod
    def of(cls, rows: DataFrame, columns: dict[str, str]) -> Cube:
        data, seeds = list(rows["data"].unique()), list(rows["seed"].unique())
        wide = rows.pivot(index=SETTING, columns=["data", "seed"], values=list(columns.values()))
        full = wide.reindex(columns=pd.MultiIndex.from_product([columns.values(), data, seeds])).to_numpy(float)
        values = np.moveaxis(full.reshape(-1, len(columns), len(data), len(seeds)), 0, 2)
        signs = np.array([sign(metric) for metric in columns])
        return cls(values * signs[:, None, None, None], list(columns), data)


def mean(values: Array, axis: int) -> Array:
    """The mean of what is not NaN; NaN where nothing is."""
    held = np.isfinite(values)
    count = held.sum(axis)
    total = np.where(held, values, 0.0).sum(axis)
    return np.asarray(np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0))


def best(values: Array) -> Array:
    """Weights over the last axis: one shared by the places with the largest value, zero where all are NaN.

    >>> best(np.array([1.0, 3.0, np.nan, 3.0])).tolist()
    [0.0, 0.5, 0.0, 0.5]
    """
    filled = np.where(np.isfinite(values), values, -np.inf)
    top = filled.max(-1, keepdims=True)
    hits = (filled == top) & np.isfinite(top)
    return np.asarray(hits / np.maximum(hits.sum(-1, keepdims=True), 1))


def chosen(values: Array, by: str) -> Array:
    """For scores (..., settings, seeds), the weights of the settings chosen without each seed, of the same shape."""
    seeds = range(values.shape[-1])
    if by == "by_mean":
        return np.stack([best(mean(np.delete(values, seed, -1), -1)) for seed in seeds], -1)
    single = np.moveaxis(best(np.moveaxis(values, -1, -2)), -2, -1)
    total = np.stack([np.delete(single, seed, -1).sum(-1) for seed in seeds], -1)
    return np.asarray(total / np.maximum(total.sum(-2, keepdims=True), 1))


def wins(values: Array) -> Array:
    """For scores (..., settings, seeds), the share of other settings with the same seed that each one beats."""
    count = values.shape[-2]
    gap = values[..., :, None, :] - values[..., None, :, :]
    gap[..., range(count), range(count), :] = np.nan
    won = np.where(np.isnan(gap), np.nan, (np.sign(gap) + 1) / 2)
    return mean(won, -2)


def pairs(cube: Cube) -> DataFrame:
    """Win rates and rank correlations of every ordered pair of (metric, dataset)."""
    places = [(metric, data) for metric in cube.metrics for data in cube.data]
    flat = cube.values.reshape(len(places), *cube.values.shape[2:])
    middle, won = mean(flat, -1), wins(flat)
    held = np.isfinite(won).reshape(len(places), -1).astype(float)
    share = np.nan_to_num(won).reshape(len(places), -1)
    found = DataFrame([(*a, *b) for a in places for b in places])
    found.columns = pd.Index(["from_metric", "from_data", "to_metric", "to_data"])
    found["case"] = [_case(row) for row in found.itertuples(index=False)]
    for by in CHOICES:
        weights = chosen(flat, by).reshape(len(places), -1)
        top, bottom = weights @ share.T, weights @ held.T
        found[by] = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0).ravel()
    found["correlation"] = [spearman(a, b, fewest=3) for a in middle for b in middle]
    return found


def _case(row: tuple[str, str, str, str]) -> str:
    """Which of the four cases a pair is."""
    metric = "same" if row[0] == row[2] else "other"
    return f"{metric} metric, {'same' if row[1] == row[3] else 'other'} data"


def win_rates(found: DataFrame) -> DataFrame:
    """The mean win rates of the four cases, from the table of `transfer`."""
    rates = found.groupby("case")[list(CHOICES)].mean()
    return rates.reindex([case for case in CASES if case in rates.index])


def draw(found: DataFrame, cube: Cube) -> Figure:
    """Win rates of the four cases, and for each metric the rank correlation of settings between datasets."""
    figure, grid = plots.panels(
        2 + len(cube.metrics), size=(max(2.6, 0.42 * len(cube.data) + 1.0), max(2.0, 0.3 * len(cube.data) + 1.3))
    )
    rates = win_rates(found)
    for axes, (by, title) in zip(grid, CHOICES.items(), strict=False):
        wide = DataFrame(
            [[rates[by].get(f"{m} metric, {d} data", np.nan) for d in ("other", "same")] for m in ("other", "same")],
            index=["other\nmetric", "same\nmetric"], columns=["other data", "same data"],
        )  # fmt: skip
        plots.heat(axes, wide, low=0, form=lambda share: f"{100 * share:.1f} %")
        axes.set_xticks(range(2), list(wide.columns), rotation=0, ha="center")
        plots.label(axes, f"Wins over random,\n{title}")
    same = found[found["from_metric"] == found["to_metric"]]
    for i, (axes, metric) in enumerate(zip(grid[2:], cube.metrics, strict=True)):
        wide = same[same["from_metric"] == metric].pivot(index="from_data", columns="to_data", values="correlation")
        plots.heat(axes, wide.loc[cube.data, cube.data])
        plots.label(axes, f"{score_name(metric)}:\nrank correlation of settings")
        plots.outer(axes)
        if not i:  # the first has none of its kind to its left
            axes.set_yticklabels(cube.data)
    return figure
