"""AnnealedVAE: what more capacity brings, in scores and in nats a factor."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.results_table import Result, checked, held, quartiles, refuse, score_columns, score_name, sign

METHOD, NATS = "annealed_vae", "information."
PLAIN: dict[str, plots.Look] = {"train.kl": {"color": "#333333", "marker": "o"}}


def capacity(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""What the final capacity of AnnealedVAE brings: scores, the KL reached, and nats of each factor.

    .. math:: E_q[-\log p(x|z)] + \gamma\, |KL(q(z|x) \| p(z)) - C|, \quad C \to C_{max}

    Scores, `train.kl` and, where the table has columns ``information.<factor>``, the nats told of each factor, against
    :math:`C_{max}` (the column `strength`): medians and quartiles over seeds.

    Table: a row a dataset, quantity and strength: `runs`, `low` and `high` quartile, `median`.
    Reference: Burgess et al. (2018), arXiv:1804.03599, equation 8 and figure 3.
    """
    columns = score_columns(table, metrics)
    nats = held(table, {str(name): str(name) for name in table.columns if str(name).startswith(NATS)})
    reached = held(table, {"train.kl": "train.kl"})
    quantities = {**columns, **reached, **nats}
    rows = checked(table, quantities.values())
    rows = rows[rows["method"] == METHOD]
    if rows["strength"].nunique() < 2 or rows["seed"].nunique() < 2:
        came = f"{rows['strength'].nunique()} of 'strength' and {rows['seed'].nunique()} of 'seed'"
        refuse(
            f"Runs of {METHOD} must have at least 2 strengths and 2 seeds.", came, f"Train {METHOD} with more of them."
        )
    by = ["data", "level", "strength"]
    parts = [quartiles(rows, column, by).assign(quantity=name) for name, column in quantities.items()]
    found = pd.concat(parts, ignore_index=True)
    return Result(found, draw(found, list(columns), list(reached), list(nats)), say(found, list(columns)))


def say(found: DataFrame, metrics: list[str]) -> str:
    """Which capacity has the best median, and how near the KL comes to its target."""
    scored = found[found["quantity"].isin(metrics)]
    good = scored["median"] * scored["quantity"].map(sign)
    leaders = scored.loc[good.groupby([scored["data"], scored["quantity"]]).idxmax(), "strength"].value_counts()
    text = (
        f"A final capacity of {leaders.index[0]:g} nats has the best median most often, in {leaders.iloc[0]} of "
        f"{leaders.sum()} pairs of a dataset and a metric."
    )
    kl = found[found["quantity"] == "train.kl"]
    gap = (kl["median"] - kl["strength"]).abs().median()
    return text if not len(kl) else f"{text} The KL ends {gap:.2g} nats from its target (median)."


def draw(found: DataFrame, metrics: list[str], reached: list[str], nats: list[str]) -> Figure:
    """Scores above, then the KL, then nats of each factor, a column a dataset."""
    groups = {"score": metrics, "KL [nats]": reached, "nats of a factor": nats}
    groups = {name: members for name, members in groups.items() if members}
    names = list(found["data"].unique())
    figure, grid = plots.matrix(len(groups), len(names), size=(2.1, 2.1), sharex=True, sharey="row")
    styles = plots.looks(score_name(metric) for metric in metrics)
    for line, members in zip(grid, groups.values(), strict=True):
        for axes, data in zip(line, names, strict=True):
            part = found[(found["data"] == data) & found["quantity"].isin(members)]
            factors = PLAIN if members is reached else plots.looks(part["quantity"])
            curves(axes, part, styles if members is metrics else factors)
            if members is reached:
                axes.axline((0, 0), slope=1, color="grey", linewidth=0.8, linestyle="--")
            if members is nats and len(part):
                tags(axes, part)
    plots.edges(grid, names, list(groups), "final capacity [nats]")
    plots.legend(figure, styles, above=True)  # beside the scores, for the rows below have colours of their own
    return figure


def curves(axes: Axes, part: DataFrame, styles: dict[str, plots.Look]) -> None:
    """A median with quartiles for each quantity."""
    for quantity, lines in part.groupby("quantity", sort=False):
        plots.band(axes, lines, "strength", styles[score_name(str(quantity))])


def tags(axes: Axes, part: DataFrame) -> None:
    """A small legend with the factors of one dataset, which others need not have."""
    for quantity, look in plots.looks(part["quantity"]).items():
        axes.plot([], [], label=quantity.removeprefix(NATS), markersize=3.5, **look)
    axes.legend(fontsize=plots.SMALL - 1, frameon=False, handlelength=1.2, borderpad=0.1, labelspacing=0.2)
