"""Checks of the results table that analyses read, and statistics of its columns."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame, Series
from scipy.stats import rankdata

from unbraid.errors import UserError
from unbraid.metrics import TRAITS, headline
from unbraid.runtime.embedding import image_tag

Array = np.ndarray[Any, np.dtype[np.float64]]

KEYS = ("run", "data", "method", "strength", "level", "seed")
# Columns that identify a setting on one dataset. The same level may have different strengths on different datasets.
SETTING = ["method", "level"]
# Minimum number of runs for a rank correlation. With 10 runs, 1 in 15 correlations of unrelated scores exceeds 0.6 in
# absolute value.
MIN_RUNS = 10
PAPER_METRICS = ("beta_vae", "factor_vae", "mig", "dci", "modularity", "sap")
SCORE_NAMES = {
    "beta_vae": "BetaVAE score",
    "factor_vae": "FactorVAE score",
    "mig": "MIG",
    "dci": "DCI",
    "modularity": "Modularity",
    "sap": "SAP",
    "explicitness": "Explicitness",
    "irs": "IRS",
    "mcc": "MCC",
}


class Result(NamedTuple):
    """The result of an analysis.

    Attributes:
        table: The numbers.
        figure: A figure of the numbers.
        text: The main result in one or two sentences.
    """

    table: DataFrame
    figure: Figure
    text: str

    def picture(self) -> bytes:
        """Return the figure as a PNG file."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.text)}</p>{image_tag(self.picture(), self.text)}"


def reject(requirement: str, got: str, remedy: str) -> NoReturn:
    """Raise a UserError that says what must hold, what was given, and what to do."""
    raise UserError(f"{requirement} Got {got} instead. {remedy}")


def sign(metric: str) -> float:
    """Return 1 if high scores of a metric are good, or -1 if low scores are good.

    >>> sign("mig"), sign("fairness")
    (1.0, -1.0)
    """
    return -1.0 if TRAITS[metric].low_is_good else 1.0


def score_columns(table: DataFrame, metrics: Sequence[str] | None = None, minimum: int = 1) -> dict[str, str]:
    """Return the headline column of each metric.

    By default, use all of the six metrics of Locatello et al. (2019) that are in the table. Raise a UserError if fewer
    than `minimum` metrics remain.
    """
    columns = {name: headline(name) for name in (PAPER_METRICS if metrics is None else metrics)}
    available = columns if metrics is not None else columns_with_values(table, columns)
    if len(available) < minimum:
        got = ", ".join(available.values()) or "none of them"
        wanted = ", ".join(columns.values())
        remedy = "Score the runs with these metrics."
        reject(f"At least {minimum} of these columns must have values: {wanted}.", got, remedy)
    return available


def columns_with_values(table: DataFrame, columns: dict[str, str]) -> dict[str, str]:
    """Return the entries of `columns` whose column is in the table and has at least one value."""
    return {name: column for name, column in columns.items() if column in table and table[column].notna().any()}


def scored_rows(
    table: DataFrame, metrics: Sequence[str] | None, minimum: int = 2, datasets: int = 1
) -> tuple[DataFrame, dict[str, str]]:
    """Return the rows of a table (see `check_table`) and the columns of its scores (see `score_columns`).

    Raise a UserError if the table has fewer than 2 seeds or fewer datasets than `datasets`, or for the reasons given in
    `check_enough_runs`.
    """
    columns = score_columns(table, metrics)
    rows = check_table(table, columns.values(), seeds=2, datasets=datasets)
    check_enough_runs(rows, columns.values(), minimum)
    return rows, columns


def check_table(table: DataFrame, columns: Iterable[str] = (), *, seeds: int = 1, datasets: int = 1) -> DataFrame:
    """Check a table and return the columns of `KEYS` and the given columns, with NaN in place of infinite values.

    The given columns are also NaN for runs that diverged or are not finished, which may have logged terms of training.
    Variants become methods of their own (see `name_variants`). Raise a UserError if columns are missing, a key has
    missing values, a run occurs twice, or there are fewer seeds than `seeds` or fewer datasets than `datasets`.
    """
    wanted = check_columns(table, columns)
    table = name_variants(table)
    for name in KEYS:
        if table[name].isna().any():
            remedy = "Fill in the missing values, or create the table with: unbraid index FOLDER"
            reject(f"Every run must have a value of '{name}'.", f"{int(table[name].isna().sum())} without one", remedy)
    _check_unique(table)
    for name, minimum in (("seed", seeds), ("data", datasets)):
        values = table[name].unique().tolist()
        if len(values) < minimum:
            requirement = f"Runs must have at least {minimum} different values of '{name}' for this analysis."
            reject(requirement, f"only {values}", f"Add runs with another {name}.")
    rows = table[wanted].reset_index(drop=True)
    scores = wanted[len(KEYS) :]
    rows[scores] = rows[scores].astype(float).replace([np.inf, -np.inf], np.nan)
    if "status" in table:
        rows.loc[table["status"].isin(["new", "partial", "diverged"]).to_numpy(), scores] = np.nan
    return rows


