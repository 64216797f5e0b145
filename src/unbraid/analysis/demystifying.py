"""What scores lose on images that were changed against VAEs: originals, modified images, and noise as strong."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series

from unbraid.analysis import plots
from unbraid.analysis.results_table import Array, Result, checked, held, present, refuse

VARIANTS = ("original", "modified", "noise")
COLOURS = dict(zip(VARIANTS, plots.PALETTE, strict=False))
PRIMARY = 1  # the level with the strengths of the paper's tables
POINTS = ("ae", "pcl", "pmp", "diffusion_vae")  # methods whose latents have no normal posterior: nothing is pruned
UNITS, FACTORS = "active.units", "active.factors"
SCORES = {
    "MIG": "mig.discrete_mig",
    "DCI": "dci.disentanglement",  # with the importances that the paper's tables agree with
    "DCI, per tree": "dci.disentanglement_per_tree",
    "FactorVAE": "factor_vae.eval_accuracy",
    "SAP": "sap.SAP_score",
}
NAMES = {"ae": "AE", "pcl": "PCL", "pmp": "PMP", "slow_vae": "SlowVAE", "ada_gvae": "Ada-GVAE", **plots.METHOD_NAMES}
MANIPULATED = ("manipulated", "manipulated_spread", "manipulated_factors", "manipulated_strengths")
LEVEL = 0.05  # p below which a loss is called one
DRAWS = 9_999  # random splits of a permutation test where there are more


def variant(data: str) -> tuple[str, str]:
    """The dataset that a name is made from, and which form of it this is: "original", "modified" or "noise".

    >>> variant("dsprites"), variant("dsprites?noise=0.1"), variant("photos?size=32&modified=default")
    (('dsprites', 'original'), ('dsprites', 'noise'), ('photos?size=32', 'modified'))
    """
    bare, mark, text = data.rpartition("?")
    options = text.split("&") if mark else []
    found = [form for form in VARIANTS[1:] if any(option.startswith(f"{form}=") for option in options)]
    if not found:
        return data, VARIANTS[0]
    left = "&".join(option for option in options if not option.startswith(("modified=", "noise=")))
    return bare + "?" * bool(left) + left, found[0]


def kept(table: DataFrame) -> tuple[DataFrame, DataFrame]:
    r"""The runs that are not over-pruned, and how many of each method and dataset were.

    A latent is active where its posterior is narrower than the prior, :math:`E_x[\sigma^2(x)] < 0.8`
    (the column `active.units` counts them). A run with fewer active latents than the data have factors
    (`active.factors`) cannot hold them all, and is discarded. Methods without a normal posterior prune nothing: their
    runs all stay. Runs that were not trained to their end are left out first.

    The second table has a row a dataset and method: `runs` (trained to their end), `discarded`, `diverged`.
    Reference: Zietlow et al. (2021), arXiv:2102.06822; the supplement's figures 4 to 6 say that such runs were left
    out, the main paper has the bound.
    """
    done = finished(table)
    pruned = over_pruned(done)
    by = ["data", "method"]
    counts = done.groupby(by, sort=False).size().rename("runs").to_frame()
    counts["discarded"] = done[pruned].groupby(by).size()
    if "status" in table:
        lost = table[table["status"] == "diverged"].groupby(by).size().rename("diverged")
        counts = counts.join(lost, how="outer")
    counts = counts.reindex(columns=["runs", "discarded", "diverged"]).fillna(0).astype(int).reset_index()
    return done[~pruned], counts


def finished(table: DataFrame) -> DataFrame:
    """The runs that were trained to their end, where the table says so."""
    return table[table["status"] == "done"] if "status" in table else table


def over_pruned(done: DataFrame) -> Series:
    """Which runs have fewer active latents than factors; a VAE whose latents were not counted is refused."""
    points = done["method"].isin(POINTS)
    counted = done.reindex(columns=[UNITS, FACTORS]).astype(float)
    missing = done[~points & counted.isna().any(axis=1)]
    if len(missing):
        row = missing.iloc[0]
        do = "Give the command of the study again, with `--metrics +active` if it names metrics."
        refuse(f"Every run of a VAE must have {UNITS} and {FACTORS}.", f"no such count of {row['run']}", do)
    return ~points & (counted[UNITS] < counted[FACTORS])


def manipulated(table: DataFrame) -> Result:
    r"""What each method loses on modified images, and on images with noise as strong: a non-VAE should lose nothing.

    A loss is the mean of a score on the originals less that on the changed images, with the standard error of that
    difference, :math:`\sqrt{s_1^2 / n_1 + s_2^2 / n_2}`, and the two-sided p of a permutation test. Only runs of a
    method's primary strength count (level 1, or its first where it has no such), without over-pruned ones (`kept`).

    Table: a row a dataset, method and score: `level`, `strength`; for each form of the data its mean, ``_std`` (n - 1),
    ``_runs`` and ``_discarded``; for `modified` and `noise` ``_loss``, ``_error`` and ``_p``.
    Reference: Zietlow et al. (2021), arXiv:2102.06822, table 1, and tables 2 to 4 of its supplement.
    """
    columns = scores_held(table)
    rows = primary(comparable(table, columns))
    found = summarised(rows, columns)
    return Result(found, draw(rows, columns), say(found, rows))


def scores_held(table: DataFrame) -> dict[str, str]:
    """Those of the scores that the table has."""
    columns = held(table, SCORES)
    if not columns:
        wanted = ", ".join(SCORES.values())
        refuse(f"One of these columns must hold scores: {wanted}.", "none of them", "Score the runs with one.")
    return columns


def comparable(table: DataFrame, columns: dict[str, str]) -> DataFrame:
    """Finished runs on datasets that are there as they are and changed, with `base`, `variant` and `pruned`."""
    present(table, columns.values())
    done = finished(table).assign(pruned=False)
    done[["base", "variant"]] = [variant(name) for name in done["data"]]
    forms = done.groupby("base")["variant"].nunique()
    originals = done.loc[done["variant"] == VARIANTS[0], "base"].unique()
    bases = [base for base in done["base"].unique() if base in originals and forms[base] > 1]
    if not bases:
        came = f"only {', '.join(map(str, done['data'].unique()[:4]))}"
        do = "Train on data?modified=FILE or data?noise=0.1 as well: unbraid study demystifying2021."
        refuse("There must be runs on a dataset and on a changed form of it.", came, do)
    done = done[done["base"].isin(bases)]
    _one_form(done)
    done = done.assign(pruned=over_pruned(done))
    wanted = [*columns.values(), "base", "variant", "pruned"]
    return pd.concat([_part(done[done["base"] == base], wanted) for base in bases], ignore_index=True)


def _part(part: DataFrame, wanted: list[str]) -> DataFrame:
    """The checked rows of one dataset in all its forms: elsewhere levels may have other strengths."""
    *columns, base, form, pruned = wanted
    return checked(part, columns, seeds=2).assign(**{name: part[name].to_numpy() for name in (base, form, pruned)})


def _one_form(done: DataFrame) -> None:
    """Refuse two modifications, or two strengths of noise, of one dataset."""
    names = done.groupby(["base", "variant"])["data"].agg(lambda data: sorted(set(data)))
    twice = names[names.map(len) > 1]
    if len(twice):
        came = " and ".join(twice.iloc[0])
        refuse("There must be one modification and one noise of a dataset.", came, "Filter the table by 'data'.")


def primary(rows: DataFrame) -> DataFrame:
    """Runs at the primary strength of each method: at level 1, or at its first where it has none."""
    return rows[rows["level"] == rows.groupby(["base", "method"])["level"].transform(primary_level)]


def primary_level(levels: Series) -> float:
    """Level 1, or the first where there is none."""
    return float(PRIMARY if (levels == PRIMARY).any() else levels.min())


def summarised(rows: DataFrame, columns: dict[str, str]) -> DataFrame:
    """A row a dataset, method, level and score with what every form has and what changed ones lose."""
    by = ["base", "method", "level", "strength"]
    found = []
    for keys, part in rows.groupby(by, sort=False):
        place = dict(zip(["data", *by[1:]], keys, strict=True))
        found += [{**place, "score": name, **cells(part, column)} for name, column in columns.items()]
    return DataFrame(found)


def cells(part: DataFrame, column: str) -> dict[str, Any]:
    """Mean, deviation and numbers of runs of each form, and the losses."""
    used = part[~part["pruned"]]
    values = {form: used.loc[used["variant"] == form, column].dropna().to_numpy() for form in VARIANTS}
    found: dict[str, Any] = {}
    for form, seen in values.items():
        found[form] = seen.mean() if len(seen) else math.nan
        found[f"{form}_std"] = seen.std(ddof=1) if len(seen) > 1 else math.nan
        found[f"{form}_runs"] = len(seen)
        found[f"{form}_discarded"] = int(part.loc[part["variant"] == form, "pruned"].sum())
    for form in VARIANTS[1:]:
        loss, error = lost(values[VARIANTS[0]], values[form])
        p = permutation(values[VARIANTS[0]], values[form])
        found |= {f"{form}_loss": loss, f"{form}_error": error, f"{form}_p": p}
    return found


def lost(original: Array, changed: Array) -> tuple[float, float]:
    """The difference of two means and its standard error; NaN where there is nothing to take it from.

    >>> lost(np.array([3.0, 5.0]), np.array([1.0, 1.0]))
    (3.0, 1.0)
    """
    if not (len(original) and len(changed)):
        return math.nan, math.nan
    loss = float(original.mean() - changed.mean())
    if min(len(original), len(changed)) < 2:
        return loss, math.nan
    return loss, math.sqrt(original.var(ddof=1) / len(original) + changed.var(ddof=1) / len(changed))


def permutation(first: Array, second: Array, seed: int = 0) -> float:
    """The share of ways to split all values in two groups of these sizes whose means lie as far apart.

    All ways where there are at most 9,999, else as many at random, to which the one at hand is added. NaN where a group
    has no value.

    >>> permutation(np.array([4.0, 5.0, 6.0]), np.array([1.0, 2.0, 3.0]))  # 2 of 20
    0.1
    """
    n, values = len(first), np.concatenate([np.sort(first), np.sort(second)])
    if not 0 < n < len(values):
        return math.nan
    sums = values[splits(len(values), n, seed)].sum(1)
    gaps = np.abs(sums / n - (values.sum() - sums) / len(second))
    far = gaps >= abs(first.mean() - second.mean()) - 1e-12
    every = math.comb(len(values), n) == len(gaps)
    return float(far.mean() if every else (1 + far.sum()) / (1 + len(far)))


def stratified(pairs: Sequence[tuple[Array, Array]], seed: int = 0) -> float:
    """The same for several pairs of groups, such as two learning rates: values change places within their pair only.

    Of the sum of the gaps of means, over `DRAWS` ways at random. NaN where a group has no value.

    >>> low, high = np.arange(6.0), np.arange(6.0) + 2
    >>> stratified([(low, high)]) > stratified([(low, high), (low + 50, high + 50)])  # pairs themselves may differ
    True
    """
    if not pairs or not all(len(first) and len(second) for first, second in pairs):
        return math.nan
    rng, sums, seen = np.random.default_rng(seed), np.zeros(DRAWS), 0.0
    for first, second in pairs:
        values = np.concatenate([np.sort(first), np.sort(second)])
        drawn = values[rng.random((DRAWS, len(values))).argsort(axis=1)]
        sums += drawn[:, : len(first)].mean(1) - drawn[:, len(first) :].mean(1)
        seen += first.mean() - second.mean()
    return float((1 + (np.abs(sums) >= abs(seen) - 1e-12).sum()) / (1 + DRAWS))


@functools.lru_cache(maxsize=16)
def splits(count: int, n: int, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Which n of `count` values form the first group, a row a way."""
    if math.comb(count, n) <= DRAWS:
        return np.array(list(itertools.combinations(range(count), n)))
    return np.random.default_rng(seed).random((DRAWS, count)).argsort(axis=1)[:, :n]


