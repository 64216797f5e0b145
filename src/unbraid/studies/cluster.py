"""Running a study on a Ray cluster. Nodes train stacks, and the driver process writes the runs that they return.

A Ray task is what one process would claim on a single machine (`study_tasks`): one stack, or on a GPU several small
stacks that train at the same time. A task returns each run as a separate Ray object, so that the driver never has more
than one run in memory.

If stacks are trained on GPUs, the driver stores the trained runs, and sends them to cores in tasks of their own. So the
GPU of a node trains the next stack while cores of any node score the last one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from unbraid.nets.registry import resolve_net
from unbraid.runs.scores import add_scores
from unbraid.runs.spec import RunSpec
from unbraid.runtime.files import make_folder, resolve_path
from unbraid.runtime.progress import progress
from unbraid.studies.cluster_node import (
    RunFiles,
    cached_data,
    read_run_files,
    store_run,
)
from unbraid.studies.group_scores import GroupScoring, seed_groups
from unbraid.studies.local import POLL_SECONDS, StudyProgress, finish_study, write_study_file
from unbraid.studies.planned import PlannedRun, runs_by_dataset
from unbraid.studies.ray_cluster import RayCluster, ray_session
from unbraid.studies.run_scores import unfinished_runs
from unbraid.studies.settings import StudySettings
from unbraid.studies.stacks import StudyStack, claim_stack, study_tasks
from unbraid.version import __version__

STACKS_PER_SLOT = 2  # number of stacks to submit for each stack that the nodes can train at the same time
UNSCORED_PER_SLOT = 4  # maximum number of submitted stacks per slot, including trained stacks that are not yet scored
GROUPS_IN_MEMORY = 16  # a group of 50 runs has 0.1 to 1.2 GB
RUNS_PER_SCORING_TASK = 8  # on one core, a task takes some minutes


@dataclass
class SubmittedStack:
    """A stack that was submitted to the cluster.

    Attributes:
        stack: The stack.
        claim: The context that holds the claim of the stack. Closing the context releases the claim.
        training: A Ray reference that has a result when the stack is trained. None if it is trained already.
        runs: Maps the id of each run in training to the Ray reference of its files. Empty if nodes write the runs.
        scoring: The Ray references of the scores that are computed after the training.
    """

    stack: StudyStack
    claim: ExitStack
    training: Any | None = None
    runs: dict[str, Any] = field(default_factory=dict)
    scoring: list[Any] = field(default_factory=list)

    @property
    def references(self) -> list[Any]:
        """The Ray references for whose results the stack waits."""
        return [*([] if self.training is None else [self.training]), *self.scoring]


@dataclass
class ClusterStudy:
    """A study on a Ray cluster.

    Attributes:
        nodes: The nodes of the cluster.
        settings: How to train and score.
        shared: Whether the nodes write to the output folder themselves. If so, tasks return no runs.
        progress: Shows the progress of the study.
        submitted: The stacks that were submitted and are not finished.
        groups: The Ray references of scores of groups of runs.
    """

    nodes: RayCluster
    settings: StudySettings
    shared: bool
    progress: StudyProgress
    submitted: list[SubmittedStack] = field(default_factory=list)
    groups: list[Any] = field(default_factory=list)

    def is_full(self) -> bool:
        """Return whether enough stacks are submitted to keep all nodes busy."""
        slots = max(1, self.nodes.slots())
        training = sum(task.training is not None for task in self.submitted)
        return training >= STACKS_PER_SLOT * slots or len(self.submitted) >= UNSCORED_PER_SLOT * slots

    def stacks_by_dataset(self, planned: Sequence[PlannedRun]) -> Iterator[list[StudyStack]]:
        """Yield the stacks of each dataset of a study, as on a single machine (see `study_tasks`).

        The sizes of the stacks depend on the GPU. If only the nodes have a GPU, a node chooses the sizes.
        """
        on_node = self.settings.device != "cpu" and not torch.cuda.is_available()
        for name, group in runs_by_dataset(planned):
            runs = list(group)
            if not on_node:
                yield list(study_tasks(runs, self.settings))
                continue
            parts = self.nodes.result(self.nodes.remote_functions["stacks"].remote(runs, self.settings))
            data = cached_data(name, "cpu")
            yield [StudyStack(part, data, resolve_net(part[0].spec.net)[1]) for part in parts]

    def submit(self, stack: StudyStack) -> bool:
        """Submit the unfinished runs of a stack. Return False if another process has claimed the stack."""
        settings = self.settings
        with ExitStack() as claim:
            if not (self.shared or claim.enter_context(claim_stack(settings.out, stack))):
                return False
            training = replace(settings, scored=False) if self.nodes.scores_separately else settings
            task = SubmittedStack(stack, claim.pop_all())
            self.submitted.append(task)
            unfinished = {run.spec.id: run.spec for run in unfinished_runs(stack, training)}
            if unfinished:
                self.start_training(task, unfinished, training)
            else:
                self.finish_training(task)
        return True

    def start_training(self, task: SubmittedStack, unfinished: dict[str, RunSpec], settings: StudySettings) -> None:
        """Start the training of a stack on a node.

        If the nodes write to the output folder themselves, there is only one reference, and its result is empty.
        """
        stack, train = task.stack, self.nodes.remote_functions["train"]
        if self.shared:
            specs = [run.spec.to_dict() for run in stack.runs]
            task.training = train.remote(__version__, specs, stack.runs[0].spec.data, settings, None, {})
            return
        specs = [spec.to_dict() for spec in unfinished.values()]
        started = self.read_runs(unfinished)
        call = (__version__, specs, specs[0]["data"], settings, self.scratch_name(stack.name), started)
        found = train.options(num_returns=len(specs)).remote(*call)
        references = found if len(specs) > 1 else [found]
        task.training, task.runs = references[0], dict(zip(unfinished, references, strict=True))

    def finish_training(self, task: SubmittedStack) -> None:
        """Write the runs of a trained stack one after another. Then score them, or finish the stack."""
        for name in list(task.runs):
            store_run(self.settings.out, name, self.nodes.result(task.runs[name]))
            del task.runs[name]
        if self.shared and task.training is not None:
            self.nodes.result(task.training)
        task.training = None
        if self.nodes.scores_separately:
            self.start_scoring(task)
        if not task.scoring:
            self.finish(task)

    def start_scoring(self, task: SubmittedStack) -> None:
        """Start to score the runs of a trained stack on the cores of nodes, some runs per task."""
        settings, score = replace(self.settings, device="cpu"), self.nodes.remote_functions["score"]
        specs = [run.spec for run in unfinished_runs(task.stack, self.settings)]
        for part in (specs[i : i + RUNS_PER_SCORING_TASK] for i in range(0, len(specs), RUNS_PER_SCORING_TASK)):
            names = [spec.id for spec in part]
            call = (__version__, [spec.to_dict() for spec in part], part[0].data, settings)
            place = (None, {}) if self.shared else (self.scratch_name(" ".join(names)), self.read_runs(names))
            task.scoring.append(score.remote(*call, *place))

    def finish_scoring(self, task: SubmittedStack, reference: Any) -> None:
        """Write the scores of some runs of a stack, and finish the stack if they were the last."""
        for name, files in self.nodes.result(reference).items():
            store_run(self.settings.out, name, files)
        task.scoring.remove(reference)
        if not task.scoring:
            self.finish(task)

    def finish(self, task: SubmittedStack) -> None:
        """Release the claim of a stack, and add it to the progress."""
        task.claim.close()
        self.submitted.remove(task)
        self.progress.finish_stack(task.stack)

    def read_runs(self, names: Iterable[str]) -> dict[str, RunFiles]:
        """Return the files of those runs that exist in the output folder."""
        folders = [self.settings.out / name for name in names]
        return {folder.name: read_run_files(folder) for folder in folders if folder.is_dir()}

    def scratch_name(self, name: str) -> str:
        """Return the name of a temporary folder on a node for a task of this study."""
        return hashlib.sha256(f"{self.settings.out} {name}".encode()).hexdigest()[:16]

    def collect(self) -> None:
        """Wait a short time for results of submitted stacks, and write what they return."""
        tasks = {reference: task for task in self.submitted for reference in task.references}
        done, _ = self.nodes.ray.wait(list(tasks), timeout=POLL_SECONDS)
        for reference in done:
            task = tasks[reference]
            if reference == task.training:
                self.finish_training(task)
            else:
                self.finish_scoring(task, reference)
        self.progress.update(0, f"{len(self.nodes.resources())} nodes alive")

    def train(self, planned: Sequence[PlannedRun]) -> list[PlannedRun]:
        """Train all stacks, and return the planned runs with the specs that were used for training."""
        trained: list[PlannedRun] = []
        claimed_by_others: list[StudyStack] = []
        for stacks in self.stacks_by_dataset(planned):
            runs = [run for stack in stacks for run in stack.runs]
            trained += runs
            write_study_file(self.settings, runs)
            for stack in stacks:
                while self.is_full():
                    self.collect()
                if not self.submit(stack):
                    claimed_by_others.append(stack)
        while self.submitted or claimed_by_others:
            self.collect() if self.submitted else time.sleep(POLL_SECONDS)
            claimed_by_others = [stack for stack in claimed_by_others if self.is_full() or not self.submit(stack)]
        return trained

    def score_groups(self, ids: Sequence[str], quiet: bool) -> None:
        """Compute the scores of groups of runs that differ in the seed only, each group in a task on one core."""
        scoring = GroupScoring(self.settings.out, self.settings.group_metrics, self.settings.protocol)
        groups = list(seed_groups(self.settings.out, ids)) if self.settings.group_metrics else []
        with progress("comparing seeds", len(groups), quiet) as report:
            for done, group in enumerate(groups):
                report(done, "settings")
                while len(self.groups) >= self.groups_at_a_time():
                    self.collect_group()
                if scoring.lacks_scores(group, cached_data(group[0].spec.data, "cpu")):
                    self.submit_group([run.spec.id for run in group], group[0].spec.data)
            while self.groups:
                self.collect_group()

    def submit_group(self, names: Sequence[str], data: str) -> None:
        """Submit the runs of a group, which are on the same dataset, to be scored."""
        place = (None, {}) if self.shared else (self.scratch_name(" ".join(names)), self.read_runs(names))
        call = (__version__, names, data, replace(self.settings, device="cpu"), *place)
        self.groups.append(self.nodes.remote_functions["group"].remote(*call))

    def groups_at_a_time(self) -> int:
        """Return the number of groups to submit at a time. Groups whose files are sent need memory."""
        cores = max(1, self.nodes.cores())
        return cores if self.shared else min(cores, GROUPS_IN_MEMORY)

    def collect_group(self) -> None:
        """Wait until the scores of a group are computed, and write them. They replace older scores of these metrics."""
        (reference, *_), _ = self.nodes.ray.wait(self.groups)
        for name, records in self.nodes.result(reference).items():
            metrics = {record["metric"] for record in records}
            add_scores(self.settings.out / name, records, lambda old, new=metrics: old["metric"] in new)  # type: ignore[misc]
        self.groups.remove(reference)

    def cancel(self) -> None:
        """Stop all submitted stacks. This is called when the study ends early, for example after an error."""
        for task in self.submitted:
            for reference in task.references:
                self.nodes.ray.cancel(reference, force=True)
            task.claim.close()
        for reference in self.groups:
            self.nodes.ray.cancel(reference, force=True)


def run_cluster(
    planned: Sequence[PlannedRun],
    settings: StudySettings,
    address: str = "auto",
    shared: bool = False,
    quiet: bool = False,
) -> Path:
    """Run a study as `run_study` does, but on the nodes of a Ray cluster. Return the path of the results table.

    Args:
        planned: The runs of the study.
        settings: How to train and score.
        address: "HOST:PORT", "ray://HOST:PORT", or "auto" for the cluster of this machine, which is started if there is
            none.
        shared: Whether all nodes can access the output folder and write to it. Otherwise they return their runs.
        quiet: If True, do not show progress.
    """
    device = (
        "cpu" if settings.device == "cpu" else "cuda"
    )  # no index, because Ray makes only the GPU of the task visible
    settings = replace(settings, out=resolve_path(settings.out), device=device, jobs=settings.jobs or 1)
    make_folder(settings.out)
    with ray_session(address) as ray, ExitStack() as contexts:
        nodes = RayCluster(ray, settings)
        nodes.check_resources()
        with progress("study", sum(run.spec.steps for run in planned), quiet) as report:
            study = ClusterStudy(nodes, settings, shared, StudyProgress(report, len(planned)))
            contexts.callback(study.cancel)
            trained = study.train(planned)
        if settings.scored:
            study.score_groups([run.spec.id for run in trained], quiet)
    local_device = device if device == "cpu" or torch.cuda.is_available() else "cpu"
    return finish_study(trained, replace(settings, device=local_device), quiet)
