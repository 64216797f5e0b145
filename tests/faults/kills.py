"""Part "kills": signals at random moments of long commands, with several processes in one folder.

After the signals the command is repeated once without any. Its results must equal those of an undisturbed command.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM, Signals

from faults.exemptions import ENDED_BY_SIGNAL
from faults.jobs import CASE, JOBS, Job, Jobs, Results, find_differences
from faults.judging import find_fault
from faults.parts import Outcome, Part
from faults.processes import Process, run, start

COMMANDS = ("train", "train", "score", "study", "study", "modify", "report", "score_parallel", "share", "index",
            "score_study")  # fmt: skip
SIGNALS = (SIGKILL, SIGKILL, SIGTERM, SIGINT, SIGSTOP)
STOPPED_SECONDS = 0.2


@dataclass(frozen=True)
class Round:
    """Starting a command in several processes and sending a signal to the first of them.

    Attributes:
        signal: The signal.
        moment: When it is sent, as a fraction of the time that the undisturbed command takes.
        processes: The number of processes that run the command in the same folder.
    """

    signal: Signals
    moment: float
    processes: int

    def __str__(self) -> str:
        return f"{self.signal.name} at {self.moment:.3f} of the time, {self.processes} process(es)"


@dataclass(frozen=True)
class KillCase:
    """A command and its disturbances, one after the other."""

    job: str
    rounds: tuple[Round, ...]

    def __str__(self) -> str:
        return f"unbraid {' '.join(JOBS[self.job].line)}: {'; '.join(map(str, self.rounds))}"


class Kills(Part):
    """Part "kills" of the campaign."""

    name = "kills"
    weight = 0.25
    unit = "signals"

    def prepare(self, folder: Path) -> None:
        """Prepare the folder of the jobs."""
        self.jobs, self.folder = Jobs(folder / "jobs"), folder / CASE
        self.jobs.folder.mkdir()

    def make_case(self, random: Random) -> KillCase:
        """Generate a command with one to four disturbances."""
        job = random.choice(COMMANDS)
        rounds = []
        for _ in range(random.choice([1, 2, 2, 3, 4])):
            processes = 1 if JOBS[job].alone else random.choice([1, 1, 2, 3])
            rounds.append(Round(random.choice(SIGNALS), random.uniform(0, 1.1), processes))
        return KillCase(job, tuple(rounds))

    def run(self, case: KillCase) -> Outcome:
        """Run a case."""
        expected, job = self.jobs.finish(case.job), JOBS[case.job]
        self.jobs.copy_start(case.job, self.folder)
        sent = 0
        try:
            for one in case.rounds:
                hit, fault, output = self.disturb(job, one, self.jobs.seconds[case.job], expected)
                sent += hit
                if fault:
                    return Outcome(fault, output, sent)
            last = run(job.line, self.folder)
            if last.status != 0:
                return Outcome(f"status {last.status} of the repeated command", last.output, sent)
            return Outcome(find_differences(expected, self.folder), last.output, sent)
        finally:
            shutil.rmtree(self.folder)

    def disturb(self, job: Job, one: Round, seconds: float, expected: Results) -> tuple[bool, str, str]:
        """Run a round. Return whether the signal reached a running command, what is wrong, and the output."""
        processes = [start(job.line, self.folder) for _ in range(one.processes)]
        time.sleep(one.moment * seconds)
        hit = processes[0].send(one.signal)
        if hit and one.signal is SIGSTOP:
            time.sleep(STOPPED_SECONDS)
            processes[0].send(SIGCONT)
        for process in processes:
            process.wait()
        for process in processes:
            fault = self.judge(process, one.signal if hit and process is processes[0] else None)
            if fault:
                return hit, fault, process.output
            if process.status == 0 or job.has_finished(self.folder, expected):
                job.allow_again(self.folder)
        return hit, "", ""

    def judge(self, process: Process, sent: Signals | None) -> str:
        """Return what is wrong with a process that has ended, or an empty text."""
        assert process.status is not None
        if process.workers_left():
            return "processes are left"
        if sent is not None and process.status in ENDED_BY_SIGNAL[sent]:
            return "traceback" if "Traceback" in process.output else ""
        fault = find_fault(process.line, process.status, process.output)
        return fault or (f"status {process.status}" if process.status else "")

    def simpler(self, case: KillCase) -> Iterator[KillCase]:
        """Generate cases with fewer rounds and with fewer processes."""
        for i, one in enumerate(case.rounds):
            if len(case.rounds) > 1:
                yield replace(case, rounds=case.rounds[:i] + case.rounds[i + 1 :])
            if one.processes > 1:
                fewer = replace(one, processes=one.processes - 1)
                yield replace(case, rounds=(*case.rounds[:i], fewer, *case.rounds[i + 1 :]))
