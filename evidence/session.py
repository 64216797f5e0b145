"""Run several parts of the evidence at the same time, in processes that survive the shell that starts them.

A machine with a GPU is often lent for a short time, with one command after another. A *chain* is a process that runs
some parts one after another. Chains share the GPU through NVIDIA's MPS if it is installed. This needs Linux.

Usage:
    python evidence/session.py start --chain PART [PART ...] [--chain PART ...]
        start one process per chain, beside those that already run; wait until each has trained its first steps or has
        failed; end those that take longer than four minutes; the exit status is 1 if a chain has failed or was ended
    python evidence/session.py wait SECONDS [--copy FOLDER]
        wait until the time has passed, a chain has failed or all have finished; then print the state of the chains,
        add the finished runs of parts that still run to the table of results, and copy the table to FOLDER, with an
        archive of the models that make_zoo.py chooses from the runs of this machine; the exit status is 1 if a chain
        has failed
    python evidence/session.py stop
        end all chains
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "session"
RUNS = Path(__file__).parent / "runs"
RESULTS = Path(__file__).parent / "results.csv"
FIRST_STEPS_SECONDS = 240.0  # maximum time until a chain has trained its first steps; kernels are compiled before
POLL_SECONDS = 1.0
LINE = 300  # characters of a line of a log that are printed


@dataclass(frozen=True)
class Chain:
    """A process that runs parts one after another.

    Attributes:
        parts: The names of the parts.
        pid: The process, which leads a session of its own.
        log: The file with its output.
    """

    parts: tuple[str, ...]
    pid: int
    log: str

    @property
    def status(self) -> int | None:
        """The exit status, None while the process runs, or -1 if it has ended without writing a status."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)  # otherwise a child that has ended would still exist
        exists = Path(
            f"/proc/{self.pid}"
        ).exists()  # before the status is read, because the process writes it at its end
        with contextlib.suppress(FileNotFoundError):
            return int(Path(f"{self.log}.status").read_text())
        return None if exists else -1

    @property
    def trains(self) -> bool:
        """Whether the process has finished without an error or has trained its first steps."""
        return self.status == 0 or "model-steps/s" in self.output()

    def output(self) -> str:
        """The output so far."""
        return Path(self.log).read_text(errors="replace")

    def describe(self) -> str:
        """Return a line with the state of the chain, and the end of its output."""
        status = self.status
        state = {None: "runs", 0: "has finished"}.get(status, f"has failed with status {status}")
        lines = [line for line in re.split(r"[\r\n]+", self.output()) if line.strip()]
        shown = lines[-1:] if status is None else lines[-8:]
        return "\n    ".join([f"{' '.join(self.parts)}: {state}", *(line[:LINE] for line in shown)])


def start_chain(parts: Sequence[str], index: int, command: Sequence[str] | None = None) -> Chain:
    """Start a chain in a session of its own, so that it does not end with this process or with its terminal.

    `command` replaces the command that runs the parts, for tests.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = FOLDER / f"chain{index}.log"
    Path(f"{log}.status").unlink(missing_ok=True)
    words = list(command or [sys.executable, str(Path(__file__).resolve()), "run", *parts])
    script = '"$@"; echo $? > "$0.new"; mv "$0.new" "$0"'
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    shell = ["/bin/sh", "-c", script, f"{log}.status", *words]
    pid = os.posix_spawn(shell[0], shell, environment, file_actions=files, setsid=True)
    return Chain(tuple(parts), pid, str(log))


def share_gpu() -> None:
    """Start NVIDIA's MPS if it is installed, so that the kernels of several processes run at the same time."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        return
    pipes = FOLDER / "mps"
    pipes.mkdir(parents=True, exist_ok=True)
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = str(pipes)
    nowhere = subprocess.DEVNULL
    subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False, stdin=nowhere, stdout=nowhere, stderr=nowhere)


