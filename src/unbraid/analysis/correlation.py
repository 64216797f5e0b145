"""Rank correlations over runs: between metrics, with scores that need no labels, with downstream tasks."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from pandas import DataFrame

from unbraid.analysis import plots
from unbraid.analysis.results_table import Result, checked, enough, held, refuse, score_columns, score_name, spearman

UNSUPERVISED = {
    "Reconstruction": "train.rec",
    "KL": "train.kl",
    "ELBO": "train.elbo",
    "Total correlation": "unsupervised.gaussian_total_correlation",
    "Mutual information": "unsupervised.mutual_info_score",
    "UDR": "udr.score",
}
SIZES = (10, 100, 1_000, 10_000)
TASKS = {
    f"{short} {what}": f"{task}.{column}"
    for short, task in (("LR", "downstream_lr"), ("GBT", "downstream_gbt"))
    for what, column in (
        *((f"{size:,}", f"{size}:mean_test_accuracy") for size in SIZES),
        ("efficiency", "statistical_efficiency"),
    )
}


def agreement(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""How much metrics agree: the rank correlation of two metrics over all runs of a dataset.

    .. math:: \rho(a, b) = \mathrm{cor}(\mathrm{rank}\, a, \mathrm{rank}\, b)

    Runs of all methods, strengths and seeds count alike; equal values share their mean rank. NaN where fewer than 10
    runs have both scores or where one of them is the same for all.

    Table: a row a dataset and ordered pair of metrics: `data`, `first`, `second`, `correlation`, `runs`.
    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.2 and figure 2.
    """
    columns = score_columns(table, metrics, fewest=2)
    found = correlations(checked(table, columns.values()), columns, columns)
    others = found[found["first"] != found["second"]]
    text = f"Two metrics agree with a median rank correlation of {others['correlation'].median():.2f}. "
    figure = maps(found, {name: score_name(name) for name in columns}, {name: score_name(name) for name in columns})
    return Result(found, figure, text + strongest(others))


def selection(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""Whether scores that need no labels tell the good runs: their rank correlation with every metric.

    .. math:: \rho(u, m) = \mathrm{cor}(\mathrm{rank}\, u, \mathrm{rank}\, m)

    over all runs of a dataset, with u the last logged reconstruction error, KL and ELBO, the total correlation and the
    mutual information of mean codes, and the UDR, as far as the table has them. The sign is that of the raw values: a
    reconstruction error is low where it is good.

    Open in the paper: of which codes the total correlation is; here of the means. UDR (Duan et al. 2020,
    arXiv:1905.12614) and mutual information are additions.
    Table: a row a dataset, unsupervised score (`first`) and metric (`second`): `correlation`, `runs`.
    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.4.
    """
    rows = held(table, UNSUPERVISED)
    if not rows:
        wanted = ", ".join(UNSUPERVISED.values())
        refuse(f"One of these columns must hold scores: {wanted}.", "none of them", "Log or score one of them.")
    columns = score_columns(table, metrics)
    found = correlations(checked(table, [*rows.values(), *columns.values()]), rows, columns)
    figure = maps(found, {name: name for name in rows}, {name: score_name(name) for name in columns})
    typical = found["correlation"].abs().median()
    text = f"Scores without labels and metrics have a median absolute rank correlation of {typical:.2f}. "
    return Result(found, figure, text + strongest(found))


def downstream(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""Whether disentangled codes help later tasks: rank correlation of metrics with accuracies and with efficiency.

    .. math:: \rho(m, a_N), \quad \rho(m, a_{100} / a_{10000})

    over all runs of a dataset, with :math:`a_N` the mean test accuracy over factors of logistic regression (LR) or
    boosted trees (GBT) fitted to N labelled examples. The ratio is the paper's statistical efficiency.

    Beware: a metric that partly measures how much the codes tell is correlated with accuracy for that reason alone.
    Table: a row a dataset, task (`first`) and metric (`second`): `correlation`, `runs`.
    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.5 and figure 5.
    """
    rows = held(table, TASKS)
    if not rows:
        wanted = ", ".join(TASKS.values())
        refuse(f"One of these columns must hold scores: {wanted}.", "none of them", "Score downstream_lr.")
    columns = score_columns(table, metrics)
    found = correlations(checked(table, [*rows.values(), *columns.values()]), rows, columns)
    figure = maps(found, {name: name for name in rows}, {name: score_name(name) for name in columns})
    efficient = found["first"].str.endswith("efficiency")
    parts = ((found[~efficient], "accuracy"), (found[efficient], "statistical efficiency"))
    said = [f"{part['correlation'].median():.2f} with {what}" for part, what in parts if len(part)]
    text = f"Metrics have a median rank correlation of {' and '.join(said)}. "
    return Result(found, figure, text + strongest(found))


def correlations(table: DataFrame, rows: dict[str, str], columns: dict[str, str]) -> DataFrame:
    """The rank correlation of every row's column with every column's, in every dataset."""
    enough(table, [*rows.values(), *columns.values()])
    lines = []
    for data, part in table.groupby("data", sort=False):
        for first, one in rows.items():
            for second, other in columns.items():
                runs = int((part[one].notna() & part[other].notna()).sum())
                rho = spearman(part[one], part[other])
                lines.append({"data": data, "first": first, "second": second, "correlation": rho, "runs": runs})
    return DataFrame(lines)


def maps(found: DataFrame, rows: dict[str, str], columns: dict[str, str]) -> Figure:
    """A heat map a dataset."""
    names = list(found["data"].unique())
    size = (0.42 * len(columns) + 1.0, 0.27 * len(rows) + 1.1)
    figure, grid = plots.panels(len(names), size=size)
    for axes, data in zip(grid, names, strict=True):
        wide = found[found["data"] == data].pivot(index="first", columns="second", values="correlation")
        plots.heat(axes, wide.loc[list(rows), list(columns)].rename(index=rows, columns=columns))
        plots.outer(axes)
        plots.label(axes, data)
    figure.suptitle("Rank correlation over runs", size=plots.TITLE, weight="bold")
    return figure


def strongest(found: DataFrame) -> str:
    """The pair with the largest median correlation over datasets, and its range, in words."""
    groups = found.dropna(subset=["correlation"]).groupby(["first", "second"], sort=False)["correlation"]
    if not len(groups):
        return "No pair has enough runs that differ."
    middle = groups.median()
    first, second = middle.abs().idxmax()
    part = groups.get_group((first, second))
    said = f"Strongest: {score_name(first)} and {score_name(second)}, median {part.median():.2f}"
    return f"{said}, from {part.min():.2f} to {part.max():.2f} on {len(part)} dataset{'s' if len(part) > 1 else ''}."
