"""Checks of all runs of a study before the first run is trained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.errors import UserError, warn_user
from unbraid.nets.registry import resolve_net
from unbraid.runs.spec import registry_name
from unbraid.studies.planned import PlannedRun, replace_spec, runs_by_dataset
from unbraid.studies.settings import StudySettings
from unbraid.studies.stacks import fields_from_data
from unbraid.training.schedule import group_by_stack_key
from unbraid.training.train import check_specs


def trainable_runs(planned: Sequence[PlannedRun], settings: StudySettings) -> list[PlannedRun]:
    """Return the runs that can be trained. For the others, print warnings that give the reasons.

    Raise a UserError if no run can be trained. Its message is the first reason that was found.
    """
    trainable: list[PlannedRun] = []
    reasons: dict[str, str] = {}
    for name, group in runs_by_dataset(planned):
        try:
            data = load_data(name, quiet=True)
        except (UserError, OSError) as error:
            reasons[name] = str(error)
            continue
        trainable += check_runs(group, data, settings, reasons)
    if not trainable:
        raise UserError(next(iter(reasons.values())))
    for what, reason in reasons.items():
        warn_user(f"left out: {what}: {reason}")
    return trainable


def check_runs(
    runs: Iterable[PlannedRun], data: FactorData, settings: StudySettings, reasons: dict[str, str]
) -> list[PlannedRun]:
    """Return the runs that can be trained on their dataset. Add the reasons for leaving out the others to `reasons`."""
    by_index = {run.index: run for run in runs}
    changed = [replace_spec(run, **fields_from_data(run, data, settings)) for run in by_index.values()]
    rejected: set[int] = set()
    for alike in group_by_stack_key(changed, lambda run: run.spec):
        specs = [run.spec for run in alike]
        try:
            check_specs(specs, data, resolve_net(specs[0].net)[1])
        except UserError as error:
            reasons.setdefault(f"{registry_name(type(specs[0].method))} on {data.name}", str(error))
            rejected |= {run.index for run in alike}
    return [run for index, run in by_index.items() if index not in rejected]
