"""How specs become trained runs: who advances with whom, logs, checkpoints, and what diverges."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from math import ceil
from pathlib import Path

import torch
from torch import Tensor

from unbraid.data.base import FactorData
from unbraid.engine.memory import capacity
from unbraid.engine.stack import Divergence, Stack, workers
from unbraid.errors import Refusal
from unbraid.nets.build import build_net
from unbraid.nets.vae import PairBuilder
from unbraid.progress import Report
from unbraid.run import Run, load_weights
from unbraid.spec import RunSpec
from unbraid.store import Log, RunDir

LOG_LINES = 200  # at most this many lines in a run's log
STACK = 16  # runs in a stack on a CPU, at most
TELL_SECONDS = 0.2  # between reports, at least
LANES = 4  # threads of Python that pay, at most: beyond that they wait for each other
CHECKPOINT_SHARE = 0.02  # of the time, at most, goes into writing checkpoints


@dataclass
class Berth:
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
    def of(cls, spec: RunSpec, out: Path | None) -> Berth:
        """A place for a spec, at the step its folder left it."""
        folder = None if out is None else RunDir.create(out, spec)
        status = "new" if folder is None else folder.status
        step = folder.checkpoint_step() if folder is not None and status == "partial" else 0
        return cls(spec, folder, step, trained=status in ("done", "diverged"))


@dataclass
class Voyage:
    """A stack under way with its runs."""

    stack: Stack
    berths: list[Berth]

    @property
    def steps(self) -> int:
        """Where it ends."""
        return self.berths[0].spec.steps

    @property
    def over(self) -> bool:
        """Whether the last step is taken, or no run is left to take one."""
        return self.stack.step >= self.steps or all(berth.divergence is not None for berth in self.berths)


@dataclass
class Convoy:
    """Voyages that advance together: one stack, or on a CPU several stacks of one run in lanes that share the cores."""

    voyages: list[Voyage]
    lanes: int = 1

    def advance(self) -> None:
        """One step of every voyage that is not over."""
        stacks = [voyage.stack for voyage in self.voyages if not voyage.over]
        if self.lanes > 1:
            list(workers(self.lanes).map(Stack.advance, stacks))
        else:
            for stack in stacks:
                stack.advance()


def convoys(berths: list[Berth], data: FactorData, builder: PairBuilder) -> Iterator[Convoy]:
    """Everything that has to be trained, in the order it is to be done, each part loaded when its turn comes.

    Who advances with whom, and so on how many threads, follows from the specs alone, trained ones included: the same
    command gives the same arithmetic however often it was interrupted, even if that left runs at different steps.
    """
    chunks = list(planned(berths, data, builder))
    lanes = min(LANES, torch.get_num_threads()) if data.device.type == "cpu" else 1
    alone = [chunk for chunk in chunks if len(chunk) == 1]
    beside = len(alone) > 1 and lanes > 1
    for chunk in chunks:
        if len(chunk) > 1 or not beside:
            for level in levels(chunk):
                yield Convoy([Voyage(load_stack(level, data, builder, min(lanes, len(chunk))), level)])
    for i in range(0, len(alone) if beside else 0, lanes):
        waiting = [level for chunk in alone[i : i + lanes] for level in levels(chunk)]
        if waiting:
            yield Convoy([Voyage(load_stack(level, data, builder, 1), level) for level in waiting], lanes)


def planned(berths: list[Berth], data: FactorData, builder: PairBuilder) -> Iterator[list[Berth]]:
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


def levels(chunk: list[Berth]) -> Iterator[list[Berth]]:
    """Those of a stack that are still to be trained, by the step they are at."""
    waiting = sorted((b for b in chunk if not b.trained), key=lambda b: b.step)
    yield from (list(level) for _, level in groupby(waiting, lambda b: b.step))


def load_stack(berths: list[Berth], data: FactorData, builder: PairBuilder, threads: int) -> Stack:
    """A stack as its checkpoints left it, or at step 0."""
    stack = Stack([berth.spec for berth in berths], data, builder, threads=threads)
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
                raise Refusal(
                    f"The checkpoint in {where} does not fit the network of its spec ({error}). It comes "
                    "from another version: delete that file to train the run again from step 0."
                ) from error
    return stack


@dataclass
class Watch:
    """Tells how training goes and when the next checkpoint is due."""

    berths: list[Berth]
    report: Report | None
    checkpoint_seconds: float
    begun: float = field(default_factory=time.monotonic)
    taken: int = 0
    due: float = field(init=False)
    told: float = field(init=False)

    def __post_init__(self) -> None:
        self.due = self.begun + self.checkpoint_seconds
        self.told = self.begun

    def tell(self, stacks: list[Stack]) -> None:
        """Report model-steps done, their present rate and the mean loss of the runs under way, not at every step."""
        runs = sum(len(stack) for stack in stacks)
        self.taken += runs
        now = time.monotonic()
        if self.report is not None and now >= self.told + TELL_SECONDS:
            loss = float(torch.cat([stack.last[:, 0] for stack in stacks]).mean())  # this waits for a GPU
            now = time.monotonic()
            rate = self.taken / (now - self.told)
            self.taken, self.told = 0, now
            note = f"{runs} run{'s' * (runs > 1)} together, {rate:.0f} model-steps/s, loss {loss:.1f}"
            self.report(sum(berth.step for berth in self.berths), note)

    def checkpoint_due(self) -> bool:
        return time.monotonic() >= self.due

    def checkpoint_taken(self, cost: float) -> None:
        """The next one comes later if writing is slow."""
        self.due = time.monotonic() + max(self.checkpoint_seconds, cost / CHECKPOINT_SHARE)


def sail(convoy: Convoy, watch: Watch, data: FactorData, builder: PairBuilder) -> Iterator[Run]:
    """Train to the last step and give back the runs; the stacks are gone when the last run is asked for.

    A stack that a GPU has no memory for goes on as two halves, one after the other, from the step it was at.
    """
    halves: list[list[Berth]] = []
    try:
        train_convoy(convoy, watch)
    except torch.cuda.OutOfMemoryError:
        halves = halved(convoy.voyages[0], data.device)  # a GPU has one at a time
    else:
        for voyage in convoy.voyages:
            yield from (landed(voyage.stack, i, berth, data, builder) for i, berth in enumerate(voyage.berths))
            del voyage
    convoy.voyages.clear()
    if halves:
        gc.collect()  # what the step that failed may have left in cycles
        torch.cuda.empty_cache()
    for half in halves:
        yield from sail(Convoy([Voyage(load_stack(half, data, builder, 1), half)]), watch, data, builder)


def halved(voyage: Voyage, device: torch.device) -> list[list[Berth]]:
    """The runs of a stack in two parts, each run with its state as it is after the last whole step."""
    berths, count = voyage.berths, len(voyage.berths)
    if count == 1:
        raise Refusal(
            f"One run of batch {berths[0].spec.batch} does not fit into the free memory of {device}. Take a smaller "
            "batch or network, or end what else uses the device."
        )
    for berth, state in zip(berths, voyage.stack.states(), strict=True):
        berth.held = state
    warnings.warn(
        f"{count} runs together do not fit into the memory of {device}: going on with {ceil(count / 2)} at a time.",
        RuntimeWarning,
        stacklevel=2,
    )
    return [berths[: ceil(count / 2)], berths[ceil(count / 2) :]]


def train_convoy(convoy: Convoy, watch: Watch) -> None:
    """Advance to the last step, logging, checkpointing and setting aside what diverges."""
    while not all(voyage.over for voyage in convoy.voyages):
        under_way = [voyage for voyage in convoy.voyages if not voyage.over]
        convoy.advance()
        due = watch.checkpoint_due()
        begun = time.monotonic()
        for voyage in under_way:
            keep_books(voyage.stack, voyage.berths, due)
        if due:
            watch.checkpoint_taken(time.monotonic() - begun)
        watch.tell([voyage.stack for voyage in under_way])


def keep_books(stack: Stack, berths: list[Berth], checkpoint: bool) -> None:
    """After a step: note it, and if it is time write the log and a checkpoint."""
    steps = berths[0].spec.steps
    for berth in berths:
        berth.step = stack.step
    log = stack.step % max(1, ceil(steps / LOG_LINES)) == 0 or stack.step == steps
    if log or checkpoint:
        set_aside(stack, berths)
    if log:
        write_log(stack, berths)
    if checkpoint:
        save(stack, berths)


def set_aside(stack: Stack, berths: list[Berth]) -> None:
    """Name the runs that are no longer finite; the others go on."""
    for found in stack.divergences():
        berths[found.member].divergence = found


def write_log(stack: Stack, berths: list[Berth]) -> None:
    """A line a run: the step and the means of its terms since the last line."""
    for berth, means in zip(berths, stack.means(), strict=True):
        if berth.divergence is None:
            berth.log.append({"step": stack.step, **means})


def save(stack: Stack, berths: list[Berth]) -> None:
    """Checkpoint every run of the stack that is still on its way."""
    for state, berth in zip(stack.states(), berths, strict=True):
        if berth.folder is not None and berth.divergence is None and berth.step < berth.spec.steps:
            berth.folder.write_checkpoint(stack.step, state, berth.log)
            if berth.follow is not None:
                berth.follow(berth.folder, berth.log)


def landed(stack: Stack, i: int, berth: Berth, data: FactorData, builder: PairBuilder) -> Run:
    """The trained run, written to its folder."""
    weights = stack.weights(i)
    end = berth.divergence
    found = None if end is None else {"step": end.step, "term": end.term}
    if berth.folder is not None:
        berth.folder.finish(stack.step, weights, berth.log, found)
        if berth.follow is not None:
            berth.follow(berth.folder, berth.log)
    net = load_weights(build_net(berth.spec, data.shape, builder), weights, berth.spec.id).to(data.device)
    return Run(berth.spec, net, berth.log, None if berth.folder is None else berth.folder.path, found)
