"""Deciding which runs form a stack and which stacks train at the same time.

A stack is a set of runs that are computed together, and a group is a set of stacks that train at the same time. On a
CPU, stacks and groups depend only on the specs of all runs of the command, including those that are already trained.
When an interrupted command is repeated, it therefore uses the same stacks and threads and computes the same numbers.

On a GPU, the sizes of stacks also depend on the free memory, and the rounding of a run depends on the size of its
stack. The folder of a run that is being trained therefore records the runs of its stack. When the training is resumed,
the run is trained in a stack of the same size and in the same row. The rows of runs that are already trained, that have
reached another step, or that the command does not contain are idle.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from math import ceil
from typing import TypeVar

import torch

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError, warn_user
from unbraid.nets.vae import PairBuilder
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec
from unbraid.training.active import RunInTraining, StackGroup, rounding_depends_on_stack
from unbraid.training.loop import Monitor, train_group
from unbraid.training.memory import max_runs_in_memory

MAX_RUNS_PER_STACK_ON_CPU = 16
MAX_THREADS = 4  # because more Python threads than this mostly wait for each other
MAX_CONCURRENT_RUNS = 64  # in all stacks of a group on a GPU together; this many runs already use the whole GPU
Item = TypeVar("Item")


def train_runs(runs: list[RunInTraining], data: FactorData, builder: PairBuilder, monitor: Monitor) -> Iterator[Run]:
    """Train the runs that are not trained yet and yield them. Groups are loaded and trained one after another."""
    for group in stack_groups(runs, data, builder):
        yield from train_or_split_group(group, data, builder, monitor)


def group_by_stack_key(items: Iterable[Item], spec_of: Callable[[Item], RunSpec]) -> list[list[Item]]:
    """Group items whose runs may be in the same stack. Groups and their items are in order of first appearance."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(spec_of(item).stack_key(), []).append(item)
    return list(groups.values())


def max_runs_in_stack(spec: RunSpec, data: FactorData, builder: PairBuilder, wanted: int) -> int:
    """Return the maximum number of runs in a stack of this spec. On a GPU it is limited by memory and by `wanted`."""
    return MAX_RUNS_PER_STACK_ON_CPU if data.device.type != "cuda" else max_runs_in_memory(spec, data, builder, wanted)


def split_into_stacks(items: Sequence[Item], max_size: int) -> list[list[Item]]:
    """Split items into consecutive parts of `max_size` items. The last part may be smaller.

    >>> split_into_stacks(range(5), 2)
    [[0, 1], [2, 3], [4]]
    """
    return [list(items[i : i + max_size]) for i in range(0, len(items), max_size)]


def group_small_stacks(
    stacks: Iterable[Item], size: Callable[[Item], int], max_runs: int = MAX_CONCURRENT_RUNS
) -> Iterator[list[Item]]:
    """Group consecutive stacks that a GPU trains at the same time.

    A single small stack would leave the GPU mostly idle.

    Args:
        stacks: The stacks, in order.
        size: Function that returns the number of runs of a stack.
        max_runs: The maximum number of runs in a group. A stack with more runs is a group of its own.

    Yields:
        The groups, in order. Each stack is in exactly one group.
    """
    group: list[Item] = []
    for stack in stacks:
        if group and sum(map(size, group)) + size(stack) > max_runs:
            yield group
            group = []
        group.append(stack)
    if group:
        yield group


def thread_count(runs: int, device: torch.device) -> int:
    """Return the number of CPU threads that compute `runs` runs, or `runs` stacks of one run each, at the same time."""
    return min(MAX_THREADS, torch.get_num_threads(), runs) if device.type == "cpu" else 1


def stack_groups(runs: list[RunInTraining], data: FactorData, builder: PairBuilder) -> Iterator[StackGroup]:
    """Yield the groups of stacks in the order in which they are trained."""
    stacks = list(plan_stacks(runs, data, builder))
    if not rounding_depends_on_stack(data.device):
        yield from groups_without_cuda(stacks, data.device)
        return
    for group in group_small_stacks(stacks, len):
        if untrained := [add_idle_rows(part) for stack in group for part in split_untrained_by_step(stack)]:
            yield StackGroup(untrained)


def groups_without_cuda(stacks: list[list[RunInTraining]], device: torch.device) -> Iterator[StackGroup]:
    """Yield the groups for a device that is not a CUDA GPU.

    Stacks of several runs come first, one at a time, and threads compute different runs of the stack. Stacks of a
    single run follow, several at a time, and threads compute different stacks.
    """
    single = [stack for stack in stacks if len(stack) == 1]
    threads = thread_count(MAX_THREADS, device)
    concurrent = len(single) > 1 and threads > 1
    for stack in stacks:
        if len(stack) > 1 or not concurrent:
            for part in split_untrained_by_step(stack):
                yield StackGroup([part], run_threads=thread_count(len(stack), device))
    for group in split_into_stacks(single, threads) if concurrent else ():
        if untrained := [part for stack in group for part in split_untrained_by_step(stack)]:
            yield StackGroup(untrained, stack_threads=threads)


def plan_stacks(runs: list[RunInTraining], data: FactorData, builder: PairBuilder) -> Iterator[list[RunInTraining]]:
    """Divide runs into stacks. On a GPU, stacks that were started before are formed again.

    Yields:
        The stacks, ordered by stack key. Each run that is not trained yet is in exactly one stack.
    """
    on_cpu = not rounding_depends_on_stack(data.device)
    for same_key in groups_in_key_order(runs, lambda run: run.spec):
        if not on_cpu and all(run.trained for run in same_key):
            yield same_key  # these runs are not trained again, so their memory need not be measured
            continue
        started = [] if on_cpu else started_stacks(same_key)
        size = started_size(same_key, started) or stack_size(same_key[0].spec, len(same_key), data, builder)
        yield from started
        claimed = {run.spec.id for stack in started for run in stack}
        for stack in split_into_stacks(same_key, size):
            if rest := [run for run in stack if run.spec.id not in claimed]:
                yield rest


