"""The scores of a method after trainings of the length of published studies, from evidence/results.csv."""

from __future__ import annotations

from typing import Any

import pandas as pd
from pandas import DataFrame, Series

from generate.evidence import collected_runs, plan
from generate.markdown import table
from unbraid.methods import METHODS

COLUMNS = {
    "mig.discrete_mig": "[MIG](../metrics/mig.md)",
    "dci.disentanglement": "[DCI](../metrics/dci.md)",
    "factor_vae.eval_accuracy": "[FactorVAE score](../metrics/factor_vae.md)",
    "sap.SAP_score": "[SAP](../metrics/sap.md)",
    "infomec.InfoM": "[InfoM](../metrics/infomec.md)",
}
GROUPS = ["data", "part", "latents", "steps"]  # runs of one row of the table also have equal settings of the method
DRAWS = "../guides/scores_results.md#which-draws-the-tables-of-this-documentation-use"


def full_length_section(name: str) -> str:
    """Return the section of the page of a method, or "" if it has no finished run of the length of its study."""
    runs = collected_runs()
    compared = runs["part"].map({part.name: part.compare for part in plan().values()})
    runs = runs[(runs["method"] == name) & compared].dropna(axis=1, how="all")
    if runs.empty:
        return ""
    shown = {column: title for column, title in COLUMNS.items() if column in runs}
    body = []
    for key, members in runs.groupby([*GROUPS, runs.apply(settings, axis=1, method=name)], sort=False):
        data, part, latents, steps, changed = key
        scores = [mean_and_deviation(members[column]) for column in shown]
        study = plan()[part].paper.partition(",")[0]
        body.append([study, f"`{data}`", changed, str(latents), f"{steps:,}", str(len(members)), *scores])
    devices = ", ".join(sorted(set(runs["device"])))
    text = (
        "The runs have the settings and steps of published studies. The column *settings* has the hyperparameters "
        "that do not have their default values. Scores are means and standard deviations over seeds, on one "
        f"{devices}, with [reference draws]({DRAWS}). "
        "[Does it reproduce?](../guides/reproduction_results.md) compares them with published numbers."
    )
    heads = ["study", "data", "settings", "latents", "steps", "runs", *shown.values()]
    return f"## After long training\n\n{text}\n\n{table(heads, body)}"


def settings(run: Series, method: str) -> str:
    """Return the hyperparameters of a run that do not have their default values."""
    changed = []
    for field, default in vars(METHODS[method]()).items():
        value: Any = run.get(f"setting.{field}")
        if value is not None and not pd.isna(value) and not equal(value, default):
            changed.append(f"{field} {value:.4g}" if isinstance(value, float) else f"{field} {value}")
    return ", ".join(changed)


def equal(value: Any, default: Any) -> bool:
    """Return whether a value of the table equals a default. The table has numbers, also where a default is a bool."""
    if isinstance(default, bool | int | float) and not isinstance(value, str):
        return float(value) == float(default)
    return str(value) == str(default)


def mean_and_deviation(values: Series) -> str:
    """Return the mean and the standard deviation of the finite values, or "-" if there are none.

    Spaces are not broken, so that a cell has one line.

    >>> mean_and_deviation(Series([0.1, 0.3, None]))
    '0.20&nbsp;±&nbsp;0.14'
    """
    found = DataFrame({"value": values}).dropna()["value"]
    if found.empty:
        return "-"
    return f"{found.mean():.2f}" + (f"&nbsp;±&nbsp;{found.std():.2f}" if len(found) > 1 else "")
