"""The table of runs on a report page: scores, ranking and labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError, unknown_name_message
from unbraid.metrics import METRICS, TRAITS, headline
from unbraid.reporting.bounds_table import run_protocols
from unbraid.runs.folder import RunFolder
from unbraid.runs.labels import differing
from unbraid.runs.results import latest_scores
from unbraid.runs.run import Run
from unbraid.runs.scores import Record, read_scores
from unbraid.scoring.run_scorer import ExampleTable
from unbraid.scoring.score import score

REPORT_METRICS = ("mig", "dci", "factor_vae", "sap", "modularity", "unsupervised")
Scores = dict[str, dict[str, float]]
"""Scores by the id of the run and the name of the score, such as ``scores[run.id]["mig.discrete_mig"]``."""


def read_and_compute_scores(
    runs: Sequence[Run], datasets: dict[str, FactorData], metrics: list[str], scoring: bool, quiet: bool
) -> tuple[Scores, list[str]]:
    """Read all stored scores of runs and, if `scoring` is True, compute the missing scores of `metrics`.

    Returns:
        The scores, and a sentence for each metric that cannot be computed for a dataset.
    """
    for name in metrics:
        if name not in METRICS:
            raise UserError(unknown_name_message("metric", name, METRICS))
    scores: Scores = {}
    notes = []
    for name, data in datasets.items():
        group = [run for run in runs if run.spec.data == name]
        wanted = metrics if data.names else [metric for metric in metrics if metric == "unsupervised"]
        if scoring and group and wanted:
            rows, errors = _compute_scores(group, wanted, quiet)
            notes += [f"{metric} has no score on {name}: {reason}" for metric, reason in errors.items()]
            scores |= {row["run"]: {key: value for key, value in row.items() if "." in key} for row in rows}
        stored, others = read_stored_scores(group, data)
        scores |= {run.id: {**stored[run.id], **scores.get(run.id, {})} for run in group}
        if missing := [metric for metric in others if not any(headline(metric) in scores[run.id] for run in group)]:
            notes.append(
                f"Some stored scores on {name} are not shown, because they were computed with other data or samples "
                f"than the protocol of the run prescribes: {', '.join(missing)}."
            )
    return scores, notes


def read_stored_scores(runs: Sequence[Run], data: FactorData) -> tuple[Scores, list[str]]:
    """Read the stored scores of runs on one dataset. Select those that follow the protocol of their run.

    Returns:
        The scores that follow the protocol, and the names of metrics with stored scores that do not follow it, because
        they were computed with other data or samples.
    """
    protocols = run_protocols(runs)
    tables = {protocol: len(ExampleTable.of(data, protocol).index) for protocol in dict.fromkeys(protocols.values())}
    scores: Scores = {run.id: {} for run in runs}
    others: dict[str, None] = {}
    for run in runs:
        if run.path is None:
            continue
        protocol = protocols[run.id]
        sample = {"rows": protocol.sizes(tables[protocol]), "draws": protocol.draws, "seed": protocol.seed}
        sample["data"] = data.name
        scores[run.id] = latest_scores(RunFolder(run.path, run.spec), partial(_has_sample, sample))
        others |= {record["metric"]: None for record in read_scores(run.path) if not _has_sample(sample, record)}
    return scores, [metric for metric in others if metric in METRICS]


def _has_sample(sample: Mapping[str, Any], record: Record) -> bool:
    """Return whether a score was computed with these rows, draws, seed and data. Ignore keys that the record lacks."""
    return all(record[key] == value for key, value in sample.items() if record.get(key) is not None)


def _compute_scores(
    runs: Sequence[Run], metrics: list[str], quiet: bool
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return one row per run with all metrics that can be computed, and the error messages of the other metrics."""
    try:
        return _score_rows(runs, metrics, quiet), {}
    except UserError:
        errors = {}
    for metric in metrics:
        try:
            _score_rows(runs, [metric], quiet)
        except UserError as error:
            errors[metric] = str(error)
    possible = [metric for metric in metrics if metric not in errors]
    return (_score_rows(runs, possible, quiet) if possible else []), errors


def _score_rows(runs: Sequence[Run], metrics: list[str], quiet: bool) -> list[dict[str, Any]]:
    """Return one row per run with its scores. They are computed from the first kind of codes that its method lists."""
    kinds = dict.fromkeys(run.spec.method.code_kinds[0] for run in runs)
    groups = {kind: [run for run in runs if run.spec.method.code_kinds[0] == kind] for kind in kinds}
    return [row for kind, group in groups.items() for row in score(group, metrics, codes=[kind], quiet=quiet)]


