"""Training curves on a page: means over seeds, with standard deviations."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from unbraid.runs.run import Run

CURVE_POINTS = 80  # maximum number of points of a training curve
Log = dict[float, dict[str, Any]]
"""The logged rows of a run by step."""


def training_curves(runs: Sequence[Run], labels: dict[str, str]) -> list[dict[str, Any]]:
    """Return one curve for each group of runs that differ only in their seed, in the order of their first runs.

    Args:
        runs: The runs. Runs that logged fewer than two steps are left out.
        labels: The labels of the runs by id, as `runs_table.short_labels` returns them.

    Returns:
        One dictionary per curve with the `label` without the seed, the dataset (`data`), the number of `seeds`, the
        list `step`, and `terms`. For each logged term, `terms` has the list `mean` and, for several seeds, the list
        `deviation` of standard deviations.
    """
    groups: dict[tuple[str, str, str], list[Log]] = {}
    for run in runs:
        if len(run.log) > 1:
            key = re.sub(r" seed=\d+", "", labels[run.id]), run.spec.data, run.spec.settings_key()
            groups.setdefault(key, []).append({row["step"]: row for row in run.log})
    curves = [_curve(logs) for logs in groups.values()]
    heads = [{"label": label, "data": data, "seeds": len(logs)} for (label, data, _), logs in groups.items()]
    return [{**head, **curve} for head, curve in zip(heads, curves, strict=True) if len(curve["step"]) > 1]


def _curve(logs: Sequence[Log]) -> dict[str, Any]:
    """Return the means and standard deviations of all terms, at up to `CURVE_POINTS` steps that all runs logged."""
    common = sorted(set.intersection(*(set(log) for log in logs)))
    if not common:
        return {"step": [], "terms": {}}
    steps = [common[i] for i in np.unique(np.linspace(0, len(common) - 1, CURVE_POINTS).round().astype(int))]
    terms = dict.fromkeys(key for step in steps for key in logs[0][step] if key != "step")
    return {"step": steps, "terms": {term: _statistics(term, steps, logs) for term in terms}}


def _statistics(term: str, steps: Sequence[float], logs: Sequence[Log]) -> dict[str, list[float | None]]:
    """Return the mean of a term at each step and, for several runs, its standard deviation."""
    values = np.array([[_number(log[step].get(term)) for log in logs] for step in steps])
    result = {"mean": [_rounded(value) for value in values.mean(1)]}
    if len(logs) > 1:
        result["deviation"] = [_rounded(value) for value in values.std(1, ddof=1)]
    return result


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _rounded(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