def plan_new_stacks(
    items: Iterable[Item], spec_of: Callable[[Item], RunSpec], data: FactorData, builder: PairBuilder
) -> Iterator[list[Item]]:
    """Divide runs into the stacks that `plan_stacks` forms if none of the runs has been started.

    Args:
        items: The runs, in any form.
        spec_of: Function that returns the spec of a run.
        data: The dataset, on the device on which the runs are trained.
        builder: Function that builds the network.

    Yields:
        The stacks, ordered by stack key. Each run is in exactly one stack.
    """
    for same_key in groups_in_key_order(items, spec_of):
        yield from split_into_stacks(same_key, stack_size(spec_of(same_key[0]), len(same_key), data, builder))


def groups_in_key_order(items: Iterable[Item], spec_of: Callable[[Item], RunSpec]) -> list[list[Item]]:
    """Group items whose runs may be in the same stack, and sort the groups by their stack key."""
    return sorted(group_by_stack_key(items, spec_of), key=lambda group: spec_of(group[0]).stack_key())


def stack_size(spec: RunSpec, count: int, data: FactorData, builder: PairBuilder) -> int:
    """Return the number of runs per stack for `count` runs with the same stack key.

    On a GPU, the stacks have nearly equal sizes. Devices of type mps are treated like a CPU, because their memory is
    not measured.
    """
    max_runs = max_runs_in_stack(spec, data, builder, count)
    return ceil(count / ceil(count / max_runs)) if rounding_depends_on_stack(data.device) else max_runs


def started_stacks(runs: list[RunInTraining]) -> list[list[RunInTraining]]:
    """Return the untrained runs of each stack that was started before, in the order of its rows.

    A run has no record of its stack if the process was killed before it wrote the record. Such a run belongs to the
    stack in the record of another run that lists it.
    """
    recorded = [run.stack for run in runs if run.stack is not None and not run.trained]
    listed = {name: stack for stack in recorded for name in stack}
    stacks: dict[tuple[str, ...], list[RunInTraining]] = {}
    for run in runs:
        run.stack = run.stack or listed.get(run.spec.id)
        if run.stack is not None and not run.trained:
            stacks.setdefault(tuple(run.stack), []).append(run)
    return [[run for name in ids for run in members if run.spec.id == name] for ids, members in stacks.items()]


def started_size(runs: list[RunInTraining], started: list[list[RunInTraining]]) -> int | None:
    """Return the number of runs per stack that the interrupted command used, or None if it cannot be inferred.

    It is the size of a started stack, provided that a division of all runs into stacks of this size gives the same
    stack again.
    """
    ids = [run.spec.id for run in runs]
    for stack in started:
        if stack[0].stack in split_into_stacks(ids, len(stack[0].stack or ids)):
            return len(stack[0].stack or ids)
    return None


def add_idle_rows(runs: list[RunInTraining]) -> list[RunInTraining]:
    """Return the rows of the stack in which runs were started: the runs, and idle rows in place of its other runs."""
    if runs[0].stack is None:
        return runs
    members = {run.spec.id: run for run in runs}
    return [members.get(name) or RunInTraining(runs[0].spec, None, runs[0].step, idle=True) for name in runs[0].stack]


def split_untrained_by_step(stack: list[RunInTraining]) -> Iterator[list[RunInTraining]]:
    """Yield one list of runs for each step that untrained runs of the stack have reached, in order of the step."""
    untrained = sorted((run for run in stack if not run.trained), key=lambda run: run.step)
    yield from (list(part) for _, part in groupby(untrained, lambda run: run.step))


def train_or_split_group(group: StackGroup, data: FactorData, builder: PairBuilder, monitor: Monitor) -> Iterator[Run]:
    """Train a group. If GPU memory runs out, split the group and resume each part from its last complete step."""
    smaller: list[StackGroup] = []
    try:
        runs = train_group(group, data, builder, monitor)
    except torch.cuda.OutOfMemoryError:
        smaller = smaller_groups(group, data.device)
    else:
        yield from runs
    if smaller:
        gc.collect()  # because the failed step may have left tensors in reference cycles
        torch.cuda.empty_cache()
    for part in smaller:
        yield from train_or_split_group(part, data, builder, monitor)


def smaller_groups(group: StackGroup, device: torch.device) -> list[StackGroup]:
    """Return smaller groups for the runs of a group that does not fit into memory.

    If the group has several stacks, each becomes a group of its own. A single stack loses its idle rows. If it has
    none, it is divided into halves.

    Raises:
        UserError: If the group is a single run.
    """
    if len(group.stacks) > 1:
        return [StackGroup([runs]) for runs in group.stacks]
    (rows,) = group.stacks
    runs = [run for run in rows if not run.idle]
    if len(runs) < len(rows):
        return [StackGroup([runs])]
    half = ceil(len(runs) / 2)
    if len(runs) == 1:
        raise UserError(
            f"One run of batch {runs[0].spec.batch} does not fit into the free memory of {device}. Use a smaller batch "
            "or a smaller network, or end other programs that use the device."
        )
    warn_user(
        f"{len(runs)} runs do not fit into the memory of {device} together. Training continues with {half} at a time."
    )
    return [StackGroup([runs[:half]]), StackGroup([runs[half:]])]
