"""Who advances with whom: runs in stacks, stacks in convoys."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from unbraid.accel.capture import lane_stream
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.nets.vae import PairBuilder
from unbraid.runs.folder import Log, RunDir
from unbraid.runs.spec import RunSpec
from unbraid.training.memory import capacity
from unbraid.training.stack import Divergence, Stack, workers

STACK = 16  # runs in a stack on a CPU, at most
LANES = 4  # threads of Python that pay, at most: beyond that they wait for each other
TOGETHER = 64  # runs that a GPU trains at the same time in several stacks, at most; larger stacks fill it alone
Some = TypeVar("Some")


@dataclass
class RunInTraining:
    """A run's place while it trains: where it is kept, how far it is, and what it has logged."""

    spec: RunSpec
    folder: RunDir | None
    step: int = 0
    log: Log = field(default_factory=list)
    divergence: Divergence | None = None
    trained: bool = False
    held: dict[str, Tensor] | None = None
    follow: Callable[[RunDir, Log], None] | None = None  # hears of the log whenever the folder gets it

    @classmethod
    def of(cls, spec: RunSpec, out: Path | None) -> RunInTraining:
        """A place for a spec, at the step its folder left it."""
        folder = None if out is None else RunDir.create(out, spec)
        status = "new" if folder is None else folder.status
        step = folder.checkpoint_step() if folder is not None and status == "partial" else 0
        return cls(spec, folder, step, trained=status in ("done", "diverged"))


@dataclass
class ActiveStack:
    """A stack under way with its runs."""

    stack: Stack
    berths: list[RunInTraining]
    lane: torch.cuda.Stream | None = None  # where its work is launched, if others are under way at the same time

    def at_work(self) -> AbstractContextManager[None]:
        """Whatever has to do with its stack belongs in here: work in different lanes does not wait for each other."""
        return nullcontext() if self.lane is None else torch.cuda.stream(self.lane)

    def arrive(self) -> None:
        """Let the main stream wait for all that its lane still does."""
        if self.lane is not None:
            torch.cuda.current_stream(self.lane.device).wait_stream(self.lane)

    @property
    def steps(self) -> int:
        """Where it ends."""
        return self.berths[0].spec.steps

    @property
    def over(self) -> bool:
        """Whether the last step is taken, or no run is left to take one."""
        return self.stack.step >= self.steps or all(berth.divergence is not None for berth in self.berths)


@dataclass
class StackGroup:
    """Voyages that advance together: one stack, or several small ones in lanes that share the cores or the GPU."""

    voyages: list[ActiveStack]
    lanes: int = 1

    def advance(self, after: Callable[[ActiveStack], None]) -> None:
        """One step of each voyage that is not over, followed by `after`: one that fails leaves others in order."""
        under_way = [voyage for voyage in self.voyages if not voyage.over]
        if self.lanes > 1:
            list(workers(self.lanes).map(Stack.advance, [voyage.stack for voyage in under_way]))
        for voyage in under_way:
            with voyage.at_work():
                if self.lanes == 1:
                    voyage.stack.advance()
                after(voyage)


def convoys(berths: list[RunInTraining], data: FactorData, builder: PairBuilder) -> Iterator[StackGroup]:
    """Everything that has to be trained, in the order it is to be done, each part loaded when its turn comes.

    Who advances with whom, and so on how many threads, follows from the specs alone, trained ones included: the same
    command gives the same arithmetic however often it was interrupted, even if that left runs at different steps.
    """
    chunks = list(planned(berths, data, builder))
    if data.device.type == "cuda":
        for group in together(chunks, len, TOGETHER):
            yield from fleet([level for chunk in group for level in levels(chunk)], data, builder)
        return
    lanes = min(LANES, torch.get_num_threads()) if data.device.type == "cpu" else 1
    alone = [chunk for chunk in chunks if len(chunk) == 1]
    beside = len(alone) > 1 and lanes > 1
    for chunk in chunks:
        if len(chunk) > 1 or not beside:
            for level in levels(chunk):
                yield StackGroup([ActiveStack(load_stack(level, data, builder, min(lanes, len(chunk))), level)])
    for i in range(0, len(alone) if beside else 0, lanes):
        waiting = [level for chunk in alone[i : i + lanes] for level in levels(chunk)]
        if waiting:
            yield StackGroup([ActiveStack(load_stack(level, data, builder, 1), level) for level in waiting], lanes)


