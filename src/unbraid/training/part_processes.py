"""Processes that compute the parts of each batch of one run, with one process per device.

The process of the command computes part 0. It starts one worker for each other part and tells the workers when to load
a run and when to take a step. In each step, every process computes the gradient of its part. The gradients are then
averaged with torch.distributed, and every process takes the same step of Adam, so all have the same weights. Only the
process of the command writes files. Workers end with it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.nets.vae import PairBuilder
from unbraid.runs.spec import RunSpec
from unbraid.runtime.signals import SIGNALS
from unbraid.runtime.workers import end_with_parent
from unbraid.training.parts import BatchPart
from unbraid.training.places import Place, check_distributed, places
from unbraid.training.stack import Stack

STEP, READY = b"step", b"ready"  # messages to a worker and from it; all other messages are pickled objects
KILLED = "it was killed, perhaps because memory ran out"
END_SECONDS = 5.0  # time for a worker to end by itself; then it is killed


@dataclass
class Worker:
    """A worker process, seen from the process of the command.

    Attributes:
        device: The device of the worker.
        process: The process.
        connection: The connection to the worker.
    """

    device: str
    process: Any
    connection: Connection

    def send(self, message: bytes) -> None:
        """Send a message, or raise a UserError if the worker has ended."""
        try:
            self.connection.send_bytes(message)
        except OSError:
            self.wait_until_ready()
            raise self.error(KILLED) from None

    def wait_until_ready(self) -> None:
        """Wait until the worker is ready to average, or raise a UserError if it has failed or ended."""
        wait([self.connection, self.process.sentinel])
        message = b""
        with contextlib.suppress(OSError, EOFError):
            message = self.connection.recv_bytes() if self.connection.poll() else b""
        if message != READY:
            raise self.error(message.decode() or KILLED)

    def error(self, reason: str) -> UserError:
        """Return the error for a worker that has failed for this reason."""
        return UserError(
            f"The process that computes a part of each batch on {self.device} must run until the training ends, but "
            f"{reason}. Runs resume from their last checkpoint when the same command is repeated."
        )

    def end(self) -> None:
        """Let the worker end, and kill it if it does not."""
        self.connection.close()
        self.process.join(END_SECONDS)
        if self.process.is_alive():  # it does not end on SIGTERM
            os.kill(self.process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
            self.process.join()


@dataclass(frozen=True)
class FirstPart(BatchPart):
    """The part of the process of the command, which controls the workers.

    Attributes:
        workers: The other processes.
    """

    workers: list[Worker] = field(default_factory=list)

    def load(self, spec: RunSpec, state: dict[str, Tensor], step: int) -> None:
        """Let the workers load the state of a run."""
        for worker in self.workers:
            worker.send(pickled((spec, state, step)))

    def begin_step(self) -> None:
        for worker in self.workers:
            worker.send(STEP)

    def add_up(self, numbers: Tensor) -> None:
        for worker in self.workers:
            worker.wait_until_ready()
        try:
            dist.all_reduce(numbers)
        except RuntimeError:
            for worker in self.workers:
                if wait([worker.process.sentinel], END_SECONDS):
                    worker.wait_until_ready()
            raise


@dataclass(frozen=True)
class WorkerPart(BatchPart):
    """The part of a worker.

    Attributes:
        connection: The connection to the process of the command.
    """

    connection: Connection

    def add_up(self, numbers: Tensor) -> None:
        self.connection.send_bytes(READY)
        dist.all_reduce(numbers)


@contextmanager
def batch_parts(devices: Sequence[str], data: FactorData, builder: PairBuilder) -> Iterator[FirstPart]:
    """Start one worker for each device but the first, and connect this process with them inside this context.

    Args:
        devices: The devices, of which the first is that of this process. They may be equal.
        data: The dataset, on the first device.
        builder: Function that builds the encoder and the decoder.

    Yields:
        The part of this process.

    Raises:
        UserError: If a worker fails, or if this process already uses torch.distributed.
    """
    check_distributed()
    content = pickled((data.to("cpu"), builder))
    with ExitStack() as contexts:
        folder = contexts.enter_context(tempfile.TemporaryDirectory(prefix="unbraid-", ignore_cleanup_errors=True))
        first, *others = places(devices, Path(folder) / "store")
        workers = []
        for place in others:
            workers.append(start_worker(place))
            contexts.callback(workers[-1].end)
        for worker in workers:
            worker.send(content)
        for worker in workers:
            worker.wait_until_ready()
        contexts.enter_context(first.connected())
        yield FirstPart(0, len(devices), workers)


def pickled(value: Any) -> bytes:
    """Return a value as bytes. Classes and functions that a script or notebook defines are included."""
    from joblib.externals.loky.backend.reduction import dumps  # it uses cloudpickle

    try:
        return bytes(dumps(value))
    except Exception as error:  # the types of such errors depend on the value
        raise UserError(
            "Several devices need data, a method and a network that can be sent to other processes with pickle. "
            f"Got: {type(error).__name__}: {error}. Use one device."
        ) from error


def start_worker(place: Place) -> Worker:
    """Start a worker.

    It does not import the script of the user, unlike the processes of multiprocessing. Signals are blocked in it from
    the start, because Ctrl-C is sent to all processes of a terminal. The process of the command completes its step
    when it receives one.
    """
    from joblib.externals.loky.backend import get_context

    ours, theirs = Pipe()
    process = get_context("loky").Process(target=work, args=(place, theirs, os.getpid()), daemon=True)
    with blocked_signals():
        process.start()
    theirs.close()
    return Worker(place.device, process, ours)


@contextmanager
def blocked_signals() -> Iterator[None]:
    """Block signals in this thread, and in processes that it starts, inside this context. Windows has no such block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def work(place: Place, connection: Connection, parent: int) -> None:
    """Compute one part of each batch until the process of the command closes the connection or ends."""
    end_with_parent(parent)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    warnings.simplefilter("ignore")  # the process of the command shows the same warnings
    try:
        data, builder = pickle.loads(connection.recv_bytes())
        data = data.to(place.device)
        connection.send_bytes(READY)
        with place.connected():
            serve(place, connection, data, builder)
    except EOFError:  # the process of the command has closed the connection
        return
    except Exception as error:
        text = f"it raised {type(error).__name__}: {error}".splitlines()[0].rstrip(".")
        with contextlib.suppress(OSError):
            connection.send_bytes(text.encode())
    finally:
        shutil.rmtree(place.store.parent, ignore_errors=True)  # a signal may have ended the process of the command


def serve(place: Place, connection: Connection, data: FactorData, builder: PairBuilder) -> None:
    """Load runs and take steps, as the messages of the process of the command say."""
    stack: Stack | None = None
    part = WorkerPart(place.index, place.count, connection)
    while True:
        message = connection.recv_bytes()
        if message == STEP:
            assert stack is not None
            stack.advance()
            continue
        spec, state, step = pickle.loads(message)
        stack = Stack([spec], data, builder, part=part)
        stack.resume(step)
        stack.load_state(0, state)
