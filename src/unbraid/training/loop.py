"""How specs become trained runs: logs, checkpoints, and what diverges."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import ceil

import torch

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.nets.vae import PairBuilder
from unbraid.runs.network import build_net
from unbraid.runs.run import Run, load_weights
from unbraid.runtime.progress import Report
from unbraid.runtime.signals import Deferred
from unbraid.training.schedule import ActiveStack, RunInTraining, StackGroup, load_stack
from unbraid.training.stack import Stack

LOG_LINES = 200  # at most this many lines in a run's log
TELL_SECONDS = 0.2  # between reports, at least
CHECKPOINT_SHARE = 0.02  # of the time, at most, goes into writing checkpoints


@dataclass
class Watch:
    """Tells how training goes and when the next checkpoint is due."""

    berths: list[RunInTraining]
    report: Report | None
    checkpoint_seconds: float
    signals: Deferred = field(default_factory=Deferred)
    begun: float = field(default_factory=time.monotonic)
    taken: int = 0
    due: float = field(init=False)
    told: float = field(init=False)

    def __post_init__(self) -> None:
        self.due = self.begun + self.checkpoint_seconds
        self.told = self.begun

    def tell(self, voyages: list[ActiveStack]) -> None:
        """Report model-steps done, their present rate and the mean loss of the runs under way, not at every step."""
        runs = sum(len(voyage.stack) for voyage in voyages)
        self.taken += runs
        now = time.monotonic()
        if self.report is not None and now >= self.told + TELL_SECONDS:
            loss = sum(map(total_loss, voyages)) / runs  # this waits for a GPU
            now = time.monotonic()
            rate = self.taken / (now - self.told)
            self.taken, self.told = 0, now
            note = f"{runs} run{'s' * (runs > 1)} together, {rate:.0f} model-steps/s, loss {loss:.1f}"
            self.report(sum(berth.step for berth in self.berths), note)

    def checkpoint_due(self) -> bool:
        """By the clock, or because the process is asked to end."""
        return self.signals.came is not None or time.monotonic() >= self.due

    def checkpoint_taken(self, cost: float) -> None:
        """Now the process may end, if it is asked to. The next one comes later if writing is slow."""
        self.signals.deliver()
        self.due = time.monotonic() + max(self.checkpoint_seconds, cost / CHECKPOINT_SHARE)


def total_loss(voyage: ActiveStack) -> float:
    """Of its runs at the last step."""
    with voyage.at_work():
        return float(voyage.stack.last[:, 0].sum())


def train_group(convoy: StackGroup, watch: Watch, data: FactorData, builder: PairBuilder) -> Iterator[Run]:
    """Train to the last step and give back the runs; the stacks are gone when the last run is asked for.

    Stacks that a GPU has no memory for go on one after the other, and one alone as two halves, from the step it was at.
    """
    parts: list[list[RunInTraining]] = []
    try:
        train_convoy(convoy, watch)
    except torch.cuda.OutOfMemoryError:
        alone = len(convoy.voyages) == 1
        parts = halved(convoy.voyages[0], data.device) if alone else [put_down(v) for v in convoy.voyages]
    else:
        for voyage in convoy.voyages:
            voyage.arrive()
            yield from (finish_run(voyage.stack, i, berth, data, builder) for i, berth in enumerate(voyage.berths))
            del voyage
    convoy.voyages.clear()
    if parts:
        gc.collect()  # what the step that failed may have left in cycles
        torch.cuda.empty_cache()
    for part in parts:
        yield from train_group(
            StackGroup([ActiveStack(load_stack(part, data, builder, 1), part)]), watch, data, builder
        )


def put_down(voyage: ActiveStack) -> list[RunInTraining]:
    """The runs of a stack, each with its state as it is after the last whole step."""
    voyage.arrive()
    for berth, state in zip(voyage.berths, voyage.stack.states(), strict=True):
        berth.held, berth.step = state, voyage.stack.step
    return voyage.berths


def halved(voyage: ActiveStack, device: torch.device) -> list[list[RunInTraining]]:
    """The runs of a stack in two parts."""
    berths, count = put_down(voyage), len(voyage.berths)
    if count == 1:
        raise UserError(
            f"One run of batch {berths[0].spec.batch} does not fit into the free memory of {device}. Take a smaller "
            "batch or network, or end what else uses the device."
        )
    warnings.warn(
        f"{count} runs together do not fit into the memory of {device}: going on with {ceil(count / 2)} at a time.",
        RuntimeWarning,
        stacklevel=2,
    )
    return [berths[: ceil(count / 2)], berths[ceil(count / 2) :]]


def train_convoy(convoy: StackGroup, watch: Watch) -> None:
    """Advance to the last step, logging, checkpointing and setting aside what diverges."""
    while under_way := [voyage for voyage in convoy.voyages if not voyage.over]:
        due, begun = watch.checkpoint_due(), time.monotonic()
        convoy.advance(partial(after_step, checkpoint=due))
        if due:
            watch.checkpoint_taken(time.monotonic() - begun)
        watch.tell(under_way)


def after_step(voyage: ActiveStack, checkpoint: bool) -> None:
    """After a step: note it, and if it is time write the log and a checkpoint."""
    stack, berths = voyage.stack, voyage.berths
    for berth in berths:
        berth.step = stack.step
    log = stack.step % max(1, ceil(voyage.steps / LOG_LINES)) == 0 or stack.step == voyage.steps
    if log or checkpoint:
        set_aside(stack, berths)
    if log:
        write_log(stack, berths)
    if checkpoint:
        save(stack, berths)


def set_aside(stack: Stack, berths: list[RunInTraining]) -> None:
    """Name the runs that are no longer finite; the others go on."""
    for found in stack.divergences():
        berths[found.member].divergence = found


def write_log(stack: Stack, berths: list[RunInTraining]) -> None:
    """A line a run: the step and the means of its terms since the last line."""
    for berth, means in zip(berths, stack.means(), strict=True):
        if berth.divergence is None:
            berth.log.append({"step": stack.step, **means})


def save(stack: Stack, berths: list[RunInTraining]) -> None:
    """Checkpoint every run of the stack that is still on its way."""
    for state, berth in zip(stack.states(), berths, strict=True):
        if berth.folder is not None and berth.divergence is None and berth.step < berth.spec.steps:
            berth.folder.write_checkpoint(stack.step, state, berth.log)
            if berth.follow is not None:
                berth.follow(berth.folder, berth.log)


def finish_run(stack: Stack, i: int, berth: RunInTraining, data: FactorData, builder: PairBuilder) -> Run:
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
