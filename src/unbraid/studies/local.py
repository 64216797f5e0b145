"""Running a study on this machine. Several processes can work in the same folder, each on different stacks."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from unbraid.runs.results import read_sweep_positions, write_results
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runtime.locks import lock
from unbraid.runtime.progress import ProgressCallback, progress
from unbraid.studies.group_scores import GroupScoring
from unbraid.studies.planned import PlannedRun
from unbraid.studies.run_scores import BackgroundScoring
from unbraid.studies.settings import StudySettings
from unbraid.studies.stacks import StudyStack, claim_stack, study_tasks
from unbraid.training.train import train_checked_specs

POLL_SECONDS = 2.0  # time between attempts to claim stacks that other processes have claimed


@dataclass
class StudyProgress:
    """Shows the progress of a study: the number of finished runs, and the number of steps summed over all runs."""

    report: ProgressCallback
    runs: int
    runs_done: int = 0
    steps_done: int = 0

    def update(self, done: float, note: str = "") -> None:
        """Show the total number of steps, and a note.

        `done` is the number of steps that the runs of the current stack have taken, summed over these runs.
        """
        self.report(self.steps_done + done, ", ".join([f"{self.runs_done} of {self.runs} runs done", note]))

    def finish_stack(self, stack: StudyStack) -> None:
        """Add the runs and steps of a finished stack to the totals."""
        self.runs_done += len(stack.runs)
        self.steps_done += sum(run.spec.steps for run in stack.runs)
        self.report(self.steps_done, f"{self.runs_done} of {self.runs} runs done")


def run_study(planned: Sequence[PlannedRun], settings: StudySettings, quiet: bool = False) -> Path:
    """Train and score every unfinished run, and write the results table.

    The same call resumes a study that was interrupted. Several processes can work in the same output folder, because
    each of them claims a stack before it trains the stack.

    Returns:
        The path of the results table.
    """
    make_folder(settings.out)
    steps = sum(run.spec.steps for run in planned)
    with ExitStack() as contexts:
        report = contexts.enter_context(progress("study", steps, quiet))
        study_progress = StudyProgress(report, len(planned))
        scoring = contexts.enter_context(BackgroundScoring(settings))
        waiting = []
        started: list[PlannedRun] = []
        for stack in study_tasks(planned, settings):
            started += stack.runs
            write_study_file(settings, stack.runs)
            if not try_train_stack(stack, settings, study_progress, scoring):
                waiting.append(stack)
        while waiting:
            time.sleep(POLL_SECONDS)
            waiting = [stack for stack in waiting if not try_train_stack(stack, settings, study_progress, scoring)]
    return finish_study(started, settings, quiet)


def finish_study(runs: Sequence[PlannedRun], settings: StudySettings, quiet: bool = False) -> Path:
    """Compute the metrics of groups of runs, write the results table, and return its path."""
    if settings.scored:
        scoring = GroupScoring(settings.out, settings.group_metrics, settings.protocol, settings.device)
        scoring.score([run.spec.id for run in runs], quiet)
    return write_results(settings.out)


def try_train_stack(
    stack: StudyStack, settings: StudySettings, progress: StudyProgress, scoring: BackgroundScoring
) -> bool:
    """Train and score a stack and return True, or return False if another process has claimed the stack."""
    with claim_stack(settings.out, stack) as claimed:
        if not claimed:
            return False
        specs = [run.spec for run in stack.runs]
        runs = train_checked_specs(
            specs, stack.data, stack.builder, settings.out, report=progress.update,
            checkpoint_seconds=settings.checkpoint_seconds,
        )  # fmt: skip
        scoring.add([run for run in runs if run.divergence is None], stack.data)
        progress.finish_stack(stack)
    return True


def write_study_file(settings: StudySettings, runs: Sequence[PlannedRun]) -> None:
    """Add the positions of the runs in the study to `study.json`, which also contains the protocol of the scores."""
    with lock(settings.out / ".places.lock"):
        positions = read_sweep_positions(settings.out)
        new = {run.spec.id: run.position() for run in runs}
        if any(positions.get(name) != position for name, position in new.items()):
            content = {"places": {**positions, **new}, "protocol": asdict(settings.protocol)}
            write_atomic(settings.out / "study.json", json.dumps(content).encode())