def name_variants(table: DataFrame) -> DataFrame:
    """Append the variant of each run to its method, as in "pmp (without sparsity)", and remove the column `variant`.

    Runs of different variants are then never pooled, and never taken for different strengths of one method.
    """
    if "variant" not in table:
        return table
    variant = table["variant"].fillna("").astype(str)
    named = table["method"].where(variant == "", table["method"].astype(str) + " (" + variant + ")")
    return table.assign(method=named).drop(columns="variant")


def base_methods(methods: Series) -> Series:
    """Return the methods without the names of variants that `name_variants` appended."""
    return methods.map(lambda name: str(name).partition(" (")[0])


def check_columns(table: DataFrame, columns: Iterable[str] = ()) -> list[str]:
    """Return the names of the columns of `KEYS` and of the given columns.

    Raise a UserError if one of them is missing, or if the table has no rows.
    """
    wanted = [*KEYS, *dict.fromkeys(columns)]
    missing = [name for name in wanted if name not in table]
    if missing:
        remedy = "Create the table from scored runs, or leave out the metrics that are missing."
        reject(f"The results table must have the columns {', '.join(wanted)}.", f"no {', '.join(missing)}", remedy)
    if not len(table):
        reject("The results table must have one row per run.", "no rows", "Train and score some runs.")
    return wanted


def _check_unique(table: DataFrame) -> None:
    """Raise a UserError if a run occurs twice, or a level of a method has two strengths on one dataset."""
    twice = table[table.duplicated(["data", *SETTING, "seed"])]
    if len(twice):
        row = twice.iloc[0]
        got = f"two of {row['method']}, level {row['level']}, seed {row['seed']} on {row['data']}"
        remedy = "Filter the table, for example by 'steps', or give the variants names in the column 'variant'."
        reject("There must be one run per dataset, setting and seed.", got, remedy)
    for data, part in table.groupby("data", sort=False):
        check_strengths(part, str(data))


def check_strengths(rows: DataFrame, data: str) -> None:
    """Raise a UserError if a level of a method has two strengths in the rows of one dataset."""
    strengths = rows.groupby(SETTING)["strength"].nunique()
    if (strengths > 1).any():
        method, level = strengths.index[(strengths > 1).to_numpy().argmax()]
        got = f"{strengths.max()} at level {level} of {method} on {data}"
        reject("A level of a method must have one strength on a dataset.", got, "Number the levels by strength.")


def check_enough_runs(table: DataFrame, columns: Iterable[str], minimum: int = MIN_RUNS) -> None:
    """Raise a UserError if no dataset has at least `minimum` runs, or if no dataset has scores that differ."""
    groups = table.groupby("data", sort=False)
    most = int(groups.size().max())
    if most < minimum:
        reject(f"At least one dataset must have at least {minimum} runs.", f"at most {most}", "Train more runs.")
    if not (groups[list(dict.fromkeys(columns))].nunique() > 1).any(axis=None):
        got = "the same values for all runs of each dataset"
        remedy = "Check that the runs were trained with different settings or seeds."
        reject("Scores must differ between the runs of at least one dataset.", got, remedy)


def spearman(first: Any, second: Any, minimum: int = MIN_RUNS) -> float:
    """Return Spearman's rank correlation over the pairs in which both values are finite.

    It is NaN if there are fewer than `minimum` such pairs, or if one of the variables is constant.

    >>> spearman([1, 2, 3, 4], [10, 30, 20, 40], minimum=3)
    0.8
    """
    a, b = np.asarray(first, float), np.asarray(second, float)
    both = np.isfinite(a) & np.isfinite(b)
    if both.sum() < max(minimum, 2) or np.ptp(a[both]) == 0 or np.ptp(b[both]) == 0:
        return float("nan")
    x, y = (rank - rank.mean() for rank in (rankdata(a[both]), rankdata(b[both])))
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def quartiles(table: DataFrame, column: str, by: Sequence[str]) -> DataFrame:
    """Return one row per group: the number of `runs`, and the `low` quartile, `median` and `high` quartile.

    Groups without values are left out.
    """
    groups = table.dropna(subset=[column]).groupby(list(by), sort=False)[column]
    summary = groups.quantile([0.25, 0.5, 0.75]).unstack().reindex(columns=[0.25, 0.5, 0.75])
    summary.columns = pd.Index(["low", "median", "high"])
    summary.insert(0, "runs", groups.size())
    return summary.reset_index()


def count_best(summary: DataFrame, metric: str, what: str) -> tuple[Series, int]:
    """Count how often each value of a column has the best median, alone or tied, over datasets and metrics.

    Args:
        summary: A table with the columns `data`, `median` and the following two.
        metric: The column with the names of metrics.
        what: The column whose values are counted.

    Returns:
        The counts by value, largest first, and the number of combinations of a dataset and a metric.
    """
    good = summary["median"] * summary[metric].map(sign)
    groups = [summary["data"], summary[metric]]
    best = summary[good == good.groupby(groups).transform("max")].drop_duplicates(["data", metric, what])
    return best[what].value_counts(), len(summary.drop_duplicates(["data", metric]))


def score_name(metric: str) -> str:
    """Return the name of a metric for figures and texts."""
    return SCORE_NAMES.get(metric, metric)
