"""An artificial results table with published numbers, for examples and tests. Its runs were never trained."""

from __future__ import annotations

from typing import Any

import numpy as np
from pandas import DataFrame

from unbraid.errors import UserError, unknown_name_message
from unbraid.reproduction import demystifying as paper


def example_results(name: str = "demystifying2021", seeds: int = 10, shift: float = 0.0) -> DataFrame:
    """Return an artificial results table whose means and standard deviations over seeds are the published ones.

    Args:
        name: Name of the study. Only "demystifying2021" is available.
        seeds: Number of seeds per cell, at least 2.
        shift: A number that is added to all scores.

    Returns:
        A results table with one row per run.

    Raises:
        UserError: If the study is not available, or if there are fewer than 2 seeds.

    >>> table = example_results(seeds=4)
    >>> part = table[(table["method"] == "pcl") & (table["data"] == "dsprites")]
    >>> part["mig.discrete_mig"].agg(["mean", "std"]).round(3).tolist()
    [0.21, 0.03]
    """
    if name != "demystifying2021":
        raise UserError(unknown_name_message("study with an example table", name, ["demystifying2021"]))
    if seeds < 2:
        raise UserError(f"A standard deviation needs at least 2 seeds. Got {seeds} instead.")
    offsets = np.linspace(-1.0, 1.0, seeds)
    row_names = dict.fromkeys(cell.row for cell in paper.published_numbers())
    rows = {row: [example_run(row, seed) for seed in range(seeds)] for row in row_names}
    for cell in paper.published_numbers():
        assert cell.spread is not None
        scores = cell.value + shift + cell.spread * offsets / offsets.std(ddof=1)
        for run, score in zip(rows[cell.row], scores, strict=True):
            run[paper.COLUMNS[cell.column]] = float(score)
    return DataFrame([run for runs in rows.values() for run in runs])


def example_run(row: str, seed: int) -> dict[str, Any]:
    """Return the settings of one run for a row of the paper, without scores."""
    method, cell_data = row.split(", ")
    data, variant = cell_data.split()
    eps, factors = (0.1, 5) if data == "dsprites" else (0.175, 6)
    name = {"original": data, "modified": f"{data}?modified=default", "noise": f"{data}?noise={eps}"}[variant]
    run: dict[str, Any] = {"run": f"example-{method}-{name}-{seed}", "status": "done", "method": method, "data": name}
    run |= {"seed": seed, "level": 0, "strength": 0.0, "active.units": factors, "active.factors": factors}
    if method in paper.PRIMARY:
        setting, values = paper.PRIMARY[method]
        run["strength"] = run[f"setting.{setting}"] = values[paper.DATA.index(data)]
    return run
