"""Worker processes end with the process that started them, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.command_line import FAST_TRAINING, unbraid

POOL = """
import time
from joblib import delayed
from unbraid.runtime.workers import worker_pool
with worker_pool(2) as pool:
    print("started", flush=True)
    list(pool(delayed(time.sleep)(120) for _ in range(2)))
"""
IDLE_POOL = """
import time
from joblib import delayed
from unbraid.runtime.workers import worker_pool
with worker_pool(2) as pool:
    list(pool(delayed(time.sleep)(0) for _ in range(4)))
    print("started", flush=True)
    time.sleep(120)
"""
DIVIDED = """
import unbraid as ub
def report(spec, record):
    print("started", flush=True) if record["step"] == 100 else None
ub.train("vae", data="toy", steps=20_000, batch=9, devices=["cpu"] * 3, on_log=report, quiet=True)
"""
CATCH_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts its background jobs with Ctrl-C ignored
"""
SCORE = """
import sys
from unbraid.cli import main
from unbraid.scoring import tasks
tasks.PARALLEL_SECONDS = 0.0
print("started", flush=True)
sys.exit(main(sys.argv[1:]))
"""


def descendants(parent: int) -> set[int]:
    """The ids of all processes that a process and its children have started."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = stat.read_text().rsplit(") ", 1)
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(name.split()[0])] = int(fields.split()[1])
    found: set[int] = set()
    level = {parent}
    while level := {pid for pid, above in parents.items() if above in level}:
        found |= level
    return found


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


def check_that_workers_end(program: str, number: signal.Signals, arguments: list[str]) -> None:
    """Start a program, wait until it has workers, end it with a signal, and check that no process is left."""
    command = [sys.executable, "-c", CATCH_CTRL_C + program, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "started\n"
        deadline = time.monotonic() + 60
        while len(children := descendants(process.pid)) < 3:  # two workers and the tracker of their resources
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        children = descendants(process.pid)
        process.send_signal(number)
        process.wait(20)
        deadline = time.monotonic() + 20
        while any(map(is_running, children)):
            assert time.monotonic() < deadline, "workers are left behind"
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        for pid in filter(is_running, children):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("program", [POOL, IDLE_POOL, DIVIDED], ids=["busy", "idle", "divided batches"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent(program: str, number: signal.Signals) -> None:
    check_that_workers_end(program, number, [])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_workers_of_score_end_with_it(number: signal.Signals, tmp_path: Path) -> None:
    assert unbraid("train", "vae", *FAST_TRAINING, "--seeds", "0-9", "--out", tmp_path / "runs") == 0
    check_that_workers_end(SCORE, number, ["score", str(tmp_path / "runs"), "--jobs", "2"])
