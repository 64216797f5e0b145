"""Records of training in progress.

`RunInTraining` is one run. `StackGroup` lists stacks that train at the same time, and `ActiveStack` is one of these
stacks after it has been loaded. On a GPU, each stack of a group has its own CUDA stream, which is a queue of GPU work.
Work on different streams can overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from unbraid.accel.capture import cuda_stream
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.nets.vae import PairBuilder
from unbraid.runs.folder import Log, RunFolder
from unbraid.runs.run_data import warn_about_changed_files
from unbraid.runs.sources import own_sources
from unbraid.runs.spec import RunSpec
from unbraid.training.parts import BatchPart
from unbraid.training.stack import Stack
from unbraid.training.stack_state import Divergence
from unbraid.training.validation import Validate


def rounding_depends_on_stack(device: torch.device) -> bool:
    """Return whether the last bits of a run depend on the number of runs in its stack.

    On a GPU, launch settings and the order of sums depend on this number. On a CPU, runs are computed one by one.
    """
    return device.type == "cuda"


@dataclass
class RunInTraining:
    """A run and the state of its training.

    Attributes:
        spec: The spec of the run.
        folder: The folder of the run, or None if it is not stored.
        step: The number of training steps taken so far.
        log: The lines of the log so far.
        divergence: The step and the term at which the run became non-finite, or None.
        trained: Whether the run is finished, that is, complete or diverged.
        state: The state to resume from, or None to use the checkpoint in the folder.
        on_log: Function that is called whenever the log is written to the folder.
        on_record: Function of the user that is called with each new line of the log.
        validate: Function that computes the losses on held-out examples, or None if there are none.
        stack: Ids of all runs of the stack in which this run was started on a GPU, or None if there is no such record.
        idle: Whether this is an unused row instead of a run. With idle rows, a resumed stack keeps its original size.
    """

    spec: RunSpec
    folder: RunFolder | None
    step: int = 0
    log: Log = field(default_factory=list)
    divergence: Divergence | None = None
    trained: bool = False
    state: dict[str, Tensor] | None = None
    on_log: Callable[[RunFolder, Log], None] | None = None
    on_record: Callable[[RunSpec, dict[str, float]], None] | None = None
    validate: Validate | None = None
    stack: list[str] | None = None
    idle: bool = False

    @classmethod
    def open(
        cls,
        spec: RunSpec,
        out: Path | None,
        builder: PairBuilder,
        *,
        retrain: bool = False,
        data: str | None = None,
        files: str | None = None,
        gpu: Mapping[str, str] = {},
    ) -> RunInTraining:
        """Create the folder of a run in `out`, or open an existing one and read the step of its checkpoint.

        An existing run cannot be resumed if the user's own code, or the data in memory (whose fingerprint is `data`),
        have changed since it was started. In that case, raise a UserError. If data from the user's own files (whose
        digest is `files`) have changed, warn the user. If `retrain` is true, delete the run and create it again
        instead in both cases. `gpu` names the GPU and the source of its launch settings. It is stored with a new run.
        """
        sources = own_sources(spec, builder)
        folder = None
        if out is not None:
            folder = RunFolder.create(out, spec, sources, retrain=retrain, data=data, files=files, gpu=gpu)
            warn_about_changed_files(folder, files)
        status = "new" if folder is None else folder.status
        step = folder.checkpoint_step() if folder is not None and status == "partial" else 0
        trained = status in ("done", "diverged")
        stack = None if folder is None or trained else folder.read_stack()
        return cls(spec, folder, step, trained=trained, stack=stack)


@dataclass(frozen=True)
class StackGroup:
    """Stacks that train at the same time.

    Attributes:
        stacks: The runs of each stack, and its idle rows. All runs of a stack are at the same step.
        run_threads: Number of CPU threads that compute different runs of the same stack.
        stack_threads: Number of CPU threads that compute different stacks.
    """

    stacks: list[list[RunInTraining]]
    run_threads: int = 1
    stack_threads: int = 1


@dataclass
class ActiveStack:
    """A stack that has been loaded for training, with its runs.

    Attributes:
        stack: The parameters and the optimiser state of all runs.
        runs: The runs and idle rows, in the order of the rows of the stack.
        stream: The CUDA stream of the stack, or None for the current stream.
    """

    stack: Stack
    runs: list[RunInTraining]
    stream: torch.cuda.Stream | None = None

    @classmethod
    def start(
        cls,
        runs: list[RunInTraining],
        data: FactorData,
        builder: PairBuilder,
        threads: int = 1,
        stream_index: int | None = None,
    ) -> ActiveStack:
        """Load a stack. If `stream_index` is given, the stack uses the CUDA stream with this index."""
        if stream_index is None:
            return cls(load_stack(runs, data, builder, threads), runs)
        stream = cuda_stream(data.device, stream_index)
        stream.wait_stream(torch.cuda.current_stream(data.device))  # the current stream may still be writing the data
        with torch.cuda.stream(stream):
            return cls(load_stack(runs, data, builder, threads, stream_index), runs, stream)

    @property
    def members(self) -> list[tuple[int, RunInTraining]]:
        """The runs of the stack, each with the index of its row. Idle rows are left out."""
        return [(i, run) for i, run in enumerate(self.runs) if not run.idle]

    def on_stream(self) -> AbstractContextManager[None]:
        """Return a context in which GPU work uses the stream of this stack. All work on the stack must be inside it."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def wait_for_stream(self) -> None:
        """Make the current stream wait for all work that has been launched on the stream of this stack."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)

    @property
    def steps(self) -> int:
        """The number of training steps of each run."""
        return self.runs[0].spec.steps

    @property
    def finished(self) -> bool:
        """Whether the last step has been taken or every run has diverged."""
        return self.stack.step >= self.steps or all(run.divergence is not None for _, run in self.members)

    def store_states(self) -> None:
        """Copy the state after the last complete step into each run. Training can then resume from it."""
        self.wait_for_stream()
        for run, state in zip(self.runs, self.stack.states(), strict=True):
            run.state, run.step = state, self.stack.step


def load_stack(
    runs: list[RunInTraining],
    data: FactorData,
    builder: PairBuilder,
    threads: int,
    stream_index: int = 0,
    part: BatchPart | None = None,
) -> Stack:
    """Create a stack and load the states or checkpoints of its runs. Runs without either start at step 0.

    Idle rows are computed but never updated.
    """
    stack = Stack([run.spec for run in runs], data, builder, threads=threads, stream_index=stream_index, part=part)
    stack.resume(next(run.step for run in runs if not run.idle))
    stack.stop([i for i, run in enumerate(runs) if run.idle])
    for i, run in enumerate(runs):
        state = run.state
        if state is None and run.step and run.folder is not None:
            state, run.log = run.folder.read_checkpoint()
        if state is not None:
            load_state(stack, i, state, run)
    return stack


def load_state(stack: Stack, i: int, state: dict[str, Tensor], run: RunInTraining) -> None:
    """Load a state into member `i` of a stack.

    Raises:
        UserError: If the state does not fit the network of the run.
    """
    try:
        stack.load_state(i, state)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        location = run.spec.id if run.folder is None else run.folder.path
        raise UserError(
            f"The checkpoint in {location} must fit the network of its spec. Got other tensors instead. The "
            "checkpoint was probably written by another version. Delete it to train the run again from step 0."
        ) from error
