"""Estimates of the cost of a study: runs, stacks, memory, and training time from a short measurement."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from unbraid.studies.planned import PlannedRun
from unbraid.studies.projection import Task
from unbraid.studies.settings import StudySettings
from unbraid.studies.stacks import StudyStack, study_tasks
from unbraid.training.active import ActiveStack, RunInTraining
from unbraid.training.schedule import group_by_stack_key, thread_count

TRIAL_SECONDS = 2.0  # duration of the measurement
WARM_UP_STEPS = 5  # steps before the measurement, in which kernels are compiled and the CUDA graph is captured


@dataclass(frozen=True)
class Estimate:
    """The cost of all stacks of one dataset, method and number of steps. Speed and memory are measured on one stack.

    On a GPU, small stacks train at the same time, even if their methods differ. These stacks share one estimate, which
    is measured while all of them train.

    Attributes:
        data: The name of the dataset.
        method: The name of the method. The names of several methods that train at the same time are joined by " + ".
        runs: Number of runs.
        stacks: Number of stacks.
        steps: Number of training steps of each run. If runs differ, the largest number.
        rate: Training steps per second, summed over all runs that train at the same time.
        memory: Memory of the stacks that train at the same time, in bytes. On a GPU, this is the peak of the allocated
            memory. On a CPU, it is the size of the parameters, their gradients and the moments of the optimiser.
        concurrent: Number of stacks that train at the same time.
        tasks: One pair for each set of stacks that train at the same time, in the order of the study: the number of its
            runs, and the number of training steps summed over these runs.
    """

    data: str
    method: str
    runs: int
    stacks: int
    steps: int
    rate: float
    memory: int
    concurrent: int
    tasks: tuple[tuple[int, int], ...]

    @property
    def seconds(self) -> float:
        """The time in seconds to train all stacks on one device. Small stacks on a GPU train at the same time."""
        return sum(steps for _, steps in self.tasks) / self.rate


def stacks_of(task: StudyStack) -> list[list[PlannedRun]]:
    """Return the runs of each stack of a task. A task is a stack, or on a GPU several small stacks."""
    return group_by_stack_key(task.runs, lambda run: run.spec)


def start_stacks(task: StudyStack) -> list[ActiveStack]:
    """Load the stacks of a task for training. On a GPU, each of several stacks has its own CUDA stream."""
    stacks = stacks_of(task)
    streams = range(len(stacks)) if len(stacks) > 1 and task.data.device.type == "cuda" else [None] * len(stacks)
    return [
        ActiveStack.start(
            [RunInTraining(run.spec, None) for run in runs], task.data, task.builder,
            thread_count(len(runs), task.data.device), stream,
        )
        for runs, stream in zip(stacks, streams, strict=True)
    ]  # fmt: skip


def advance(stacks: list[ActiveStack]) -> None:
    """Take one step of each stack on its own stream."""
    for active in stacks:
        with active.on_stream():
            active.stack.advance()


def measure_task(task: StudyStack) -> tuple[float, int]:
    """Train a task for two seconds. Return its steps per second, summed over runs, and its memory in bytes."""
    device = task.data.device
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    stacks = start_stacks(task)
    for _ in range(WARM_UP_STEPS if cuda else 1):
        advance(stacks)
    synchronise(cuda)
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < TRIAL_SECONDS:
        advance(stacks)
        steps += 1
        synchronise(cuda)
    rate = steps * len(task.runs) / (time.perf_counter() - start)
    trials = [active.stack for active in stacks]
    state = sum(part.nbytes for s in trials for part in (s.rows, s.grad, s.moment1, s.moment2))
    return rate, torch.cuda.max_memory_allocated(device) if cuda else state


def synchronise(cuda: bool) -> None:
    """Wait until the GPU has finished all work. If `cuda` is False, do nothing."""
    if cuda:
        torch.cuda.synchronize()


def method_names(task: StudyStack) -> str:
    """Return the names of the methods of a task, joined by " + "."""
    names = dict.fromkeys(runs[0].spec.to_dict()["method"]["name"] for runs in stacks_of(task))
    return " + ".join(names)


def estimate_study(planned: Sequence[PlannedRun], settings: StudySettings) -> list[Estimate]:
    """Return one estimate for each combination of dataset, methods and number of steps, measured on one task each."""
    kinds: dict[tuple[str, str, int], list[StudyStack]] = {}
    for task in study_tasks(planned, settings):
        steps = max(run.spec.steps for run in task.runs)
        kinds.setdefault((task.runs[0].spec.data, method_names(task), steps), []).append(task)
    return [estimate_kind(tasks, *kind) for kind, tasks in kinds.items()]


def estimate_kind(tasks: Sequence[StudyStack], data: str, method: str, steps: int) -> Estimate:
    """Return the estimate of tasks with the same dataset, methods and number of steps, measured on the first task."""
    rate, memory = measure_task(tasks[0])
    sizes = tuple((len(task.runs), sum(run.spec.steps for run in task.runs)) for task in tasks)
    stacks = [len(stacks_of(task)) for task in tasks]
    return Estimate(data, method, sum(runs for runs, _ in sizes), sum(stacks), steps, rate, memory, stacks[0], sizes)


def estimated_tasks(estimates: Iterable[Estimate]) -> list[Task]:
    """Return the tasks of a study with their estimated times, in the order of the study."""
    return [Task(runs, steps / e.rate) for e in estimates for runs, steps in e.tasks]
