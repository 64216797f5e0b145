"""Rank correlations, over runs, between metrics, unsupervised scores and accuracies in downstream tasks."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from pandas import DataFrame, Series

from unbraid.analysis import plots
from unbraid.analysis.results_table import (
    Result,
    check_enough_runs,
    check_table,
    columns_with_values,
    reject,
    score_columns,
    score_name,
    spearman,
)

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
    r"""Compute how well metrics agree, as the rank correlation of each pair of metrics over all runs of a dataset.

    .. math:: \rho(a, b) = \mathrm{cor}(\mathrm{rank}\, a, \mathrm{rank}\, b)

    Runs of all methods, strengths and seeds have equal weight. Tied values are assigned their mean rank.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.2 and figure 2.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default all of the paper's six metrics that are in the table.

    Returns:
        A result whose table has one row per dataset and ordered pair of metrics: `data`, `first`, `second`,
        `correlation`, `runs`. The correlation is NaN if fewer than 10 runs have both scores, or if a score is constant.

    Raises:
        UserError: If the table has fewer than two metrics or too few runs.
    """
    columns = score_columns(table, metrics, minimum=2)
    summary = correlations(check_table(table, columns.values()), columns, columns)
    others = summary[summary["first"] != summary["second"]]
    text = median_text("rank correlation between two metrics", others["correlation"])
    figure = draw_heat_maps(
        summary, {name: score_name(name) for name in columns}, {name: score_name(name) for name in columns}
    )
    return Result(summary, figure, text + strongest_pair(others))


def selection(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""Measure how well unsupervised scores identify good runs, by their rank correlation with each metric.

    .. math:: \rho(u, m) = \mathrm{cor}(\mathrm{rank}\, u, \mathrm{rank}\, m)

    The correlation is over all runs of a dataset. There are six unsupervised scores u: the reconstruction error, the KL
    and the ELBO at the end of the training, the total correlation of mean codes, the mutual information of mean codes,
    and the UDR. Scores that the table does not have are left out. The signs of the scores are not changed. A low
    reconstruction error is good, so a negative correlation is expected for it.

    The paper does not say whether its total correlation is that of mean or of sampled codes. Mean codes are used here.
    UDR (Duan et al. 2020, arXiv:1905.12614) and mutual information are not in the paper.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.4.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default all of the paper's six metrics that are in the table.

    Returns:
        A result whose table has one row per dataset, unsupervised score (`first`) and metric (`second`):
        `correlation`, `runs`.

    Raises:
        UserError: If the table has no unsupervised scores, no metrics or too few runs.
    """
    summary, figure = correlate_with_metrics(table, UNSUPERVISED, metrics, "Score the runs with udr.")
    what = "absolute rank correlation between unsupervised scores and metrics"
    text = median_text(what, summary["correlation"].abs())
    return Result(summary, figure, text + strongest_pair(summary))


def downstream(table: DataFrame, metrics: Sequence[str] | None = None) -> Result:
    r"""Measure whether disentangled codes help downstream tasks.

    The result is the rank correlation of each metric m with accuracy and with statistical efficiency.

    .. math:: \rho(m, a_N), \quad \rho(m, a_{100} / a_{10000})

    The correlation is over all runs of a dataset. :math:`a_N` is the test accuracy, averaged over factors, of logistic
    regression (LR) or gradient boosted trees (GBT) that were fitted to N labelled examples. The ratio is the
    statistical efficiency of the paper. Some metrics partly measure how informative codes are. Such a metric correlates
    with accuracy even if disentanglement itself has no effect.

    Reference: Locatello et al. (2019), arXiv:1811.12359, section 5.5 and figure 5.

    Args:
        table: A results table with one row per run.
        metrics: Names of metrics. By default all of the paper's six metrics that are in the table.

    Returns:
        A result whose table has one row per dataset, task (`first`) and metric (`second`): `correlation`, `runs`.

    Raises:
        UserError: If the table has no accuracies of downstream tasks, no metrics or too few runs.
    """
    summary, figure = correlate_with_metrics(table, TASKS, metrics, "Score the runs with downstream_lr.")
    efficient = summary["first"].str.endswith("efficiency")
    parts = ((summary[~efficient], "accuracy"), (summary[efficient], "statistical efficiency"))
    known = [(part["correlation"].median(), what) for part, what in parts if part["correlation"].notna().any()]
    phrases = [f"{plots.format_decimal(rho)} with {what}" for rho, what in known]
    text = f"The median rank correlation of metrics is {' and '.join(phrases)}. " if known else ""
    return Result(summary, figure, text + strongest_pair(summary))


