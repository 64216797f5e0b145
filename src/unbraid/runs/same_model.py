"""Runs that are the same model: one model from outside unbraid that was adopted several times.

Such runs have different ids, because they have different names, seeds or settings, but the same weights. They are not
independent models: their scores are equal, and they agree perfectly with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from unbraid.runs.adopted_spec import AdoptedSpec
from unbraid.runs.folder import RunFolder
from unbraid.runs.labels import run_labels
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec

R = TypeVar("R", bound=Run | RunFolder)


def model_identity(spec: RunSpec) -> tuple[str, str]:
    """Return what identifies a model, and the name of its data. Both are equal for runs that are the same model.

    An adopted model is identified by its digest, and a run that was trained by unbraid by its id.
    """
    return spec.model if isinstance(spec, AdoptedSpec) else spec.id, spec.data


def group_same_models(runs: Iterable[R]) -> list[list[R]]:
    """Group runs that are the same model. The groups are in the order of their first runs.

    A run that was trained by unbraid is always a group of its own, because two runs in memory may have the same spec
    but different weights.
    """
    groups: dict[object, list[R]] = {}
    for i, run in enumerate(runs):
        key = model_identity(run.spec) if isinstance(run.spec, AdoptedSpec) else i
        groups.setdefault(key, []).append(run)
    return list(groups.values())


def same_model_notes(runs: Sequence[Run | RunFolder]) -> list[str]:
    """Return one sentence for each group of two or more runs that are the same model."""
    labels = run_labels([run.spec for run in runs])
    named = [
        [f"{labels[run.spec.id]} ({run.spec.id})" for run in group]
        for group in group_same_models(runs)
        if len(group) > 1
    ]
    return [f"{', '.join(names[:-1])} and {names[-1]} are the same model with the same weights." for names in named]
