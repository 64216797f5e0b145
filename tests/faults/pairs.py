"""Part "pairs": two commands at the same time in one folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from faults.exemptions import BUSY, EARLY_READERS
from faults.jobs import CASE, JOBS, Jobs, find_differences
from faults.judging import find_fault, find_lost_scores, score_lines
from faults.parts import Outcome, Part
from faults.processes import Process, run, start

PAIRS = {
    ("train", "score"): False,
    ("add", "score"): False,
    ("train", "train"): False,
    ("score", "score_others"): True,
    ("score", "score"): True,
    ("score", "report"): False,
    ("study", "study"): True,
    ("study_unscored", "index"): False,
    ("study", "score_others"): False,
    ("train", "share"): False,
    ("add", "share"): False,
    ("score", "index"): True,
    ("score_study", "index"): True,
    ("score_study", "score_others"): True,
    ("score_study", "study"): True,
}
"""Pairs of jobs, and whether their results must be complete as soon as both have ended.

Otherwise one command reads what the other has written so far, so both are repeated before the results are compared.
"""


@dataclass(frozen=True)
class PairCase:
    """Two jobs, and the delay of the second as a fraction of the time of the first. It may be negative."""

    jobs: tuple[str, str]
    delay: float

    def __str__(self) -> str:
        first, second = (f"unbraid {' '.join(JOBS[job].line)}" for job in self.jobs)
        return f"{first} & {second} (starts after {self.delay:.3f} of the time of the first)"


class Pairs(Part):
    """Part "pairs" of the campaign."""

    name = "pairs"
    weight = 0.2
    unit = "pairs"

    def prepare(self, folder: Path) -> None:
        """Prepare the folder of the jobs."""
        self.jobs, self.folder = Jobs(folder / "jobs"), folder / CASE
        self.jobs.folder.mkdir()

    def make_case(self, random: Random) -> PairCase:
        """Generate a pair and the delay of its second command."""
        return PairCase(random.choice(list(PAIRS)), random.choice([0.0, random.uniform(-0.8, 0.8)]))

    def run(self, case: PairCase) -> Outcome:
        """Run a case."""
        expected = self.jobs.finish(*case.jobs)
        self.jobs.copy_start(case.jobs[0], self.folder)
        try:
            fault, output = self.run_together(case)
            kept = score_lines(self.folder)
            if not fault and not PAIRS[case.jobs]:
                fault, output = self.repeat(case)
                fault = fault or find_lost_scores(kept, self.folder)
            return Outcome(fault or find_differences(expected, self.folder), output)
        finally:
            shutil.rmtree(self.folder)

    def run_together(self, case: PairCase) -> tuple[str, str]:
        """Run both commands at the same time. Return what is wrong and the output."""
        seconds = self.jobs.seconds[case.jobs[0]]
        order = case.jobs if case.delay >= 0 else case.jobs[::-1]
        processes = []
        for i, job in enumerate(order):
            processes.append(start(JOBS[job].line, self.folder))
            time.sleep(abs(case.delay) * seconds * (i == 0))
        for process in processes:
            process.wait()
        for process in processes:
            assert process.status is not None
            fault = find_fault(process.line, process.status, process.output)
            if not fault and process.status == 2 and not may_fail(case, process):
                fault = "status 2"
            if fault:
                return f"{fault} of {process.line[0]}", process.output
        return "", ""

    def repeat(self, case: PairCase) -> tuple[str, str]:
        """Run both commands again, one after the other. Return what is wrong and the output."""
        for job in case.jobs:
            JOBS[job].allow_again(self.folder)
            process = run(JOBS[job].line, self.folder)
            if process.status != 0:
                return f"status {process.status} of the repeated {job}", process.output
        return "", ""

    def simpler(self, case: PairCase) -> Iterator[PairCase]:
        """Generate the case without a delay."""
        if case.delay:
            yield replace(case, delay=0.0)


def may_fail(case: PairCase, process: Process) -> bool:
    """Return whether a command may end with status 2, because it came too early or because a folder is in use."""
    command = process.line[0]
    if command in BUSY:
        return f"error: {BUSY[command]}" in process.output
    return command in EARLY_READERS and not JOBS[case.jobs[0]].needs
