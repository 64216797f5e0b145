"""The training loop.

`schedule` calls `train_group` once for each group of stacks. The loop takes the training steps of these stacks, writes
logs and checkpoints, records which runs diverge and writes the finished runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil

import torch
from torch import Tensor

from unbraid.accel.allocator import freed_memory_kept
from unbraid.data.dataset import FactorData
from unbraid.methods.method import Method
from unbraid.nets.vae import PairBuilder
from unbraid.noise import Noise
from unbraid.runs.network import build_net
from unbraid.runs.run import Run, StoredRun, load_weights
from unbraid.runs.spec import RunSpec
from unbraid.runtime.progress import ProgressCallback
from unbraid.runtime.signals import DeferredSignals
from unbraid.training.active import ActiveStack, RunInTraining, StackGroup, rounding_depends_on_stack
from unbraid.training.objective import FINISH
from unbraid.training.stack import Stack
from unbraid.training.threads import map_in_threads

MAX_LOG_LINES = 200  # per run
REPORT_SECONDS = 0.2  # minimum time between two progress reports
MAX_CHECKPOINT_FRACTION = 0.02  # maximum fraction of the running time that is spent on writing checkpoints


@dataclass
class Monitor:
    """Reports progress and decides when the next checkpoint is due.

    A model-step is one training step of one run.

    Attributes:
        runs: Every run of the command that has to be trained.
        report: Function that shows the progress, or None.
        checkpoint_seconds: The minimum time between two checkpoints.
        signals: Signals that ask the process to end.
        model_steps: The number of model-steps since the last report.
        last_report: The time of the last report.
        next_checkpoint: The time at which the next checkpoint is due.
    """

    runs: list[RunInTraining]
    report: ProgressCallback | None
    checkpoint_seconds: float
    signals: DeferredSignals = field(default_factory=DeferredSignals)
    model_steps: int = 0
    last_report: float = field(default_factory=time.monotonic)
    next_checkpoint: float = field(init=False)

    def __post_init__(self) -> None:
        self.next_checkpoint = self.last_report + self.checkpoint_seconds

    def report_step(self, stacks: list[ActiveStack]) -> None:
        """Count one step of these stacks. If a report is due, report the total steps, the rate and the mean loss."""
        runs = sum(len(active.members) for active in stacks)
        self.model_steps += runs
        now = time.monotonic()
        if self.report is not None and now >= self.last_report + REPORT_SECONDS:
            loss = sum(map(total_loss, stacks)) / runs  # this waits for the GPU
            now = time.monotonic()
            rate = self.model_steps / (now - self.last_report)
            self.model_steps, self.last_report = 0, now
            note = f"{runs} run{'s' * (runs > 1)} together, {rate:.0f} model-steps/s, loss {loss:.1f}"
            self.report(sum(run.step for run in self.runs), note)

    def checkpoint_due(self) -> bool:
        """Return whether enough time has passed or a signal has asked the process to end."""
        return self.signals.received is not None or time.monotonic() >= self.next_checkpoint

    def finish_checkpoint(self, seconds: float) -> None:
        """End the process if a signal has asked for it. Otherwise set the time of the next checkpoint.

        Args:
            seconds: Duration of this checkpoint. Checkpoints that take long are written less often.
        """
        self.signals.deliver()
        self.next_checkpoint = time.monotonic() + max(self.checkpoint_seconds, seconds / MAX_CHECKPOINT_FRACTION)


def total_loss(active: ActiveStack) -> float:
    """Return the sum over runs of the loss at the last step."""
    with active.on_stream():
        return float(active.stack.last[[i for i, _ in active.members], 0].sum())


def train_group(group: StackGroup, data: FactorData, builder: PairBuilder, monitor: Monitor) -> list[Run]:
    """Train the stacks of a group to their last step and write the finished runs.

    Raises:
        torch.cuda.OutOfMemoryError: If the group does not fit into the memory of the GPU. Before the error is raised,
            each run receives its state after its last complete step, from which a smaller group can resume.
    """
    stacks: list[ActiveStack] = []
    if rounding_depends_on_stack(data.device):
        for runs in group.stacks:
            record_stack(runs)
    try:
        concurrent = data.device.type == "cuda" and len(group.stacks) > 1
        for i, runs in enumerate(group.stacks):
            stacks.append(ActiveStack.start(runs, data, builder, group.run_threads, i if concurrent else None))
        with freed_memory_kept(data.device):
            advance_to_end(stacks, group.stack_threads, monitor)
    except torch.cuda.OutOfMemoryError:
        for active in stacks:
            active.store_states()
        raise
    return [run for active in stacks for run in finish_stack(active, data, builder)]


def record_stack(runs: list[RunInTraining]) -> None:
    """Write the list of the runs of a stack to the folder of each run. With idle rows, it was written before."""
    if not any(run.idle for run in runs):
        for run in runs:
            run.stack = [other.spec.id for other in runs]
            if run.folder is not None:
                run.folder.write_stack(run.stack)


def advance_to_end(stacks: list[ActiveStack], threads: int, monitor: Monitor) -> None:
    """Train every stack until it is finished."""
    while unfinished := [active for active in stacks if not active.finished]:
        checkpoint, started = monitor.checkpoint_due(), time.monotonic()
        advance(unfinished, threads, checkpoint)
        if checkpoint:
            monitor.finish_checkpoint(time.monotonic() - started)
        monitor.report_step(unfinished)


def advance(stacks: list[ActiveStack], threads: int, checkpoint: bool) -> None:
    """Take one step of each stack, either on several threads or one stack after another.

    If the step of a stack fails, the step of every earlier stack is complete.
    """
    if threads > 1:
        map_in_threads(threads, Stack.advance, [active.stack for active in stacks])
    for active in stacks:
        with active.on_stream():
            if threads == 1:
                active.stack.advance()
            record_step(active, checkpoint)


def record_step(active: ActiveStack, checkpoint: bool) -> None:
    """Update the step of each run, append to the log if a line is due, and write checkpoints if `checkpoint`."""
    stack, runs = active.stack, active.runs
    for run in runs:
        run.step = stack.step
    log = stack.step % max(1, ceil(active.steps / MAX_LOG_LINES)) == 0 or stack.step == active.steps
    if log or checkpoint:
        record_divergences(stack, runs)
    if log:
        append_log(stack, runs)
    if checkpoint:
        write_checkpoints(stack, runs)


def record_divergences(stack: Stack, runs: list[RunInTraining]) -> None:
    """Record which runs have become non-finite. The other runs continue to train."""
    for divergence in stack.divergences():
        if not runs[divergence.member].idle:
            runs[divergence.member].divergence = divergence


def append_log(stack: Stack, runs: list[RunInTraining]) -> None:
    """Append one line to the log of each run, with the step and the mean of each term since the previous line."""
    for i, (run, means) in enumerate(zip(runs, stack.pop_mean_terms(), strict=True)):
        if run.divergence is None and not run.idle:
            held_out = {} if run.validate is None else run.validate(stack.weights(i), stack.step)
            run.log.append({"step": stack.step, **means, **held_out})
            if run.on_record is not None:
                run.on_record(run.spec, dict(run.log[-1]))


def write_checkpoints(stack: Stack, runs: list[RunInTraining]) -> None:
    """Write a checkpoint of every run of the stack that is neither finished nor diverged."""
    for state, run in zip(stack.states(), runs, strict=True):
        if run.folder is not None and run.divergence is None and run.step < run.spec.steps:
            run.folder.write_checkpoint(stack.step, state, run.log)
            if run.on_log is not None:
                run.on_log(run.folder, run.log)


def finish_stack(active: ActiveStack, data: FactorData, builder: PairBuilder) -> Iterator[Run]:
    """Write and yield the runs of a stack, one after another."""
    active.wait_for_stream()
    for i, run in active.members:
        yield finish_run(active.stack, i, run, data, builder)


@torch.no_grad()
def finished_weights(
    spec: RunSpec, weights: dict[str, Tensor], data: FactorData, builder: PairBuilder
) -> dict[str, Tensor]:
    """Return the weights of a trained run after the last change by its method (see `Method.finish`)."""
    if type(spec.method).finish is Method.finish:
        return weights
    net = load_weights(build_net(spec, data.shape, builder), weights, spec.id).to(data.device)
    seed = torch.tensor(spec.seed, device=data.device)
    spec.method.finish(net, data, Noise.from_seed(seed, torch.zeros_like(seed), FINISH))
    return {name: value.cpu().contiguous() for name, value in net.state_dict().items()}


def finish_run(stack: Stack, i: int, run: RunInTraining, data: FactorData, builder: PairBuilder) -> Run:
    """Write member `i` of a stack to the folder of its run, and return the trained run."""
    end, weights = run.divergence, stack.weights(i)
    if end is None and stack.step > 0:
        weights = finished_weights(run.spec, weights, data, builder)
    divergence = None if end is None else {"step": end.step, "term": end.term}
    if run.folder is not None:
        run.folder.finish(stack.step, weights, run.log, divergence)
        if run.on_log is not None:
            run.on_log(run.folder, run.log)
        return StoredRun.trained(run.folder, run.spec, data.shape, builder, data.device)
    net = load_weights(build_net(run.spec, data.shape, builder), weights, run.spec.id).to(data.device)
    return Run(run.spec, net, run.log, divergence=divergence)
