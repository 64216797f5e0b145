"""The stacks of a study. A stack is a set of runs that are trained together by one process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.nets.registry import resolve_net
from unbraid.nets.vae import PairBuilder
from unbraid.runtime.files import make_folder
from unbraid.runtime.locks import try_lock
from unbraid.studies.planned import PlannedRun, replace_spec, runs_by_dataset
from unbraid.studies.settings import StudySettings
from unbraid.training.schedule import group_small_stacks, plan_new_stacks
from unbraid.training.train import RunDefaults

IMAGE_NETS = ("locatello", "burgess", "fumero")  # networks of studies that are replaced if the data are vectors


@dataclass
class StudyStack:
    """Runs of a study that one process trains together, with their dataset and the builder of their network.

    After `merge_small_stacks`, the runs may belong to several small stacks.
    """

    runs: list[PlannedRun]
    data: FactorData
    builder: PairBuilder

    @property
    def name(self) -> str:
        """A name that depends only on the ids of the runs, so it is the same in every process."""
        return hashlib.sha256(" ".join(run.spec.id for run in self.runs).encode()).hexdigest()[:16]


def study_stacks(planned: Sequence[PlannedRun], settings: StudySettings) -> Iterator[StudyStack]:
    """Yield the stacks of a study, ordered by dataset. `train` would form the same stacks from these runs."""
    for name, group in runs_by_dataset(planned):
        data = load_data(name, settings.device)
        runs = [replace_spec(run, **fields_from_data(run, data, settings)) for run in group]
        for net in dict.fromkeys(run.spec.net for run in runs):
            builder = resolve_net(net)[1]
            same_net = [run for run in runs if run.spec.net == net]
            for part in plan_new_stacks(same_net, lambda run: run.spec, data, builder):
                yield StudyStack(part, data, builder)


def study_tasks(planned: Sequence[PlannedRun], settings: StudySettings) -> Iterator[StudyStack]:
    """Yield the tasks of a study. One process claims and trains a task: a stack, or on a GPU several small stacks."""
    return merge_small_stacks(study_stacks(planned, settings), settings.device)


def fields_from_data(run: PlannedRun, data: FactorData, settings: StudySettings) -> dict[str, Any]:
    """Return the fields of a spec that depend on the data, the device and the settings of the study.

    The precision is always one of these fields. If the data are vectors and the network is only for images, the default
    network and likelihood for vectors replace those of the run. A likelihood in the settings takes precedence.
    """
    defaults = RunDefaults.choose(data)
    fields = {"precision": settings.precision or defaults.precision}
    if len(data.shape) != 3 and run.spec.net in IMAGE_NETS:
        fields |= {"net": defaults.net, "likelihood": defaults.likelihood}
    return fields if settings.likelihood is None else {**fields, "likelihood": settings.likelihood}


def merge_small_stacks(stacks: Iterable[StudyStack], device: str) -> Iterator[StudyStack]:
    """Merge small stacks of the same dataset and network on a GPU, because a GPU trains several at the same time.

    One process claims all merged stacks. On a CPU, the stacks are unchanged.
    """
    if not device.startswith("cuda"):
        yield from stacks
        return
    for _, alike in groupby(stacks, lambda stack: (id(stack.data), stack.builder)):
        for group in group_small_stacks(alike, lambda stack: len(stack.runs)):
            yield StudyStack([run for stack in group for run in stack.runs], group[0].data, group[0].builder)


@contextmanager
def claim_stack(out: Path, stack: StudyStack) -> Iterator[bool]:
    """Try to claim a stack with a lock in the folder `out`. The context value is False if another process has it."""
    folder = out / ".claims"
    make_folder(folder)
    with try_lock(folder / f"{stack.name}.lock") as claimed:
        yield claimed
