"""Whether a setting that is good for one metric and dataset is good for another."""

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
    check_enough_runs,
    check_table,
    reject,
    score_columns,
    score_name,
    sign,
    spearman,
)

CHOICES = {"by_mean": "chosen by mean of other seeds", "by_seed": "chosen by one other seed"}
CASES = ("same metric, same data", "other metric, same data", "same metric, other data", "other metric, other data")


def transfer(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""How often a setting chosen by one metric and dataset beats a random setting on another, with a new seed.

    .. math:: P(s_B(c, r) > s_B(o, r)) + \tfrac12 P(s_B(c, r) = s_B(o, r)), \quad c = \arg\max_c \bar s_A(c)

    A setting is a method with a strength. A and B are combinations of a metric and a dataset. For each seed r, the
    setting c with the best score on A is compared on B with every other setting o, both trained with seed r. c is
    chosen without seed r: by the mean over all other seeds (`by_mean`), or by a single other seed, averaged over these
    seeds (`by_seed`). All choices of A, B, r and o are enumerated. Settings that are tied for the best share the
    choice. 50 % is expected by chance. NaN scores are left out of means and comparisons.

    The paper gives only results: 80.7 % for the same metric and dataset with another seed, 59.3 % for the same metric
    on other datasets, 54.9 % for another metric and dataset. It does not say the following. Whether one seed or a mean
    chooses: both are given here. Whether the random setting may be the chosen one: not here, so that a setting that is
    best everywhere wins 100 %. How ties count: half here. Whether both settings are compared with the same seed: they
    are here, because nothing was chosen by it.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.4.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default those of the six metrics of the paper that the table has.

    Returns:
        A result whose table has one row per ordered pair of A (`from_metric`, `from_data`) and B (`to_metric`,
        `to_data`): `case`, the win rates `by_mean` and `by_seed`, and `correlation`, the rank correlation of the mean
        scores of settings on A and on B (for the same metric, the transfer matrices of the paper). `win_rates` averages
        the table over cases.

    Raises:
        UserError: If there are no scores, or fewer than 2 seeds, datasets or settings.
    """
    columns = score_columns(table, metrics)
    rows = check_table(table, columns.values(), seeds=2, datasets=2)
    check_enough_runs(rows, columns.values(), fewest=2)
    if rows.groupby(SETTING).ngroups < 2:
        reject("There must be at least 2 settings to choose from.", "one", "Add a method or a strength.")
    cube = ScoreCube.of(rows, columns)
    summary = transfer_pairs(cube)
    rates = win_rates(summary)["by_mean"]
    known = [case for case in CASES if np.isfinite(rates.get(case, np.nan))]
    phrases = [f"{plots.format_percent(rates[case])} of comparisons with the {case}" for case in known]
    text = f"A setting chosen by its mean score beats a random setting in {'; '.join(phrases)}."
    return Result(summary, draw_transfer(summary, cube), text)


class ScoreCube(NamedTuple):
    """Scores as an array (metrics, datasets, settings, seeds). Higher is better; NaN marks missing runs."""

    values: Array
    metrics: list[str]
    data: list[str]

    @classmethod
    def of(cls, rows: DataFrame, columns: dict[str, str]) -> ScoreCube:
        """Arrange the scores of a results table; `columns` maps metrics to columns."""
        data, seeds = list(rows["data"].unique()), list(rows["seed"].unique())
        wide = rows.pivot(index=SETTING, columns=["data", "seed"], values=list(columns.values()))
        full = wide.reindex(columns=pd.MultiIndex.from_product([columns.values(), data, seeds])).to_numpy(float)
        values = np.moveaxis(full.reshape(-1, len(columns), len(data), len(seeds)), 0, 2)
        signs = np.array([sign(metric) for metric in columns])
        return cls(values * signs[:, None, None, None], list(columns), data)


def finite_mean(values: Array, axis: int) -> Array:
    """The mean of the finite values along an axis, or NaN if there are none."""
    finite = np.isfinite(values)
    count = finite.sum(axis)
    total = np.where(finite, values, 0.0).sum(axis)
    return np.asarray(np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0))


def best_weights(values: Array) -> Array:
    """Weights along the last axis that share 1 equally among the largest values. They are 0 if all values are NaN.

    >>> best_weights(np.array([1.0, 3.0, np.nan, 3.0])).tolist()
    [0.0, 0.5, 0.0, 0.5]
    """
    filled = np.where(np.isfinite(values), values, -np.inf)
    top = filled.max(-1, keepdims=True)
    hits = (filled == top) & np.isfinite(top)
    return np.asarray(hits / np.maximum(hits.sum(-1, keepdims=True), 1))


def choice_weights(values: Array, by: str) -> Array:
    """For scores (..., settings, seeds), the weights of the settings that are chosen without each seed (same shape)."""
    seeds = range(values.shape[-1])
    if by == "by_mean":
        return np.stack([best_weights(finite_mean(np.delete(values, seed, -1), -1)) for seed in seeds], -1)
    single = np.moveaxis(best_weights(np.moveaxis(values, -1, -2)), -2, -1)
    total = np.stack([np.delete(single, seed, -1).sum(-1) for seed in seeds], -1)
    return np.asarray(total / np.maximum(total.sum(-2, keepdims=True), 1))


def win_shares(values: Array) -> Array:
    """For scores (..., settings, seeds), the share of other settings that each setting beats with the same seed."""
    count = values.shape[-2]
    gap = values[..., :, None, :] - values[..., None, :, :]
    gap[..., range(count), range(count), :] = np.nan
    won = np.where(np.isnan(gap), np.nan, (np.sign(gap) + 1) / 2)
    return finite_mean(won, -2)


def transfer_pairs(cube: ScoreCube) -> DataFrame:
    """The win rates and rank correlations of each ordered pair of combinations (metric, dataset)."""
    combinations = [(metric, data) for metric in cube.metrics for data in cube.data]
    flat = cube.values.reshape(len(combinations), *cube.values.shape[2:])
    means, won = finite_mean(flat, -1), win_shares(flat)
    known = np.isfinite(won).reshape(len(combinations), -1).astype(float)
    share = np.nan_to_num(won).reshape(len(combinations), -1)
    summary = DataFrame([(*a, *b) for a in combinations for b in combinations])
    summary.columns = pd.Index(["from_metric", "from_data", "to_metric", "to_data"])
    summary["case"] = [_case(row) for row in summary.itertuples(index=False)]
    for by in CHOICES:
        weights = choice_weights(flat, by).reshape(len(combinations), -1)
        top, bottom = weights @ share.T, weights @ known.T
        summary[by] = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0).ravel()
    summary["correlation"] = [spearman(a, b, fewest=3) for a in means for b in means]
    return summary


def _case(row: tuple[str, str, str, str]) -> str:
    """The case in `CASES` of a pair."""
    metric = "same" if row[0] == row[2] else "other"
    return f"{metric} metric, {'same' if row[1] == row[3] else 'other'} data"


def win_rates(table: DataFrame) -> DataFrame:
    """The mean win rates of the four cases.

    Args:
        table: The table of `transfer`.

    Returns:
        One row per case: same or other metric, same or other data, with the columns `by_mean` and `by_seed`.
    """
    rates = table.groupby("case")[list(CHOICES)].mean()
    return rates.reindex([case for case in CASES if case in rates.index])


def draw_transfer(summary: DataFrame, cube: ScoreCube) -> Figure:
    """Heat maps of the win rates of the four cases, and of the rank correlation of settings for each metric."""
    figure, grid = plots.panel_figure(
        2 + len(cube.metrics), size=(max(2.6, 0.42 * len(cube.data) + 1.0), max(2.0, 0.3 * len(cube.data) + 1.3))
    )
    rates = win_rates(summary)
    for axes, (by, title) in zip(grid, CHOICES.items(), strict=False):
        wide = DataFrame(
            [[rates[by].get(f"{m} metric, {d} data", np.nan) for d in ("other", "same")] for m in ("other", "same")],
            index=["other\nmetric", "same\nmetric"], columns=["other data", "same data"],
        )  # fmt: skip
        plots.draw_heat_map(axes, wide, low=0, form=lambda share: f"{100 * share:.1f} %")
        axes.set_xticks(range(2), list(wide.columns), rotation=0, ha="center")
        plots.set_labels(axes, f"Win rate over random,\n{title}")
    same = summary[summary["from_metric"] == summary["to_metric"]]
    for i, (axes, metric) in enumerate(zip(grid[2:], cube.metrics, strict=True)):
        wide = same[same["from_metric"] == metric].pivot(index="from_data", columns="to_data", values="correlation")
        plots.draw_heat_map(axes, wide.loc[cube.data, cube.data])
        plots.set_labels(axes, f"{score_name(metric)}:\nrank correlation of settings")
        plots.hide_inner_labels(axes)
        if not i:  # there is no heat map with the same rows to its left
            axes.set_yticklabels(cube.data)
    return figure
