"""Part "disk": a full disk, a read-only folder, a folder that disappears, and a clock that goes backwards.

A command must end with status 0, or with status 2 and one line of error. Repeated without the fault, it must have the
same results as an undisturbed command.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from faults.jobs import CASE, JOBS, Jobs, find_differences
from faults.judging import find_fault, find_lost_scores, fingerprint, score_lines
from faults.parts import Outcome, Part
from faults.processes import Process, run, start

COMMANDS = ("train", "add", "score", "study", "modify", "report", "index", "share")
KINDS = ("size", "size", "size", "read-only", "removed", "removed", "clock")
CAPABILITY_VERSION = 0x20080522  # of the structures of capset(2)
SIZES = (0, 1, 100, 600, 3000, 20_000, 100_000, 500_000, 600_000, 2_000_000)


@dataclass(frozen=True)
class DiskCase:
    """A command and its fault.

    Attributes:
        job: The name of the job.
        kind: The fault.
        amount: The largest size of a file in bytes ("size"), or when the folder disappears, as a fraction of the time.
    """

    job: str
    kind: str
    amount: float

    def __str__(self) -> str:
        return f"unbraid {' '.join(JOBS[self.job].line)}: {self.kind} {self.amount:g}"


class Disk(Part):
    """Part "disk" of the campaign."""

    name = "disk"
    weight = 0.1
    unit = "commands"

    def prepare(self, folder: Path) -> None:
        """Prepare the folder of the jobs."""
        self.jobs, self.scratch, self.folder = Jobs(folder / "jobs"), folder, folder / CASE
        self.jobs.folder.mkdir()

    def make_case(self, random: Random) -> DiskCase:
        """Generate a command and a fault."""
        job, kind = random.choice(COMMANDS), random.choice(KINDS)
        size = random.choice([random.choice(SIZES), int(10 ** random.uniform(0, 6))])
        return DiskCase(job, kind, size if kind == "size" else random.uniform(0, 1))

    def run(self, case: DiskCase) -> Outcome:
        """Run a case."""
        expected, job = self.jobs.finish(case.job), JOBS[case.job]
        self.jobs.copy_start(case.job, self.folder)
        before, scores = fingerprint(self.folder), score_lines(self.folder)
        try:
            process = self.run_with_fault(case)
            assert process.status is not None
            fault = find_fault(job.line, process.status, process.output) or find_lost_scores(scores, self.folder)
            if not fault and case.kind == "read-only" and process.status == 2:
                fault = "" if fingerprint(self.folder) == before else "changed a read-only folder"
            if fault:
                return Outcome(fault, process.output)
            if process.status == 0:
                job.allow_again(self.folder)
            last = run(job.line, self.folder)
            if last.status != 0:
                return Outcome(f"status {last.status} of the repeated command", last.output)
            return Outcome(find_differences(expected, self.folder), process.output)
        finally:
            shutil.rmtree(self.folder)

    def run_with_fault(self, case: DiskCase) -> Process:
        """Run the command with its fault until it ends."""
        prepare = {"size": lambda: limit_size(int(case.amount)), "clock": turn_clock_back, "read-only": give_up_rights}
        line = JOBS[case.job].line
        if case.kind == "removed":
            return self.run_without_folder(case, line)
        restore = make_read_only(self.folder) if case.kind == "read-only" else lambda: None
        try:
            return run(line, self.folder, prepare[case.kind])
        finally:
            restore()

    def run_without_folder(self, case: DiskCase, line: tuple[str, ...]) -> Process:
        """Run the command and move the folder of its runs away at some moment. Bring it back in the end."""
        away, runs = self.scratch / "away", self.folder / "runs"
        process = start(line, self.folder)
        time.sleep(case.amount * self.jobs.seconds[case.job])
        moved = runs.exists()
        if moved:
            runs.rename(away)
        process.wait()
        if moved:
            shutil.rmtree(runs, ignore_errors=True)
            away.rename(runs)
        return process

    def simpler(self, case: DiskCase) -> Iterator[DiskCase]:
        """Generate cases with a rounder amount."""
        if case.kind == "size":
            yield from (replace(case, amount=float(size)) for size in (0, 1000) if size < case.amount)


def limit_size(size: int) -> None:
    """Let every write beyond this size of a file fail, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def turn_clock_back() -> None:
    """Let the clock of this process go backwards by a second per second."""
    begin, real = time.time(), time.time
    time.time = lambda: 2 * begin - real()


def give_up_rights() -> None:
    """Give up all capabilities of root, for whom no folder is read-only otherwise. The user stays the same."""
    if os.geteuid() == 0:
        header, none = struct.pack("Ii", CAPABILITY_VERSION, 0), bytes(24)
        if ctypes.CDLL(None, use_errno=True).capset(header, none):
            raise OSError(ctypes.get_errno(), "capset")


def make_read_only(folder: Path) -> Callable[[], None]:
    """Make all folders and files inside a folder read-only, and return a function that undoes this."""
    paths = [folder, *folder.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222 | 0o444)

    def restore() -> None:
        for path, mode in modes.items():
            path.chmod(mode)

    return restore
