"""Estimates of the cost of a study: runs, stacks, memory, and training time from a short measurement."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from unbraid.studies.planned import PlannedRun
from unbraid.studies.settings import StudySettings
from unbraid.studies.stacks import StudyStack, study_stacks
from unbraid.training.schedule import thread_count
from unbraid.training.stack import Stack

TRIAL_SECONDS = 2.0  # duration of the measurement
WARM_UP_STEPS = 5  # steps before the measurement, in which kernels are compiled and the CUDA graph is captured


@dataclass(frozen=True)
class Estimate:
    """The cost of all stacks of one dataset, method and number of steps. Speed and memory are measured on one stack.

    Attributes:
        data: The name of the dataset.
        method: The name of the method.
        runs: Number of runs.
        stacks: Number of stacks.
        steps: Number of training steps of each run.
        rate: Training steps per second, summed over the runs of a stack.
        memory: Memory of one stack in bytes. On a GPU, this is the peak of the allocated memory. On a CPU, it is the
            size of the parameters, their gradients and the moments of the optimiser.
    """

    data: str
    method: str
    runs: int
    stacks: int
    steps: int
    rate: float
    memory: int

    @property
    def seconds(self) -> float:
        """The time in seconds to train all stacks one after the other."""
        return self.runs * self.steps / self.rate


def measure_stack(stack: StudyStack) -> tuple[float, int]:
    """Train a stack for two seconds. Return its steps per second, summed over runs, and its memory in bytes."""
    cuda = stack.data.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(stack.data.device)
    trial = Stack(
        [run.spec for run in stack.runs],
        stack.data,
        stack.builder,
        threads=thread_count(len(stack.runs), stack.data.device),
    )
    for _ in range(WARM_UP_STEPS if cuda else 1):
        trial.advance()
    synchronise(cuda)
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < TRIAL_SECONDS:
        trial.advance()
        steps += 1
        synchronise(cuda)
    rate = steps * len(trial) / (time.perf_counter() - start)
    state = sum(part.nbytes for part in (trial.rows, trial.grad, trial.moment1, trial.moment2))
    return rate, torch.cuda.max_memory_allocated(stack.data.device) if cuda else state


def synchronise(cuda: bool) -> None:
    """Wait until the GPU has finished all work. If `cuda` is False, do nothing."""
    if cuda:
        torch.cuda.synchronize()


def estimate_study(planned: Sequence[PlannedRun], settings: StudySettings) -> list[Estimate]:
    """Return one estimate for each combination of dataset, method and steps, measured on one of its stacks."""
    kinds: dict[tuple[str, str, int], list[StudyStack]] = {}
    for stack in study_stacks(planned, settings):
        spec = stack.runs[0].spec
        kinds.setdefault((spec.data, spec.to_dict()["method"]["name"], spec.steps), []).append(stack)
    return [
        Estimate(data, method, sum(len(s.runs) for s in stacks), len(stacks), steps, *measure_stack(stacks[0]))
        for (data, method, steps), stacks in kinds.items()
    ]
