"""Running commands in forked processes, which start fast because everything is imported before the fork."""

from __future__ import annotations

import fcntl
import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

CPU_SECONDS = 240.0  # of computing, after which a command counts as hanging
IDLE_SECONDS = 300.0  # without any computing, after which a command counts as hanging
WALL_SECONDS = 7200.0  # after which a command counts as hanging in any case
LOOK_SECONDS = 1.0  # between two readings of the time that a command has computed
MEMORY = 4 * 2**30  # bytes that a command may allocate
PIPE_SIZE = 2**20  # bytes of standard error that fit into the pipe
FILE_SIZE = 2**28  # bytes that a command may write to one file
HANG = -int(signal.SIGALRM)  # the status of a command that was ended because it hung
MODULES = (
    "analysis", "studies.runner", "studies.appearance", "studies.publishing", "reporting.page", "reporting.explore",
    "pictures.pair", "exporting.export", "scoring.selection", "scoring.comparison", "reproduction", "manipulation",
    "runs.results", "adoption.adopt", "reasoning.evaluate",
)  # fmt: skip


def preload() -> None:
    """Import everything that commands import."""
    import torch

    from unbraid.cli.dispatch import COMMANDS
    from unbraid.runtime import provenance

    torch.set_num_threads(1)
    provenance.git_commit()  # it is kept: files record the commit, which may change while the campaign runs
    for command in COMMANDS.values():
        importlib.import_module(f"unbraid.cli.{command.module}")
    for name in MODULES:
        importlib.import_module(f"unbraid.{name}")
    import matplotlib.pyplot  # noqa: F401
    import pandas  # noqa: F401
    import sklearn.linear_model  # noqa: F401


class Watch:
    """Decides whether a command hangs.

    The time that it has computed counts, not the time that has passed, because other programs may use the cores.
    """

    def __init__(self, group: int) -> None:
        self.group, self.begin = group, time.monotonic()
        self.looked = self.progressed = self.begin
        self.computed = 0.0

    def hangs(self) -> bool:
        """Return whether the command has computed too long, or waits for something that does not come."""
        now = time.monotonic()
        if now - self.looked < LOOK_SECONDS:
            return False
        computed = cpu_seconds(self.group)
        if computed != self.computed:
            self.progressed = now
        self.looked, self.computed = now, computed
        return computed > CPU_SECONDS or now - self.progressed > IDLE_SECONDS or now - self.begin > WALL_SECONDS


def cpu_seconds(group: int) -> float:
    """Return how long the processes of a group and their ended children have computed."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        if int(fields[2]) == group:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


@dataclass
class Process:
    """A running command.

    Attributes:
        line: Its command line, without the program.
        pid: Its process id, which is also the id of its group.
        errors: The pipe with its standard error. A limit on the size of files does not apply to a pipe.
        status: Its exit status, minus a signal, `HANG`, or None while it runs.
        written: What was read from the pipe.
    """

    line: tuple[str, ...]
    pid: int
    errors: IO[bytes]
    status: int | None = None
    written: bytes = b""

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to the command, but not to its workers. Return whether the command was still running."""
        if self.poll() is None:
            os.kill(self.pid, number)
            return True
        return False

    def poll(self) -> int | None:
        """Return the status, or None if the command is still running."""
        if self.status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def wait(self) -> int:
        """Wait for the end and return the status. A command that hangs is killed."""
        watch = Watch(self.pid)
        while self.poll() is None:
            if watch.hangs():
                os.killpg(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.status = HANG
            time.sleep(0.005)
        assert self.status is not None
        return self.status

    def workers_left(self, seconds: float = 60.0) -> bool:
        """Return whether processes of an ended command still exist after some seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                return False
            time.sleep(0.05)
        os.killpg(self.pid, signal.SIGKILL)
        return True

    @property
    def output(self) -> str:
        """What the command has written to standard error."""
        while piece := self.errors.read(1 << 16):
            self.written += piece
        return self.written.decode(errors="replace")


def start(
    line: Sequence[str],
    folder: Path,
    *,
    prepare: Callable[[], None] = lambda: None,
    output: int | None = None,
) -> Process:
    """Start a command.

    Args:
        line: The command line, without the program.
        folder: The folder in which the command runs.
        prepare: Function that is called in the new process before the command.
        output: The file descriptor for its standard output. By default, the output is discarded.
    """
    readable, writable = os.pipe()
    fcntl.fcntl(readable, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    os.set_blocking(readable, False)
    pid = os.fork()
    if pid == 0:
        _run_command(tuple(line), folder, writable, prepare, output)
    os.close(writable)
    return Process(tuple(line), pid, os.fdopen(readable, "rb", buffering=0))


def run(line: Sequence[str], folder: Path, prepare: Callable[[], None] = lambda: None) -> Process:
    """Run a command until it ends."""
    process = start(line, folder, prepare=prepare)
    process.wait()
    return process


def run_function(function: Callable[[], object], folder: Path) -> Process:
    """Run a function until it ends, with the limits and the error messages of a command."""
    from unbraid.cli import dispatch

    def replace_commands() -> None:
        def call(arguments: Sequence[str]) -> int:
            function()
            return 0

        dispatch.dispatch = call

    return run(("function",), folder, replace_commands)


def _run_command(
    line: tuple[str, ...], folder: Path, errors: int, prepare: Callable[[], None], output: int | None
) -> None:
    """Run a command in this process, which ends here."""
    from unbraid.cli.dispatch import main

    status = 99
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs of a shell
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir(folder)
        os.environ["UNBRAID_DATA"] = str(folder / "data")
        _redirect(errors, output)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
        prepare()
        status = main(list(line))
    except SystemExit as error:
        status = 0 if error.code is None else int(error.code)
    except KeyboardInterrupt:  # before the command has started or after it has ended
        status = 130
    except BaseException as error:
        print(f"Traceback outside of main: {error!r}", file=sys.stderr)
    finally:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            sys.stderr.flush()
        finally:
            os._exit(status)


def _redirect(errors: int, output: int | None) -> None:
    """Discard the standard input, and redirect the standard output and the standard error."""
    out = os.open(os.devnull, os.O_WRONLY) if output is None else output
    opened = (os.open(os.devnull, os.O_RDONLY), out, errors)
    for target, descriptor in enumerate(opened):
        os.dup2(descriptor, target)
    sys.stdout, sys.stderr = (os.fdopen(os.dup(n), "w", errors="backslashreplace") for n in (1, 2))