def say(found: DataFrame, rows: DataFrame) -> str:
    """How many methods lose on modified images and on noise, and which most."""
    name = found["score"].iloc[0]
    scored = found[found["score"] == name]
    parts = []
    for form in VARIANTS[1:]:
        known = scored.dropna(subset=[f"{form}_p"])
        if len(known):
            loses = (known[f"{form}_p"] < LEVEL) & (known[f"{form}_loss"] > 0)
            middle = plots.short(float(known[f"{form}_loss"].median()))
            what = "modified images" if form == "modified" else "images with noise"
            parts.append(f"on {what} {loses.sum()} of {len(known)} (median loss {middle})")
    text = f"Of the pairs of a dataset and a method these lose {name} (p < .05): {', '.join(parts)}."
    top = scored.dropna(subset=["modified_loss"]).nlargest(1, "modified_loss")
    for _, row in top.iterrows():
        ends = f"from {plots.short(row['original'])} to {plots.short(row['modified'])}"
        text += f" {method_name(row['method'])} on {row['data']} loses most on modified images, {ends}."
    return f"{text} {int(rows['pruned'].sum())} of {len(rows)} runs were over-pruned and discarded."


def method_name(method: str) -> str:
    """A method's name for a figure."""
    return NAMES.get(method, method)


def draw(rows: DataFrame, columns: dict[str, str]) -> Figure:
    """A row a score, a column a dataset; a dot a run, in the colour of its form of the data."""
    bases, methods = list(rows["base"].unique()), list(rows["method"].unique())
    size = (max(2.6, 0.55 * len(methods)), 1.8)
    figure, grid = plots.matrix(len(columns), len(bases), size=size, sharex=True, sharey="row")
    for line, column in zip(grid, columns.values(), strict=True):
        for axes, base in zip(line, bases, strict=True):
            dots(axes, rows[(rows["base"] == base) & ~rows["pruned"]], column, methods)
    for axes in grid[-1]:
        names = [method_name(method) for method in methods]
        axes.set_xticks(range(len(methods)), names, rotation=40, ha="right", rotation_mode="anchor")
    plots.edges(grid, bases, list(columns), "")
    plots.legend(figure, {form: {"color": COLOURS[form], "marker": "o"} for form in VARIANTS})
    return figure


def dots(axes: Axes, part: DataFrame, column: str, methods: list[str]) -> None:
    """Runs of each method beside each other, one form next to the other, and a bar at each mean."""
    for i, method in enumerate(methods):
        for j, form in enumerate(VARIANTS):
            chosen = part[(part["method"] == method) & (part["variant"] == form)].sort_values("seed")
            values = chosen[column].dropna().to_numpy()
            if len(values):
                place = i + 0.27 * (j - 1)
                spread = np.linspace(-0.08, 0.08, len(values)) if len(values) > 1 else np.zeros(1)
                axes.scatter(place + spread, values, s=9, color=COLOURS[form], linewidths=0, alpha=0.8)
                axes.hlines(values.mean(), place - 0.12, place + 0.12, color="black", linewidth=1.2)
