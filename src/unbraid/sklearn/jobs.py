"""Training of estimators, one at a time or many together.

A stacked search goes through its candidates twice. In the first pass, `recorded_jobs` collects what each estimator
would train, and all these jobs are trained in stacks. In the second pass, which is scikit-learn's own, `train_job`
finds the trained runs. A job that was not recorded is trained as usual, so the results never depend on the first pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from unbraid.data.own.arrays import OwnData
from unbraid.nets.vae import PairBuilder
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec
from unbraid.training.train import check_specs, train_specs

Key = tuple[str | int, ...]


class Recorded(BaseException):
    """Ends the `fit` of an estimator whose job was recorded.

    It is not a subclass of `Exception`, so an `except Exception` in a meta-estimator does not catch it.
    """


@dataclass(frozen=True)
class TrainingJob:
    """What one `fit` trains: the spec of a run, its data and the builder of its network."""

    spec: RunSpec
    data: OwnData
    builder: PairBuilder

    @property
    def data_key(self) -> Key:
        """A key that is equal for jobs with the same data, device and network. One call can train all these jobs."""
        pair = self.spec.net.startswith("modules:")  # the name of a pair of networks contains a digest of its weights
        return self.data.fingerprint, str(self.data.device), self.spec.net if pair else id(self.builder)

    @property
    def key(self) -> Key:
        """A key that is equal for jobs with the same result."""
        return self.spec.id, *self.data_key


_recorded: ContextVar[list[TrainingJob] | None] = ContextVar("recorded", default=None)
_trained: ContextVar[dict[Key, Run] | None] = ContextVar("trained", default=None)


def train_job(job: TrainingJob, quiet: bool) -> Run:
    """Train a job and return its run. Inside `recorded_jobs`, record the job and raise `Recorded` instead."""
    recorded, trained = _recorded.get(), _trained.get() or {}
    if recorded is not None:
        check_specs([job.spec], job.data, job.builder)  # raises the errors that belong to this candidate alone
        recorded.append(job)
        raise Recorded
    return trained[job.key] if job.key in trained else train_together([job], quiet)[job.key]


def train_together(jobs: Sequence[TrainingJob], quiet: bool = True) -> dict[Key, Run]:
    """Train jobs in stacks, and return the runs by the keys of their jobs. Jobs with equal keys are trained once."""
    groups: dict[Key, list[TrainingJob]] = {}
    for job in {job.key: job for job in jobs}.values():
        groups.setdefault(job.data_key, []).append(job)
    trained = {}
    for group in groups.values():
        runs = train_specs([job.spec for job in group], group[0].data, group[0].builder, quiet=quiet)
        for job, run in zip(group, runs, strict=True):
            run.data = None  # each estimator that uses the run sets its own data
            trained[job.key] = run
    return trained


@contextmanager
def recorded_jobs() -> Iterator[list[TrainingJob]]:
    """Inside this context, every `fit` of an estimator adds its job to the list and raises `Recorded`."""
    jobs: list[TrainingJob] = []
    token = _recorded.set(jobs)
    try:
        yield jobs
    finally:
        _recorded.reset(token)


@contextmanager
def trained_runs(runs: dict[Key, Run]) -> Iterator[None]:
    """Inside this context, a `fit` trains nothing if `runs` has the key of its job. It uses the run with this key."""
    token = _trained.set(runs)
    try:
        yield
    finally:
        _trained.reset(token)
