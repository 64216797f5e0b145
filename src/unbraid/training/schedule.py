"""Which runs form a stack, and which stacks train at the same time.

The grouping depends only on the specs, and runs that are already trained count as well. An interrupted command that is
repeated therefore computes with the same stacks and threads, and gives the same numbers.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from math import ceil
from typing import TypeVar

import torch

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.nets.vae import PairBuilder
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec
from unbraid.training.active import RunInTraining, StackGroup
from unbraid.training.loop import Monitor, train_group
from unbraid.training.memory import capacity

RUNS_PER_STACK_ON_CPU = 16  # most runs in a stack
MOST_THREADS = 4  # more Python threads than this wait for each other
RUNS_AT_ONCE = 64  # most runs that a GPU trains at the same time in several stacks; larger stacks fill it alone
Item = TypeVar("Item")


def train_runs(runs: list[RunInTraining], data: FactorData, builder: PairBuilder, monitor: Monitor) -> Iterator[Run]:
    """Train the runs that are not trained yet, group by group. A group is loaded when its turn comes."""
    for group in stack_groups(runs, data, builder):
        yield from train_group_in_memory(group, data, builder, monitor)


def group_by_stack_key(items: Iterable[Item], spec_of: Callable[[Item], RunSpec]) -> list[list[Item]]:
    """Group items whose specs may share a stack. Items and groups keep the order in which they first appear."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(spec_of(item).stack_key(), []).append(item)
    return list(groups.values())


def most_runs_in_stack(spec: RunSpec, data: FactorData, builder: PairBuilder, wanted: int) -> int:
    """The most runs of a spec that a stack may have on the device of the data, at most `wanted` on a GPU."""
    return RUNS_PER_STACK_ON_CPU if data.device.type == "cpu" else capacity(spec, data, builder, wanted)


def split_into_stacks(items: Sequence[Item], most: int) -> list[list[Item]]:
    """Split items into consecutive parts of `most` items; the last part may be smaller.

    >>> split_into_stacks(range(5), 2)
    [[0, 1], [2, 3], [4]]
    """
    return [list(items[i : i + most]) for i in range(0, len(items), most)]


def groups_that_fit(
    stacks: Iterable[Item], size: Callable[[Item], int], most: int = RUNS_AT_ONCE
) -> Iterator[list[Item]]:
    """Group consecutive stacks that a GPU trains at the same time, because one small stack leaves it mostly idle.

    Args:
        stacks: The stacks, in order.
        size: Returns the number of runs of a stack.
        most: The most runs of a group. A stack with more runs is a group of its own.

    Returns:
        The groups, in order. Together they contain every stack once.
    """
    group: list[Item] = []
    for stack in stacks:
        if group and sum(map(size, group)) + size(stack) > most:
            yield group
            group = []
        group.append(stack)
    if group:
        yield group


def threads_for(runs: int, device: torch.device) -> int:
    """The number of CPU threads that advance `runs` runs, or stacks of one run, at the same time."""
    return min(MOST_THREADS, torch.get_num_threads(), runs) if device.type == "cpu" else 1


def stack_groups(runs: list[RunInTraining], data: FactorData, builder: PairBuilder) -> Iterator[StackGroup]:
    """The groups of stacks in the order in which they are trained."""
    stacks = list(plan_stacks(runs, data, builder))
    if data.device.type != "cuda":
        yield from groups_without_gpu(stacks, data.device)
        return
    for group in groups_that_fit(stacks, len):
        if untrained := [part for stack in group for part in untrained_by_step(stack)]:
            yield StackGroup(untrained)


def groups_without_gpu(stacks: list[list[RunInTraining]], device: torch.device) -> Iterator[StackGroup]:
    """First stacks of several runs, one at a time with their runs on threads; then single runs, several at a time."""
    single = [stack for stack in stacks if len(stack) == 1]
    threads = threads_for(MOST_THREADS, device)
    concurrent = len(single) > 1 and threads > 1
    for stack in stacks:
        if len(stack) > 1 or not concurrent:
            for part in untrained_by_step(stack):
                yield StackGroup([part], run_threads=threads_for(len(stack), device))
    for together in split_into_stacks(single, threads) if concurrent else ():
        if untrained := [part for stack in together for part in untrained_by_step(stack)]:
            yield StackGroup(untrained, stack_threads=threads)


def plan_stacks(runs: list[RunInTraining], data: FactorData, builder: PairBuilder) -> Iterator[list[RunInTraining]]:
    """Divide runs into stacks. On a GPU the stacks of the same key have nearly equal sizes."""
    on_cpu = data.device.type == "cpu"
    ordered = sorted(runs, key=lambda run: run.spec.stack_key())
    for alike in group_by_stack_key(ordered, lambda run: run.spec):
        if not on_cpu and all(run.trained for run in alike):
            yield alike
            continue
        most = most_runs_in_stack(alike[0].spec, data, builder, len(alike))
        yield from split_into_stacks(alike, most if on_cpu else ceil(len(alike) / ceil(len(alike) / most)))


def untrained_by_step(stack: list[RunInTraining]) -> Iterator[list[RunInTraining]]:
    """The runs of a stack that are not trained yet, grouped by the step they have reached."""
    untrained = sorted((run for run in stack if not run.trained), key=lambda run: run.step)
    yield from (list(part) for _, part in groupby(untrained, lambda run: run.step))


def train_group_in_memory(group: StackGroup, data: FactorData, builder: PairBuilder, monitor: Monitor) -> Iterator[Run]:
    """Train a group. If the GPU has too little memory, train smaller groups that resume from the last complete step."""
    smaller: list[StackGroup] = []
    try:
        runs = train_group(group, data, builder, monitor)
    except torch.cuda.OutOfMemoryError:
        smaller = smaller_groups(group, data.device)
    else:
        yield from runs
    if smaller:
        gc.collect()  # the failed step may have left tensors in reference cycles
        torch.cuda.empty_cache()
    for part in smaller:
        yield from train_group_in_memory(part, data, builder, monitor)


def smaller_groups(group: StackGroup, device: torch.device) -> list[StackGroup]:
    """The stacks of a group one at a time, or the two halves of a single stack.

    Raises:
        UserError: If the group is a single run.
    """
    if len(group.stacks) > 1:
        return [StackGroup([runs]) for runs in group.stacks]
    (runs,) = group.stacks
    half = ceil(len(runs) / 2)
    if len(runs) == 1:
        raise UserError(
            f"One run of batch {runs[0].spec.batch} does not fit into the free memory of {device}. Use a smaller batch "
            "or network, or end other programs that use the device."
        )
    warnings.warn(
        f"{len(runs)} runs together do not fit into the memory of {device}. Training continues with {half} at a time.",
        RuntimeWarning,
        stacklevel=2,
    )
    return [StackGroup([runs[:half]]), StackGroup([runs[half:]])]