def metrics_with_scores(scores: Scores) -> list[str]:
    """Return the metrics that any run has a score for: first `REPORT_METRICS`, then the others in registry order."""
    order = [*REPORT_METRICS, *(name for name in METRICS if name not in REPORT_METRICS)]
    return [name for name in order if any(headline(name) in own for own in scores.values())]


def rank_runs(runs: Sequence[Run], scores: Scores, metric: str | None) -> list[Run]:
    """Sort runs by a metric, best first. Runs without a score come last, in their given order."""
    if metric is None:
        return list(runs)
    if metric not in METRICS:
        raise UserError(unknown_name_message("metric", metric, METRICS))
    sign = 1.0 if TRAITS[metric].low_is_good else -1.0

    def sort_key(run: Run) -> tuple[bool, float]:
        value = scores.get(run.id, {}).get(headline(metric), math.nan)
        return not math.isfinite(value), sign * value if math.isfinite(value) else 0.0

    return sorted(runs, key=sort_key)


def best_of_each_dataset(ranked: Sequence[Run]) -> list[Run]:
    """Reorder ranked runs: the best run of every dataset, then the second best of every dataset, and so on."""
    counts: dict[str, int] = {}
    positions = []
    for run in ranked:
        counts[run.spec.data] = counts.get(run.spec.data, -1) + 1
        positions.append((counts[run.spec.data], run))
    return [run for _, run in sorted(positions, key=lambda pair: pair[0])]


def metric_column(metric: str) -> dict[str, Any]:
    """Describe the column of a metric: its key, title, help text, and whether lower scores are better."""
    return {
        "name": metric,
        "column": headline(metric),
        "title": {"unsupervised": "total correlation"}.get(metric, metric.replace("_", " ")),
        "help": (METRICS[metric].__doc__ or "").strip().splitlines()[0],
        "low": TRAITS[metric].low_is_good,
    }


def short_labels(runs: Sequence[Run]) -> dict[str, str]:
    """Return a label for each run by id: the method, and the settings that distinguish it from other runs.

    The hyperparameter that studies vary, such as beta, comes first. It is left out if the method has several
    runs and all of them have the same value.
    """
    settings = {run.id: run.spec.flat(complete=True) for run in runs}
    strengths = {run.spec.flat()["method"]: run.spec.method.swept_field() for run in runs}
    labels = {}
    for method in dict.fromkeys(own["method"] for own in settings.values()):
        members = {run: own for run, own in settings.items() if own["method"] == method}
        rows, strength = list(members.values()), strengths[method]
        shown = strength if strength and (len(rows) == 1 or differing(rows, [strength])) else None
        keys = _distinguishing_settings(rows, shown)
        for run, own in members.items():
            known = {key: own[key] for key in keys if own.get(key) is not None}
            texts = [
                f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in known.items()
            ]
            labels[run] = " ".join(["untrained" if own.get("steps") == 0 else method, *texts])
    return labels


def _distinguishing_settings(rows: Sequence[dict[str, Any]], strength: str | None) -> list[str]:
    """Return the names of the settings that are needed to distinguish runs on the same data.

    The hyperparameter `strength` comes first, unless it is None. Each further setting is added if it differs between
    runs that agree in the data and in all settings that were added before. The seed is considered after the other
    settings, so that runs whose labels differ only in the seed have equal settings.
    """
    chosen = [strength] if strength is not None else []
    keys = dict.fromkeys(key for row in rows for key in row)
    for key in sorted(keys, key=("seed", "model").__contains__):
        groups: dict[str, set[str]] = {}
        for row in rows:
            groups.setdefault(str([row["data"], *(row.get(k) for k in chosen)]), set()).add(str(row.get(key)))
        if any(len(values) > 1 for values in groups.values()):
            chosen.append(key)
    return chosen


def run_row(run: Run, scores: dict[str, float], label: str, protocol: int = 0) -> dict[str, Any]:
    """Return the row of a run in the table. `protocol` is the number of its protocol on the page."""
    settings = {key: value for key, value in run.spec.flat().items() if value is not None}
    finite = {key: value for key, value in scores.items() if isinstance(value, int | float) and math.isfinite(value)}
    return {
        "id": run.id,
        "label": label,
        "method": settings.pop("method"),
        "settings": settings,
        "data": run.spec.data,
        "latents": run.spec.latents,
        "protocol": protocol,
        "scores": {key: finite[key] for key in map(headline, METRICS) if key in finite},
    }