def wait_for_first_steps(chains: Sequence[Chain], seconds: float = FIRST_STEPS_SECONDS) -> bool:
    """Wait until every chain has trained its first steps or has failed, for at most `seconds`.

    Return whether all of them have trained and none has failed. A chain that fails does not end the wait for the
    others.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end and not all(chain.trains or chain.status is not None for chain in chains):
        time.sleep(POLL_SECONDS)
    return all(chain.trains and chain.status in (None, 0) for chain in chains)


def wait(chains: Sequence[Chain], seconds: float) -> bool:
    """Wait until the time has passed, all chains have finished or one has failed. Return whether none has failed."""
    end = time.monotonic() + seconds
    while True:
        states = [chain.status for chain in chains]
        if any(state not in (None, 0) for state in states):
            return False
        if time.monotonic() >= end or all(state == 0 for state in states):
            return True
        time.sleep(min(POLL_SECONDS, max(0.0, end - time.monotonic())))


def stop(chains: Sequence[Chain]) -> None:
    """End all chains. Their finished runs stay in their folders, and a new start continues the others."""
    for chain in chains:
        if chain.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(chain.pid, signal.SIGTERM)


def read_chains() -> list[Chain]:
    """Return the chains that were started last."""
    path = FOLDER / "chains.json"
    if not path.exists():
        return []
    return [Chain(tuple(row["parts"]), row["pid"], row["log"]) for row in json.loads(path.read_text())]


def write_chains(chains: Sequence[Chain]) -> None:
    """Record the chains, so that other commands find them."""
    (FOLDER / "chains.json").write_text(json.dumps([asdict(chain) for chain in chains]))


def run(names: Sequence[str]) -> int:
    """Run parts one after another. Continue after a part that fails. Return 1 if one has failed."""
    from parts import find_part, read_plan, run_part

    plan, failed = read_plan(), 0
    for name in names:
        try:
            run_part(find_part(name, plan))
        except Exception:  # the next part may still succeed
            print(f"session: {name} has failed:\n{traceback.format_exc()}", flush=True)
            failed = 1
    return failed


def start(chains: Sequence[Sequence[str]]) -> int:
    """Start chains. Return 0 when all of them train, or 1 if one has failed or was ended because it does not train."""
    from parts import find_part, read_plan

    plan = read_plan()
    for name in (name for parts in chains for name in parts):
        find_part(name, plan)  # an unknown name is an error before anything is started
    share_gpu()
    earlier, started = read_chains(), list[Chain]()
    for parts in chains:
        started.append(start_chain(parts, len(earlier) + len(started)))
        write_chains([*earlier, *started])
    running = wait_for_first_steps(started)
    for chain in started:
        print(chain.describe(), flush=True)
    silent = [chain for chain in started if not chain.trains and chain.status is None]
    stop(silent)
    for chain in silent:
        print(f"session: {' '.join(chain.parts)} has not begun to train, so it was ended.", flush=True)
    return int(not running)


def collect_finished_runs(names: Sequence[str]) -> None:
    """Add the finished and scored runs of parts to the table of results. The parts may still run."""
    from parts import collect, find_part, read_plan

    plan = read_plan()
    for name in names:
        if (RUNS / name).exists():
            collect(find_part(name, plan), RUNS / name, RESULTS, running=True)


def copy_results(folder: Path, parts: Sequence[str] = ()) -> None:
    """Copy the table of results to a folder, and pack the models that `make_zoo` chooses from all finished runs.

    Finished runs of `parts` are added to the table first.
    """
    from make_zoo import choose, write_models, write_tar
    from unbraid.errors import UserError
    from unbraid.runs.search import search_runs

    folder.mkdir(parents=True, exist_ok=True)
    collect_finished_runs(parts)
    if RESULTS.exists():
        shutil.copy(RESULTS, folder)
    try:
        chosen = choose(search_runs(RUNS))
    except UserError as error:  # nothing is finished yet
        print(f"session: no models. {error}", flush=True)
        return
    models = FOLDER / "models"
    shutil.rmtree(models, ignore_errors=True)  # other runs may be chosen now
    for line in write_models(chosen, models):
        print(line, flush=True)
    write_tar(models, folder / "models.tar.gz")


def main() -> int:
    """Parse the command line, and start, wait for or stop chains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("start").add_argument("--chain", nargs="+", action="append", required=True, metavar="PART")
    waiting = commands.add_parser("wait")
    waiting.add_argument("seconds", type=float)
    waiting.add_argument("--copy", type=Path, metavar="FOLDER")
    commands.add_parser("stop")
    commands.add_parser("run").add_argument("parts", nargs="+")
    options = parser.parse_args()
    if options.command == "start":
        return start(options.chain)
    if options.command == "run":
        return run(options.parts)
    chains = read_chains()
    if not chains:
        sys.exit("session: no chain was started. Start one: python evidence/session.py start --chain PART")
    if options.command == "stop":
        stop(chains)
        return 0
    good = wait(chains, options.seconds)
    for chain in chains:
        print(chain.describe(), flush=True)
    if options.copy is not None:
        copy_results(options.copy, [name for chain in chains for name in chain.parts])
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
