"""What a study would take: runs, stacks, memory, and time from a short measurement on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from unbraid.studies.planned import Planned
from unbraid.studies.runner import Order, Stackful, prepared
from unbraid.training.schedule import LANES
from unbraid.training.stack import Stack

TRIAL_SECONDS = 2.0
WARM = 5  # steps before the clock starts: kernels compile, the graph is recorded


@dataclass(frozen=True)
class Estimate:
    """Stacks of one kind: how many runs and stacks, and what a trial of one implies."""

    data: str
    method: str
    runs: int
    stacks: int
    steps: int
    rate: float  # model-steps a second
    memory: int  # bytes of a stack: on a GPU its peak, on a CPU parameters, gradients and moments

    @property
    def seconds(self) -> float:
        """Of training, one stack after the other."""
        return self.runs * self.steps / self.rate


def trial(stack: Stackful) -> tuple[float, int]:
    """Model-steps a second of a whole stack, from as many steps as fit into two seconds, and its memory in bytes."""
    cuda = stack.data.device.type == "cuda"
    lanes = 1 if cuda else min(LANES, torch.get_num_threads(), len(stack.runs))  # as training has them
    if cuda:
        torch.cuda.reset_peak_memory_stats(stack.data.device)
    made = Stack([run.spec for run in stack.runs], stack.data, stack.builder, threads=lanes)
    for _ in range(WARM if cuda else 1):
        made.advance()
    settled(cuda)
    begun, taken = time.perf_counter(), 0
    while time.perf_counter() - begun < TRIAL_SECONDS:
        made.advance()
        taken += 1
        settled(cuda)
    rate = taken * len(made) / (time.perf_counter() - begun)
    held = sum(part.nbytes for part in (made.rows, made.grad, made.moment1, made.moment2))
    return rate, torch.cuda.max_memory_allocated(stack.data.device) if cuda else held


def settled(cuda: bool) -> None:
    """Wait for what was launched."""
    if cuda:
        torch.cuda.synchronize()


def plan(planned: Sequence[Planned], order: Order) -> list[Estimate]:
    """An estimate for every kind of stack; one stack of each kind is tried."""
    kinds: dict[tuple[str, str, int], list[Stackful]] = {}
    for stack in prepared(planned, order):
        spec = stack.runs[0].spec
        kinds.setdefault((spec.data, spec.to_dict()["method"]["name"], spec.steps), []).append(stack)
    return [
        Estimate(data, method, sum(len(s.runs) for s in stacks), len(stacks), steps, *trial(stacks[0]))
        for (data, method, steps), stacks in kinds.items()
    ]
