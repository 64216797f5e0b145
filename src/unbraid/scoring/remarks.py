"""Remarks about a comparison: missing scores, and other limits of what can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from unbraid.metrics.protocol import differences
from unbraid.runs.same_model import model_identity
from unbraid.scoring.differences import MIN_SEEDS
from unbraid.scoring.shared_scores import scoring_settings
from unbraid.scoring.sides import Side


def scoring_differences(sides: Sequence[Side], metric: str) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which the records of a metric differ, such as the estimator, sample sizes or versions.

    A record is a stored score with the settings of its computation. Every record is compared with the first one. The
    result has the fields in which the first record and the next one that differs from it disagree, with both values. It
    is empty if all records agree.
    """
    records = [entry.records[metric] for side in sides for entry in side.runs if metric in entry.records]
    methods = [scoring_settings(record) for record in records]
    return next((fields for other in methods[1:] if (fields := differences(methods[0], other))), {})


def shared_remarks(sides: Sequence[Side]) -> list[str]:
    """Return a remark about each pair of sides that have some models in common."""
    models = {side.name: {model_identity(entry.run.spec) for entry in side.runs} for side in sides}
    return [
        f"{len(common)} run(s) are in both {a} and {b}, so the two are not independent."
        for a, b in combinations(models, 2)
        if (common := models[a] & models[b])
    ]


def seed_remarks(sides: Sequence[Side]) -> list[str]:
    """Return a remark about sides that have too few seeds for a test."""
    few = ", ".join(f"{side.name} has {n}" for side in sides if (n := len(side.seeds())) < MIN_SEEDS)
    return [f"A test needs scores of at least {MIN_SEEDS} seeds per side, but {few}."] if few else []


def side_remarks(sides: Sequence[Side], metrics: Sequence[str]) -> list[str]:
    """Return remarks about runs that are left out, missing scores, and settings or data that differ."""
    remarks = []
    for side in sides:
        if side.diverged or side.unfinished:
            remarks.append(
                f"Runs of {side.name} that are left out: {side.diverged} diverged, {side.unfinished} unfinished."
            )
        if side.copies:
            remarks.append(
                f"{side.copies} run(s) of {side.name} are left out, because another run has the same model with the "
                "same weights. A model counts once, even if it was adopted under several names or seeds."
            )
        unscored = len(side.runs) - len(side.scored_runs())
        partly = [m for m in metrics if any(entry.value(m) is None for entry in side.scored_runs())]
        if unscored or partly:
            missing = [f"{unscored} of {len(side.runs)} run(s) have no scores"] * bool(unscored)
            missing += [f"some runs have no score for {', '.join(partly)}"] * bool(partly)
            remarks.append(f"In {side.name}, {' and '.join(missing)}. Compute them with: unbraid score {side.folder}")
        if len({entry.run.spec.settings_key() for entry in side.runs}) > 1:
            remarks.append(
                f"{side.name} has runs with different settings, so its standard deviation is not only over seeds."
            )
    data = dict.fromkeys(entry.settings["data"] for side in sides for entry in side.runs)
    if len(data) > 1:
        remarks.append(f"The datasets differ ({', '.join(data)}). Scores on different datasets are hardly comparable.")
    return remarks


def scoring_remarks(incomparable: Mapping[str, Mapping[str, tuple[Any, Any]]]) -> list[str]:
    """Return a remark about metrics whose scores were computed in different ways."""
    if not incomparable:
        return []
    fields = ", ".join(dict.fromkeys(field for differing in incomparable.values() for field in differing))
    reason = f"their scores were computed with different settings ({fields})"
    remedy = "Compute the missing scores with: unbraid compare --score"
    return [f"These metrics were not tested, because {reason}: {', '.join(incomparable)}. {remedy}"]


def shared_settings_remarks(metrics: Sequence[str]) -> list[str]:
    """Return a remark about metrics whose latest scores were not used, because they are not comparable."""
    if not metrics:
        return []
    return [
        f"Some runs have later scores of {', '.join(metrics)} with other settings, such as other samples. They are "
        "ignored, and scores with the settings that all runs have in common are compared."
    ]


def source_remarks(sides: Sequence[Side], metrics: Sequence[str]) -> list[str]:
    """Return a remark about each dataset whose examples or labels differ between scores, although its name is equal."""
    records = [
        record for side in sides for entry in side.runs for name, record in entry.records.items() if name in metrics
    ]
    sources: dict[str, set[str]] = {}
    for record in records:
        if record.get("data") is not None and record.get("source") is not None:
            sources.setdefault(record["data"], set()).add(record["source"])
    return [
        f"The scores on {data} were computed from {len(found)} datasets of this name with different examples or "
        "labels, so they are hardly comparable. If the data have changed, score all runs again."
        for data, found in sources.items()
        if len(found) > 1
    ]
