"""Scoring single runs of a study, and finding runs that are not fully trained or scored."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from unbraid.data.dataset import FactorData
from unbraid.methods import Method
from unbraid.metrics.protocol import resolve_metric_names
from unbraid.runs.folder import RunFolder
from unbraid.runs.run import Run
from unbraid.runs.scores import find_score, read_scores
from unbraid.scoring.run_scorer import ExampleTable
from unbraid.scoring.score import score
from unbraid.studies.planned import PlannedRun
from unbraid.studies.settings import StudySettings
from unbraid.studies.stacks import StudyStack

ALL_CODES_METRIC = (
    "unsupervised"  # computed for all kinds of codes, because `locatello2019` compares posterior means with samples
)
WAITING = "unbraid: stopping. The scores that are being computed are finished and stored first."


class BackgroundScoring:
    """Scores trained runs. If runs are trained on a GPU, a thread scores them while the next runs are trained.

    It is a context manager. A normal exit waits for all scores. An exit after an exception, such as Ctrl-C, cancels
    scoring that has not started, prints a message if scoring is running, and waits for it.
    """

    def __init__(self, settings: StudySettings) -> None:
        self.settings = settings
        self.in_background = settings.device != "cpu"
        self.pool = ThreadPoolExecutor(1)
        self.pending: list[Future[Any]] = []

    def __enter__(self) -> BackgroundScoring:
        return self

    def __exit__(self, kind: type[BaseException] | None, *trace: Any) -> None:
        if kind is not None and any(future.running() for future in self.pending):
            print(WAITING, file=sys.stderr, flush=True)
        self.pool.shutdown(cancel_futures=kind is not None)
        if kind is None:
            for future in self.pending:
                future.result()

    def add(self, runs: list[Run], data: FactorData) -> None:
        """Score these runs now or in the background. Exceptions from earlier background scoring are raised here."""
        if not (self.settings.scored and runs):
            return
        options: dict[str, Any] = {"protocol": self.settings.protocol, "jobs": self.settings.jobs, "quiet": True}
        if not self.in_background:
            score_codes(runs, self.settings.metrics, data, **options)
            return
        for future in [future for future in self.pending if future.done()]:
            self.pending.remove(future)
            future.result()
        self.pending.append(self.pool.submit(score_codes, runs, self.settings.metrics, data, **options))


def code_kinds_for(method: Method, metric: str) -> Sequence[str]:
    """Return the kinds of codes that a study scores with a metric: all for `ALL_CODES_METRIC`, else only the first."""
    return method.code_kinds if metric == ALL_CODES_METRIC else method.code_kinds[:1]


def score_codes(runs: Sequence[Run], metrics: Iterable[str] | None, data: FactorData, **options: Any) -> None:
    """Compute metrics of runs, each metric for the kinds of codes that `code_kinds_for` returns."""
    names = resolve_metric_names(metrics)
    for kinds in dict.fromkeys(run.spec.method.code_kinds for run in runs):
        alike = [run for run in runs if run.spec.method.code_kinds == kinds]
        score(alike, metrics, data=data, codes=kinds[:1], **options)
        if ALL_CODES_METRIC in names:
            score(alike, [ALL_CODES_METRIC], data=data, codes=kinds, **options)


def unfinished_runs(stack: StudyStack, settings: StudySettings) -> list[PlannedRun]:
    """Return the runs of a stack that are not fully trained or lack a score. Diverged runs count as finished."""
    folders = [RunFolder(settings.out / run.spec.id, run.spec) for run in stack.runs]
    table = ExampleTable.of(stack.data, settings.protocol)
    finished = [
        folder.status == "diverged" or (folder.status == "done" and has_all_scores(folder, settings, table))
        for folder in folders
    ]
    return [run for run, done in zip(stack.runs, finished, strict=True) if not done]


def has_all_scores(run: RunFolder, settings: StudySettings, table: ExampleTable) -> bool:
    """Return whether a run has all requested scores. If no scores are requested, return True.

    If `settings.metrics` is None, one stored score is enough.
    """
    records = read_scores(run.path)
    if not settings.scored or settings.metrics is None:
        return bool(records) or not settings.scored
    source = {"data": table.data.name, "source": getattr(table.data, "fingerprint", None)}
    keys = [
        {**table.identity(name, settings.protocol), "codes": kind, **source}
        for name in resolve_metric_names(settings.metrics)
        for kind in code_kinds_for(run.spec.method, name)
    ]
    return all(find_score(records, key) is not None for key in keys)
