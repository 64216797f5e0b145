"""Total correlation of mean and of sampled codes against regularisation strength."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.results_table import Result, checked, headline, quartiles, refuse

CODES = {"sampled": headline("unsupervised") + ".sampled", "mean": headline("unsupervised")}
BY = ["data", "method", "level", "strength"]


def total_correlation(table: DataFrame, without: Collection[str] = ("annealed_vae",)) -> Result:
    r"""Whether regularisation makes codes uncorrelated: total correlation of samples and of means over strength.

    .. math:: TC = \tfrac12 \left( \sum_j \log \Sigma_{jj} - \log \det \Sigma \right)

    of the Gaussian with the covariance of the codes, in nats: of samples of q(z|x), which the objectives regularise,
    and of its means, which are used as codes. `without` names methods to leave out; the paper leaves out AnnealedVAE,
    whose swept value, the final capacity, weakens the constraint as it grows.

    Table: a row a dataset, method, level and kind of codes (`codes`): quartiles and median over seeds, `runs`.
    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.1 and figure 1.
    """
    rows = checked(table, CODES.values(), seeds=2)
    rows = rows[~rows["method"].isin(list(without))]
    if not len(rows) or rows[list(CODES.values())].isna().all(axis=None):
        came = f"none (methods left out: {', '.join(without) or 'none'})"
        refuse("Some runs must have a total correlation.", came, "Score 'unsupervised', or leave out fewer methods.")
    kinds = [quartiles(rows, column, BY).assign(codes=kind) for kind, column in CODES.items()]
    found = pd.concat(kinds, ignore_index=True)
    return Result(found, draw(found), say(found))


def say(found: DataFrame) -> str:
    """How often the median falls and rises from the weakest to the strongest regularisation."""
    ordered = found.sort_values("level")
    ends = ordered.groupby(["codes", "data", "method"])["median"].agg(["first", "last"])
    counts = {kind: (int((e["last"] < e["first"]).sum()), len(e)) for kind, e in ends.groupby(level="codes")}
    low, high = (found[found["codes"] == kind]["median"].median() for kind in CODES)
    parts = [f"of {kind} codes falls in {counts[kind][0]} of {counts[kind][1]}" for kind in CODES if kind in counts]
    return (
        f"From the weakest to the strongest regularisation the total correlation {' and '.join(parts)} pairs of a "
        f"method and a dataset. Its median is {low:.2g} nats for sampled and {high:.2g} nats for mean codes."
    )


def draw(found: DataFrame) -> Figure:
    """Samples above, means below, a column a dataset, a line a method."""
    names, styles = list(found["data"].unique()), plots.looks(found["method"])
    figure, grid = plots.matrix(2, len(names), size=(2.1, 2.1), sharex=True, sharey=True)
    for i, kind in enumerate(CODES):
        for axes, data in zip(grid[i], names, strict=True):
            part = found[(found["data"] == data) & (found["codes"] == kind)]
            for method, lines in part.groupby("method", sort=False):
                plots.band(axes, lines, "level", styles[method])
            axes.set_yscale("symlog", linthresh=0.1)
            axes.set_xticks(sorted(found["level"].unique()))
    grid[0, 0].set_ylim(0, max(0.1, 1.2 * found["high"].max()))
    plots.edges(grid, names, [f"TC of {kind} codes [nats]" for kind in CODES], "strength (level)")
    plots.legend(figure, {plots.method_name(name): look for name, look in styles.items()})
    return figure
