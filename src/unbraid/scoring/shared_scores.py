"""Choose which stored scores of runs are compared, if runs have scores that were computed in several ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unbraid.runs.only import Only
from unbraid.runs.scores import Record, find_score
from unbraid.scoring.sides import ScoredRun, Side

MAY_DIFFER = ("values", "codes", "data", "source")  # fields of a record that may differ between comparable scores
RecordKeys = Mapping[str, Mapping[str, Record]]  # the key of the record of each metric, by the id of the run


def scoring_settings(record: Record) -> dict[str, Any]:
    """Return how a score was computed: the fields of its record that must be equal for scores to be comparable."""
    return {name: value for name, value in record.items() if name not in MAY_DIFFER}


def score_folders(
    places: Sequence[Sequence[Path]], metrics: Sequence[str] | None, quiet: bool, trust: bool, only: Only
) -> RecordKeys:
    """Score all runs that did not diverge, for all sides together. Existing scores are not computed again.

    Return the keys of the scores.
    """
    from unbraid.runs.results_update import updated_results
    from unbraid.runs.run import load_runs
    from unbraid.scoring.score import scorable_runs, score_runs

    runs = [run for paths in places for run in load_runs(paths, trust=trust, only=only) if run.divergence is None]
    if not runs:
        return {}
    with updated_results(runs):
        return score_runs(scorable_runs(runs, None, trust), metrics, quiet=quiet).record_keys


def use_keys(sides: Sequence[Side], keys: RecordKeys) -> list[Side]:
    """Return sides in which each run has the scores with the given keys. Other scores of the run do not change."""

    def chosen(entry: ScoredRun) -> ScoredRun:
        wanted = keys.get(entry.run.spec.id, {})
        found = {metric: record for metric, key in wanted.items() if (record := find_score(entry.stored, key))}
        return replace(entry, records={**entry.records, **found})

    return [replace(side, runs=[chosen(entry) for entry in side.runs]) for side in sides]


def use_shared_settings(sides: Sequence[Side]) -> tuple[list[Side], list[str]]:
    """Return sides with comparable scores where possible, and the metrics whose latest scores are not used.

    If the latest scores of a metric were computed in different ways, but all runs with a score of this metric have one
    that was computed in the same way, this score is used. If there are several such ways, the last one of the first
    run is used.
    """
    runs = [entry for side in sides for entry in side.runs]
    chosen: dict[str, dict[str, Any]] = {}
    for metric in dict.fromkeys(name for entry in runs for name in entry.records):
        scored = [entry for entry in runs if metric in entry.records]
        latest = [scoring_settings(entry.records[metric]) for entry in scored]
        if any(other != latest[0] for other in latest[1:]):
            ways = [[scoring_settings(r) for r in entry.stored if r["metric"] == metric] for entry in scored]
            shared = [way for way in ways[0] if all(way in others for others in ways[1:])]
            chosen |= {metric: shared[-1]} if shared else {}

    def with_chosen(entry: ScoredRun) -> ScoredRun:
        records = {r["metric"]: r for r in entry.stored if scoring_settings(r) == chosen.get(r["metric"])}
        return replace(entry, records={**entry.records, **records})

    return [replace(side, runs=[with_chosen(entry) for entry in side.runs]) for side in sides], list(chosen)