def together(stacks: Iterable[Some], size: Callable[[Some], int], most: int) -> Iterator[list[Some]]:
    """Stacks that a GPU trains at the same time: a small one leaves most of it idle.

    As they come, as long as their runs are at most so many; trained ones count, so that the groups stay the same.
    """
    group: list[Some] = []
    for stack in stacks:
        if group and sum(map(size, group)) + size(stack) > most:
            yield group
            group = []
        group.append(stack)
    if group:
        yield group


def fleet(waiting: list[list[RunInTraining]], data: FactorData, builder: PairBuilder) -> Iterator[StackGroup]:
    """The stacks of a group in one convoy, a lane each; one after the other where they do not fit into the memory."""
    if len(waiting) > 1:
        voyages = []
        with suppress(torch.cuda.OutOfMemoryError):
            voyages = [launched(level, data, builder, lane) for lane, level in enumerate(waiting)]
        if voyages:
            yield StackGroup(voyages)
            return
        gc.collect()  # what was launched, which the error held until here
        torch.cuda.empty_cache()
    yield from (StackGroup([ActiveStack(load_stack(level, data, builder, 1), level)]) for level in waiting)


def launched(berths: list[RunInTraining], data: FactorData, builder: PairBuilder, place: int) -> ActiveStack:
    """A voyage in a lane of a GPU."""
    lane = lane_stream(data.device, place)
    lane.wait_stream(torch.cuda.current_stream(data.device))  # where the data are made
    with torch.cuda.stream(lane):
        return ActiveStack(load_stack(berths, data, builder, 1, place), berths, lane)


def planned(berths: list[RunInTraining], data: FactorData, builder: PairBuilder) -> Iterator[list[RunInTraining]]:
    """Runs that go into one stack: as many as a CPU likes, or as fit into a GPU's memory, evenly shared out."""
    for _, group in groupby(sorted(berths, key=lambda b: b.spec.stack_key()), lambda b: b.spec.stack_key()):
        members = list(group)
        if data.device.type == "cpu":
            size = STACK
        elif all(berth.trained for berth in members):
            size = len(members)
        else:
            most = capacity(members[0].spec, data, builder, len(members))
            size = ceil(len(members) / ceil(len(members) / most))
        yield from (members[i : i + size] for i in range(0, len(members), size))


def levels(chunk: list[RunInTraining]) -> Iterator[list[RunInTraining]]:
    """Those of a stack that are still to be trained, by the step they are at."""
    waiting = sorted((b for b in chunk if not b.trained), key=lambda b: b.step)
    yield from (list(level) for _, level in groupby(waiting, lambda b: b.step))


def load_stack(
    berths: list[RunInTraining], data: FactorData, builder: PairBuilder, threads: int, lane: int = 0
) -> Stack:
    """A stack as its checkpoints left it, or at step 0."""
    stack = Stack([berth.spec for berth in berths], data, builder, threads=threads, lane=lane)
    stack.resume(berths[0].step)
    for i, berth in enumerate(berths):
        state = berth.held
        if state is None and berth.step and berth.folder is not None:
            state, berth.log = berth.folder.read_checkpoint()
        if state is not None:
            try:
                stack.load_state(i, state)
            except (KeyError, RuntimeError) as error:
                where = berth.spec.id if berth.folder is None else berth.folder.path
                raise UserError(
                    f"The checkpoint in {where} does not fit the network of its spec ({error}). It comes "
                    "from another version: delete that file to train the run again from step 0."
                ) from error
    return stack
