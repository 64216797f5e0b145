"""Compute scores in this process, or in several processes if there is enough work."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from unbraid.metrics.protocol import Outcome, Rows
from unbraid.runtime.progress import ProgressCallback
from unbraid.scoring.run_scorer import RunScorer

PARALLEL_SECONDS = 4.0  # expected seconds of remaining work above which other processes are started
QUEUED_RUNS_PER_PROCESS = 8  # encoded runs in memory per process, two kinds of 5 MB each for 65,536 rows of 10 codes


class ProgressCounter:
    """Counts the metrics that are done and reports them to a progress bar."""

    def __init__(self, report: ProgressCallback) -> None:
        self.report, self.done = report, 0

    def note(self, text: str) -> None:
        """Show what is being computed."""
        self.report(self.done, text)

    def add(self, count: int) -> None:
        """Count metrics that are done."""
        self.done += count
        self.report(self.done)


class ScoringTask(NamedTuple):
    """Metrics that have to be computed for one kind of codes of one run."""

    scorer: RunScorer
    kind: str
    names: list[str]

    def score(self, counter: ProgressCounter) -> Outcome:
        """Compute the metrics in this process."""
        label = self.scorer.run.label
        rows = self.scorer.rows(self.kind, counter.note)
        return rows.score(self.names, self.scorer.protocol.seed, lambda name: counter.note(f"{name} of {label}"))


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_tasks(
    tasks: Sequence[ScoringTask], jobs: int, counter: ProgressCounter
) -> Iterator[tuple[ScoringTask, Outcome]]:
    """Yield the tasks with their outcomes, in order.

    Tasks run in this process until the time that the first ones took suggests that the rest is worth starting `jobs`
    processes.
    """
    begun = time.monotonic()
    for i, task in enumerate(tasks):
        if jobs > 1 and i and (time.monotonic() - begun) / i * (len(tasks) - i) > PARALLEL_SECONDS:
            yield from run_tasks_in_processes(tasks[i:], jobs, counter)
            return
        yield task, task.score(counter)
        counter.add(len(task.names))


def run_tasks_in_processes(
    tasks: Sequence[ScoringTask], jobs: int, counter: ProgressCounter
) -> Iterator[tuple[ScoringTask, Outcome]]:
    """Yield the tasks with their outcomes, in order, from processes that do not import torch and use one thread each.

    Codes are encoded in this process.
    """
    from joblib import Parallel, delayed, parallel_config

    size = QUEUED_RUNS_PER_PROCESS * jobs
    with (
        parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1),
        Parallel(return_as="generator", max_nbytes=None) as pool,
    ):
        for part in (tasks[i : i + size] for i in range(0, len(tasks), size)):
            rows = [task.scorer.rows(task.kind, counter.note) for task in part]
            calls = [
                delayed(Rows.score)(r, task.names, task.scorer.protocol.seed)
                for r, task in zip(rows, part, strict=True)
            ]
            for task, outcome in zip(part, pool(calls), strict=True):
                yield task, outcome
                counter.add(len(task.names))
