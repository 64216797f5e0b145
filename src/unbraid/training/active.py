"""Records of training in progress: a run, a stack of runs, and a group of stacks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from unbraid.accel.capture import stack_stream
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.nets.vae import PairBuilder
from unbraid.runs.folder import Log, RunFolder
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Divergence, Stack


@dataclass
class RunInTraining:
    """A run while it trains: its folder, its step, its log and how it ended."""

    spec: RunSpec
    folder: RunFolder | None
    step: int = 0
    log: Log = field(default_factory=list)
    divergence: Divergence | None = None
    trained: bool = False
    state: dict[str, Tensor] | None = None  # to resume from, instead of the checkpoint in the folder
    on_log: Callable[[RunFolder, Log], None] | None = None  # called whenever the log is written to the folder

    @classmethod
    def of(cls, spec: RunSpec, out: Path | None) -> RunInTraining:
        """Create the folder of a spec in `out`, or read the step that its checkpoint has reached."""
        folder = None if out is None else RunFolder.create(out, spec)
        status = "new" if folder is None else folder.status
        step = folder.checkpoint_step() if folder is not None and status == "partial" else 0
        return cls(spec, folder, step, trained=status in ("done", "diverged"))


@dataclass(frozen=True)
class StackGroup:
    """Stacks that train at the same time, each given by its runs. All runs of a stack are at the same step.

    Several stacks share a GPU by one CUDA stream per stack, and a CPU by `stack_threads` threads.
    """

    stacks: list[list[RunInTraining]]
    run_threads: int = 1  # CPU threads that advance different runs of the same stack
    stack_threads: int = 1  # CPU threads that advance different stacks


@dataclass
class ActiveStack:
    """A stack that is loaded and being trained, with its runs."""

    stack: Stack
    runs: list[RunInTraining]
    stream: torch.cuda.Stream | None = None  # None: the current stream

    @classmethod
    def start(
        cls,
        runs: list[RunInTraining],
        data: FactorData,
        builder: PairBuilder,
        threads: int = 1,
        stream_index: int | None = None,
    ) -> ActiveStack:
        """Load a stack, on a CUDA stream of its own if `stream_index` is given."""
        if stream_index is None:
            return cls(load_stack(runs, data, builder, threads), runs)
        stream = stack_stream(data.device, stream_index)
        stream.wait_stream(torch.cuda.current_stream(data.device))  # which may still be writing the data
        with torch.cuda.stream(stream):
            return cls(load_stack(runs, data, builder, threads, stream_index), runs, stream)

    def on_stream(self) -> AbstractContextManager[None]:
        """Launch GPU work on the stream of this stack. All work on the stack must be launched inside this context."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def wait_for_stream(self) -> None:
        """Make the current stream wait for all work that the stream of this stack still has to do."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)

    @property
    def steps(self) -> int:
        """The number of steps to train in total."""
        return self.runs[0].spec.steps

    @property
    def finished(self) -> bool:
        """Whether the last step is done or every run has diverged."""
        return self.stack.step >= self.steps or all(run.divergence is not None for run in self.runs)

    def store_states(self) -> None:
        """Copy the state after the last complete step into each run, so that training can resume from it."""
        self.wait_for_stream()
        for run, state in zip(self.runs, self.stack.states(), strict=True):
            run.state, run.step = state, self.stack.step


def load_stack(
    runs: list[RunInTraining], data: FactorData, builder: PairBuilder, threads: int, stream_index: int = 0
) -> Stack:
    """Create a stack from the states or checkpoints of its runs, or at step 0 if they have none."""
    stack = Stack([run.spec for run in runs], data, builder, threads=threads, stream_index=stream_index)
    stack.resume(runs[0].step)
    for i, run in enumerate(runs):
        state = run.state
        if state is None and run.step and run.folder is not None:
            state, run.log = run.folder.read_checkpoint()
        if state is not None:
            load_state(stack, i, state, run)
    return stack


def load_state(stack: Stack, i: int, state: dict[str, Tensor], run: RunInTraining) -> None:
    """Load a state into row `i` of a stack.

    Raises:
        UserError: If the state does not fit the network of the run.
    """
    try:
        stack.load_state(i, state)
    except (KeyError, RuntimeError) as error:
        place = run.spec.id if run.folder is None else run.folder.path
        raise UserError(
            f"The checkpoint in {place} does not fit the network of its spec ({error}). It was written by another "
            "version. Delete that file to train the run again from step 0."
        ) from error