def correlate_with_metrics(
    table: DataFrame, given: dict[str, str], metrics: Sequence[str] | None, remedy: str
) -> tuple[DataFrame, Figure]:
    """Return a table of the rank correlations between the given columns and metrics, and a figure of the table.

    `given` maps names to columns. Columns without values are left out. If none has values, raise a UserError whose
    message ends with `remedy`.
    """
    rows = columns_with_values(table, given)
    if not rows:
        wanted = ", ".join(given.values())
        reject(f"One of these columns must have values: {wanted}.", "none of them", remedy)
    columns = score_columns(table, metrics)
    summary = correlations(check_table(table, [*rows.values(), *columns.values()]), rows, columns)
    figure = draw_heat_maps(summary, {name: name for name in rows}, {name: score_name(name) for name in columns})
    return summary, figure


def correlations(table: DataFrame, rows: dict[str, str], columns: dict[str, str]) -> DataFrame:
    """Compute the rank correlation of each column in `rows` with each column in `columns`, for each dataset.

    `rows` and `columns` map names to columns of the table.
    """
    check_enough_runs(table, [*rows.values(), *columns.values()])
    lines = []
    for data, part in table.groupby("data", sort=False):
        for first, one in rows.items():
            for second, other in columns.items():
                runs = int((part[one].notna() & part[other].notna()).sum())
                rho = spearman(part[one], part[other])
                lines.append({"data": data, "first": first, "second": second, "correlation": rho, "runs": runs})
    return DataFrame(lines)


def draw_heat_maps(
    summary: DataFrame, rows: dict[str, str], columns: dict[str, str], title: str = "Rank correlation over runs"
) -> Figure:
    """Draw one heat map per dataset. `rows` and `columns` map names in the table to names in the figure."""
    names = list(summary["data"].unique())
    size = (0.42 * len(columns) + 1.0, 0.27 * len(rows) + 1.1)
    figure, grid = plots.panel_figure(len(names), size=size)
    for axes, data in zip(grid, names, strict=True):
        wide = summary[summary["data"] == data].pivot(index="first", columns="second", values="correlation")
        plots.draw_heat_map(axes, wide.loc[list(rows), list(columns)].rename(index=rows, columns=columns))
        plots.hide_inner_labels(axes)
        plots.set_labels(axes, data)
    figure.suptitle(title, size=plots.TITLE, weight="bold")
    return figure


def median_text(what: str, values: Series) -> str:
    """Return a sentence with the median of some correlations and a space, or no text if all of them are NaN."""
    known = values.dropna()
    return f"The median {what} is {plots.format_decimal(known.median())}. " if len(known) else ""


def strongest_pair(summary: DataFrame) -> str:
    """Describe the pair with the largest absolute median correlation over datasets."""
    groups = summary.dropna(subset=["correlation"]).groupby(["first", "second"], sort=False)["correlation"]
    if not len(groups):
        return "No pair has enough runs with different scores."
    middle = groups.median()
    first, second = middle.abs().idxmax()
    part = groups.get_group((first, second))
    pair = f"between {score_name(first)} and {score_name(second)}"
    if len(part) == 1:
        return f"The strongest correlation is {part.median():.2f}, {pair}."
    return (
        f"The strongest correlation is {pair}, with a median of {part.median():.2f} over {len(part)} datasets (from "
        f"{part.min():.2f} to {part.max():.2f})."
    )
