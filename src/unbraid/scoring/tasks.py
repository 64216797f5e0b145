"""Compute scores in this process, or in several processes if there is enough work."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from unbraid.metrics.protocol import Outcome, Rows
from unbraid.runtime.progress import ProgressCallback
from unbraid.runtime.workers import worker_pool
from unbraid.scoring.run_scorer import RunScorer

PARALLEL_SECONDS = 4.0  # other processes are started if the remaining work is expected to take longer than this
QUEUED_RUNS_PER_PROCESS = 8  # maximum number of runs per process whose codes are in memory, about 5 MB per run


class ProgressCounter:
    """Counts the metrics that have been computed and updates a progress bar."""

    def __init__(self, report: ProgressCallback) -> None:
        self.report, self.done = report, 0

    def show(self, text: str) -> None:
        """Show a message about what is being computed."""
        self.report(self.done, text)

    def add(self, count: int) -> None:
        """Add a number of metrics that have been computed."""
        self.done += count
        self.report(self.done)


class ScoringTask(NamedTuple):
    """The metrics that have to be computed for one kind of codes of one run."""

    scorer: RunScorer
    kind: str
    names: list[str]

    def score(self, counter: ProgressCounter) -> Outcome:
        """Compute the metrics in this process."""
        label = self.scorer.run.label
        rows = self.scorer.rows(self.kind, counter.show)
        return rows.score(self.names, self.scorer.protocol.seed, lambda name: counter.show(f"{name} of {label}"))


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_tasks(
    tasks: Sequence[ScoringTask], jobs: int, counter: ProgressCounter
) -> Iterator[tuple[ScoringTask, Outcome]]:
    """Yield the tasks with their outcomes, in order.

    The first tasks run in this process. If the time that they took suggests that the remaining tasks would take longer
    than `PARALLEL_SECONDS`, `jobs` processes are started for the remaining tasks.
    """
    started = time.monotonic()
    for i, task in enumerate(tasks):
        if jobs > 1 and i and (time.monotonic() - started) / i * (len(tasks) - i) > PARALLEL_SECONDS:
            yield from run_tasks_in_processes(tasks[i:], jobs, counter)
            return
        yield task, task.score(counter)
        counter.add(len(task.names))


def run_tasks_in_processes(
    tasks: Sequence[ScoringTask], jobs: int, counter: ProgressCounter
) -> Iterator[tuple[ScoringTask, Outcome]]:
    """Compute tasks in several processes and yield them with their outcomes, in order.

    The processes do not import torch and use one thread each. Examples are encoded in this process.
    """
    from joblib import delayed

    size = QUEUED_RUNS_PER_PROCESS * jobs
    with worker_pool(jobs) as pool:
        for part in (tasks[i : i + size] for i in range(0, len(tasks), size)):
            rows = [task.scorer.rows(task.kind, counter.show) for task in part]
            calls = [
                delayed(Rows.score)(r, task.names, task.scorer.protocol.seed)
                for r, task in zip(rows, part, strict=True)
            ]
            for task, outcome in zip(part, pool(calls), strict=True):
                yield task, outcome
                counter.add(len(task.names))
