"""The results table that every analysis reads, its checks, and small statistics of its columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pandas import DataFrame
from scipy.stats import rankdata

from unbraid.errors import UserError, unknown
from unbraid.metrics import TRAITS

Array = np.ndarray[Any, np.dtype[np.float64]]

KEYS = ("run", "data", "method", "strength", "level", "seed")
SETTING = ["method", "level"]
FEWEST = 10  # runs for a rank correlation: even with 10, chance alone goes beyond .6 once in twenty
PAPER = ("beta_vae", "factor_vae", "mig", "dci", "modularity", "sap")
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
    """What an analysis gives back: a table, a figure of it, and its main number in a sentence or two."""

    table: DataFrame
    figure: Figure
    text: str


def refuse(must: str, came: str, do: str) -> NoReturn:
    """Raise the one form of an error: what must hold, what came, what to do."""
    raise UserError(f"{must} Got {came} instead. {do}")


def headline(metric: str) -> str:
    """The column of the score that stands for a metric.

    >>> headline("mig")
    'mig.discrete_mig'
    """
    if metric not in TRAITS:
        raise UserError(unknown("metric", metric, TRAITS))
    return f"{metric}.{TRAITS[metric].headline}"


def sign(metric: str) -> float:
    """One where a high score is good, minus one where a low one is.

    >>> sign("mig"), sign("fairness")
    (1.0, -1.0)
    """
    return -1.0 if TRAITS[metric].low_is_good else 1.0


def score_columns(table: DataFrame, metrics: Sequence[str] | None = None, fewest: int = 1) -> dict[str, str]:
    """The column of every metric that was named, or of those of the paper's six that the table has."""
    columns = {name: headline(name) for name in (PAPER if metrics is None else metrics)}
    found = columns if metrics is not None else held(table, columns)
    if len(found) < fewest:
        came = ", ".join(found.values()) or "none of them"
        wanted = ", ".join(columns.values())
        refuse(f"At least {fewest} of these columns must hold scores: {wanted}.", came, "Score the runs with them.")
    return found


def held(table: DataFrame, columns: dict[str, str]) -> dict[str, str]:
    """Those of the columns that the table has, with at least one value."""
    return {name: column for name, column in columns.items() if column in table and table[column].notna().any()}


def checked(table: DataFrame, columns: Iterable[str] = (), *, seeds: int = 1, datasets: int = 1) -> DataFrame:
    """The keys and the given columns of a table that can be analysed; values that are not finite become NaN."""
    wanted = present(table, columns)
    _one_each(table)
    for name, least in (("seed", seeds), ("data", datasets)):
        values = table[name].unique().tolist()
        if len(values) < least:
            must = f"Runs must have at least {least} different values of '{name}' for this analysis."
            refuse(must, f"only {values}", f"Add runs with another {name}.")
    picked = table[wanted].reset_index(drop=True)
    scores = wanted[len(KEYS) :]
    picked[scores] = picked[scores].astype(float).replace([np.inf, -np.inf], np.nan)
    return picked


def present(table: DataFrame, columns: Iterable[str] = ()) -> list[str]:
    """The names of the keys and the given columns; a table without rows, or without one of them, is refused."""
    wanted = [*KEYS, *dict.fromkeys(columns)]
    missing = [name for name in wanted if name not in table]
    if missing:
        do = "Make the table from scored runs, or leave out what needs these columns."
        refuse(f"The results table must have the columns {', '.join(wanted)}.", f"no {', '.join(missing)}", do)
    if not len(table):
        refuse("The results table must have a row a run.", "no rows", "Train and score some runs.")
    return wanted


def _one_each(table: DataFrame) -> None:
    """Refuse a run that comes twice, and a level that stands for two strengths."""
    twice = table[table.duplicated(["data", *SETTING, "seed"])]
    if len(twice):
        row = twice.iloc[0]
        came = f"two of {row['method']}, level {row['level']}, seed {row['seed']} on {row['data']}"
        refuse("There must be one run a dataset, setting and seed.", came, "Filter the table, by 'steps' for example.")
    strengths = table.groupby(SETTING)["strength"].nunique()
    if (strengths > 1).any():
        method, level = strengths.index[(strengths > 1).to_numpy().argmax()]
        came = f"{strengths.max()} at level {level} of {method}"
        refuse("A level of a method must stand for one strength.", came, "Number the levels by strength.")


def enough(table: DataFrame, columns: Iterable[str], fewest: int = FEWEST) -> None:
    """Refuse a table without a dataset of enough runs, or without a score that differs between runs of a dataset."""
    groups = table.groupby("data", sort=False)
    most = int(groups.size().max())
    if most < fewest:
        refuse(f"Some dataset must have at least {fewest} runs.", f"at most {most}", "Train more runs.")
    if not (groups[list(dict.fromkeys(columns))].nunique() > 1).any(axis=None):
        came = "the same value for all runs of every dataset"
        refuse(
            "Some score must differ between runs of a dataset.", came, "Check that the runs were trained and differ."
        )


def spearman(first: Any, second: Any, fewest: int = FEWEST) -> float:
    """Rank correlation over the pairs without NaN; NaN if there are too few or if one side is constant.

    >>> spearman([1, 2, 3, 4], [10, 30, 20, 40], fewest=3)
    0.8
    """
    a, b = np.asarray(first, float), np.asarray(second, float)
    both = np.isfinite(a) & np.isfinite(b)
    if both.sum() < max(fewest, 2) or np.ptp(a[both]) == 0 or np.ptp(b[both]) == 0:
        return float("nan")
    x, y = (rank - rank.mean() for rank in (rankdata(a[both]), rankdata(b[both])))
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def quartiles(table: DataFrame, column: str, by: Sequence[str]) -> DataFrame:
    """Number of runs, lower quartile, median and upper quartile of a column in every group."""
    groups = table.dropna(subset=[column]).groupby(list(by), sort=False)[column]
    found = groups.quantile([0.25, 0.5, 0.75]).unstack()
    found.columns = pd.Index(["low", "median", "high"])
    found.insert(0, "runs", groups.size())
    return found.reset_index()


def score_name(metric: str) -> str:
    """A metric's name for a figure."""
    return SCORE_NAMES.get(metric, metric)
