"""Test whether a setting that is good for one metric and dataset is also good for others."""

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
    reject,
    score_name,
    scored_rows,
    sign,
    spearman,
)

CHOICES = {"by_mean": "chosen by mean of other seeds", "by_seed": "chosen by one other seed"}
SAME_SETTING = [*SETTING, "strength"]  # columns that must be equal if runs on two datasets have the same setting
CASES = ("same metric, same data", "other metric, same data", "same metric, other data", "other metric, other data")


def transfer(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""Compute how often a setting that was chosen by one metric on one dataset beats a random setting.

    .. math:: P(s_B(c, r) > s_B(o, r)) + \tfrac12 P(s_B(c, r) = s_B(o, r)), \quad c = \arg\max_c \bar s_A(c)

    A setting is a method with a strength. If a level has different strengths on two datasets, these are different
    settings. Only settings that both datasets have are compared. A and B are combinations of a metric and a
    dataset. The setting c is chosen on A. It is then compared on B with every other setting o, where both are trained
    with the same seed r. :math:`s_B(c, r)` is the score of setting c with seed r on B. :math:`\bar s_A(c)` is the score
    on A by which c is chosen. It does not use seed r: it is either the mean score over all other seeds (`by_mean`), or
    the score with a single other seed (`by_seed`). In the second case, the results are averaged over all choices of the
    single seed. All combinations of A, B, r and o are used. If several settings are tied for the best, the results of
    choosing each of them are averaged. By chance, 50 % is expected. NaN scores are left out of means and comparisons.

    The paper gives these results: 80.7 % for the same metric and dataset with another seed, 59.3 % for the same metric
    on other datasets, and 54.9 % for another metric and dataset. It does not specify four details:

    - whether the setting is chosen by one seed or by a mean. Here the table has both.
    - whether the random setting may be the chosen one. Here it may not, so a setting that is best everywhere wins 100 %
      of its comparisons.
    - how ties are counted. Here a tie contributes 1/2.
    - whether both settings are compared with the same seed. Here they are, which is fair because this seed was not used
      for the choice.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.4.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default all of the paper's six metrics that are in the table.

    Returns:
        A result whose table has one row per ordered pair of A (`from_metric`, `from_data`) and B (`to_metric`,
        `to_data`): `case`, the win rates `by_mean` and `by_seed`, and `correlation`, the rank correlation between the
        mean scores of settings on A and on B. For the same metric, the correlations are the transfer matrices of the
        paper. `win_rates` returns the mean win rates of each case.

    Raises:
        UserError: If there are no scores, or if there are fewer than 2 seeds, datasets or settings.
    """
    rows, columns = scored_rows(table, metrics, datasets=2)
    if rows.groupby(SAME_SETTING).ngroups < 2:
        reject("There must be at least 2 settings to choose from.", "one", "Add a method or a strength.")
    cube = ScoreCube.of(rows, columns)
    summary = transfer_pairs(cube)
    rates = win_rates(summary)["by_mean"]
    finite = [case for case in CASES if np.isfinite(rates.get(case, np.nan))]
    phrases = [f"{plots.format_percent(rates[case])} ({case})" for case in finite]
    text = (
        "A setting that is chosen by its mean score over other seeds beats a random setting in the following "
        f"percentage of comparisons: {', '.join(phrases)}."
    )
    return Result(summary, draw_transfer(summary, cube), text)


class ScoreCube(NamedTuple):
    """Scores as an array (metrics, datasets, settings, seeds). Higher is better. Scores of missing runs are NaN."""

    values: Array
    metrics: list[str]
    data: list[str]

    @classmethod
    def of(cls, rows: DataFrame, columns: dict[str, str]) -> ScoreCube:
        """Arrange the scores of a results table in an array. `columns` maps metrics to columns of the table."""
        data, seeds = list(rows["data"].unique()), list(rows["seed"].unique())
        wide = rows.pivot(index=SAME_SETTING, columns=["data", "seed"], values=list(columns.values()))
        full = wide.reindex(columns=pd.MultiIndex.from_product([columns.values(), data, seeds])).to_numpy(float)
        values = np.moveaxis(full.reshape(-1, len(columns), len(data), len(seeds)), 0, 2)
        signs = np.array([sign(metric) for metric in columns])
        return cls(values * signs[:, None, None, None], list(columns), data)


def finite_mean(values: Array, axis: int) -> Array:
    """Return the mean of the finite values along an axis, or NaN if there are none."""
    finite = np.isfinite(values)
    count = finite.sum(axis)
    total = np.where(finite, values, 0.0).sum(axis)
    return np.asarray(np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0))


def best_weights(values: Array) -> Array:
    """Return weights along the last axis that are equal for all maxima and 0 elsewhere, and that sum to 1.

    They are all 0 if all values are NaN.

    >>> best_weights(np.array([1.0, 3.0, np.nan, 3.0])).tolist()
    [0.0, 0.5, 0.0, 0.5]
    """
    filled = np.where(np.isfinite(values), values, -np.inf)
    top = filled.max(-1, keepdims=True)
    hits = (filled == top) & np.isfinite(top)
    return np.asarray(hits / np.maximum(hits.sum(-1, keepdims=True), 1))


def choice_weights(values: Array, by: str) -> Array:
    """Choose the best settings once per seed, without the scores of this seed. Return the weights of the settings.

    Settings that are not chosen have weight 0. `by` is "by_mean" or "by_seed" (see `transfer`). Scores and weights have
    the shape (..., settings, seeds).
    """
    seeds = range(values.shape[-1])
    if by == "by_mean":
        return np.stack([best_weights(finite_mean(np.delete(values, seed, -1), -1)) for seed in seeds], -1)
    single = np.moveaxis(best_weights(np.moveaxis(values, -1, -2)), -2, -1)
    total = np.stack([np.delete(single, seed, -1).sum(-1) for seed in seeds], -1)
    return np.asarray(total / np.maximum(total.sum(-2, keepdims=True), 1))


def win_fractions(values: Array) -> Array:
    """Return the fraction of other settings that each setting beats with the same seed. A tie contributes 1/2.

    Scores and fractions have the shape (..., settings, seeds).
    """
    count = values.shape[-2]
    gap = values[..., :, None, :] - values[..., None, :, :]
    gap[..., range(count), range(count), :] = np.nan
    won = np.where(np.isnan(gap), np.nan, (np.sign(gap) + 1) / 2)
    return finite_mean(won, -2)


def transfer_pairs(cube: ScoreCube) -> DataFrame:
    """Compute the win rates and rank correlations of each ordered pair of combinations (metric, dataset)."""
    combinations = [(metric, data) for metric in cube.metrics for data in cube.data]
    summary = DataFrame([(*a, *b) for a in combinations for b in combinations])
    summary.columns = pd.Index(["from_metric", "from_data", "to_metric", "to_data"])
    summary["case"] = [_case_of_pair(row) for row in summary.itertuples(index=False)]
    for by in CHOICES:
        summary[by] = pair_win_rates(cube.values, by).ravel()
    means = finite_mean(cube.values, -1).reshape(len(combinations), -1)
    summary["correlation"] = [spearman(a, b, minimum=3) for a in means for b in means]
    return summary


def pair_win_rates(values: Array, by: str) -> Array:
    """Return the win rates of all pairs of combinations (metric, dataset), (metrics, datasets, metrics, datasets).

    A setting is chosen by the first combination of a pair and compared on the second. Only settings with scores on both
    datasets are used. `values` are those of `ScoreCube`, and `by` is "by_mean" or "by_seed" (see `transfer`).
    """
    metrics, datasets = values.shape[:2]
    has_scores = np.asarray(np.isfinite(values).any(axis=(0, 3)))
    rates = np.full((metrics, datasets, metrics, datasets), np.nan)
    for a, b in np.ndindex(datasets, datasets):
        shared = has_scores[a] & has_scores[b]
        if shared.any():
            weights, won = choice_weights(values[:, a, shared], by), win_fractions(values[:, b, shared])
            weights, won = weights.reshape(metrics, -1), won.reshape(metrics, -1)
            top, bottom = weights @ np.nan_to_num(won).T, weights @ np.isfinite(won).astype(float).T
            rates[:, a, :, b] = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)
    return rates


def _case_of_pair(row: tuple[str, str, str, str]) -> str:
    """Return the case in `CASES` to which a pair belongs."""
    metric = "same" if row[0] == row[2] else "other"
    return f"{metric} metric, {'same' if row[1] == row[3] else 'other'} data"


def win_rates(table: DataFrame) -> DataFrame:
    """Average the win rates of `transfer` within each of the four cases: same or other metric, same or other data.

    Args:
        table: The table of the result of `transfer`.

    Returns:
        A table with one row per case and the columns `by_mean` and `by_seed`.
    """
    rates = table.groupby("case")[list(CHOICES)].mean()
    return rates.reindex([case for case in CASES if case in rates.index])


def draw_transfer(summary: DataFrame, cube: ScoreCube) -> Figure:
    """Draw heat maps of the win rates of the four cases, and of the rank correlation of settings for each metric."""
    figure, grid = plots.panel_figure(
        2 + len(cube.metrics), size=(max(2.6, 0.42 * len(cube.data) + 1.0), max(2.0, 0.3 * len(cube.data) + 1.3))
    )
    rates = win_rates(summary)
    for axes, (by, title) in zip(grid, CHOICES.items(), strict=False):
        wide = DataFrame(
            [[rates[by].get(f"{m} metric, {d} data", np.nan) for d in ("other", "same")] for m in ("other", "same")],
            index=["other\nmetric", "same\nmetric"], columns=["other data", "same data"],
        )  # fmt: skip
        plots.draw_heat_map(axes, wide, low=0, form=lambda rate: f"{100 * rate:.1f} %")
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
