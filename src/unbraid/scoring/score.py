"""Scores of trained runs: encode a table of examples once, then let every metric read it, on all cores."""

from __future__ import annotations

import inspect
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.metrics import METRICS
from unbraid.metrics.protocol import Outcome, Protocol, Rows, Values, chosen, identity, samples_of, silent, stamp
from unbraid.noise import Noise
from unbraid.runs.folder import RunDir
from unbraid.runs.run import Run
from unbraid.runs.scores import add_scores, find_score, read_protocol, read_scores
from unbraid.runtime.progress import Report, progress
from unbraid.runtime.progress import silent as no_report
from unbraid.scoring.encoding import encode_tables

WORTH = 4.0  # seconds of work left for which other processes are started
AHEAD = 8  # encoded runs a process that wait in memory: 5 MB each for 65,536 rows of 10 codes, twice


def score(
    runs: Run | Sequence[Run],
    metrics: Iterable[str] | None = None,
    *,
    data: str | FactorData | None = None,
    codes: Iterable[str] | None = None,
    protocol: Protocol | None = None,
    jobs: int | None = None,
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """One flat row a run: its settings and every score.

    Scores are called ``metric.key`` for the codes a method has first, posterior means with most, and
    ``metric.key.sampled`` and the like for others (`Method.code_kinds`); `codes` names some of them.
    Scores of runs that live in a folder are kept in its `scores.jsonl` with their estimator, samples, seed and library
    versions, and read from there the next time. ``row["protocol"]`` is a stamp that agrees between rows whose scores
    were made alike, and ``train_rows``, ``test_rows`` and ``draws`` say which rows the metrics saw. `protocol` defaults
    to that of the study a run belongs to, else to disjoint samples. Metrics that refuse the data are an error if they
    were named, and left out if not. Metrics run in `jobs` processes, all cores by default, as soon as there is enough
    to do for them.

    >>> import unbraid as ub
    >>> (run,) = ub.train(ub.methods.VAE(), data="toy", steps=5, quiet=True)
    >>> [row] = ub.score(run, ["mig"], quiet=True)
    >>> 0 <= row["mig.discrete_mig"] <= 1
    True
    """
    wanted = [runs] if isinstance(runs, Run) else list(runs)
    names = chosen(metrics)
    kinds = {run.id: _kinds(run, codes) for run in wanted}
    sources = load_sources(wanted, data, quiet)
    if metrics is None and not any(source.names for source in sources.values()):
        names = [name for name in names if "factors" not in inspect.signature(METRICS[name]).parameters]
    keys = [(run.spec.data, run.device, protocol or protocol_of(run)) for run in wanted]
    tables = {key: Table.of(sources[key[0]].to(key[1]), key[2]) for key in set(keys)}
    scorers = [Scorer(run, tables[key], key[2]) for run, key in zip(wanted, keys, strict=True)]
    work = [
        Task(scorer, kind, left)
        for scorer in scorers
        for kind in kinds[scorer.run.id]
        if (left := scorer.left(names, kind))
    ]
    Together([scorer for scorer in scorers if scorer.waiting])
    refused: dict[str, str] = {}
    with progress("scoring", sum(len(task.names) for task in work)) as report:
        meter = Meter(report if not quiet else no_report)
        for task, outcome in measured(work, jobs or cores(), meter):
            task.scorer.add(task, outcome)
            if metrics is not None or not task.scorer.records:
                outcome.whole()
            refused |= outcome.refused
    for name, reason in refused.items():
        warnings.warn(f"left out: {name}: {reason}", RuntimeWarning, stacklevel=2)
    return [{**describe(scorer.run), **scorer.flat(names, kinds[scorer.run.id])} for scorer in scorers]


def protocol_of(run: Run) -> Protocol:
    """The protocol of the study that a run belongs to, or the default."""
    return Protocol() if run.path is None else read_protocol(run.path.parent)


def _kinds(run: Run, codes: Iterable[str] | None) -> list[str]:
    """The kinds of codes of a run that are wanted, all by default."""
    known = run.spec.method.code_kinds
    kinds = list(known if codes is None else codes)
    for kind in kinds:
        if kind not in known:
            raise UserError(f"Codes of {run.label} must be among {', '.join(known)}. Got {kind!r} instead.")
    return kinds


class Meter:
    """How many metrics are done, told to a progress bar."""

    def __init__(self, report: Report) -> None:
        self.report, self.done = report, 0

    def tell(self, note: str) -> None:
        """Say what is going on."""
        self.report(self.done, note)

    def add(self, count: int) -> None:
        """Count what is done."""
        self.done += count
        self.report(self.done)


class Task(NamedTuple):
    """Metrics that one kind of codes of one run still lacks."""

    scorer: Scorer
    kind: str
    names: list[str]

    def here(self, meter: Meter) -> Outcome:
        """Score in this process."""
        label = self.scorer.run.label
        rows = self.scorer.rows(self.kind, meter.tell)
        return rows.score(self.names, self.scorer.protocol.seed, lambda name: meter.tell(f"{name} of {label}"))


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measured(work: Sequence[Task], jobs: int, meter: Meter) -> Iterator[tuple[Task, Outcome]]:
    """Outcomes in order: here while there is little to do, in `jobs` processes once there is more."""
    begun = time.monotonic()
    for i, task in enumerate(work):
        if jobs > 1 and i and (time.monotonic() - begun) / i * (len(work) - i) > WORTH:
            yield from elsewhere(work[i:], jobs, meter)
            return
        yield task, task.here(meter)
        meter.add(len(task.names))


def elsewhere(work: Sequence[Task], jobs: int, meter: Meter) -> Iterator[tuple[Task, Outcome]]:
    """Outcomes in order from other processes, which import no torch and use one thread each."""
    from joblib import Parallel, delayed, parallel_config

    size = AHEAD * jobs
    with (
        parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1),
        Parallel(return_as="generator", max_nbytes=None) as pool,
    ):
        for part in (work[i : i + size] for i in range(0, len(work), size)):
            rows = [task.scorer.rows(task.kind, meter.tell) for task in part]
            calls = [
                delayed(Rows.score)(r, task.names, task.scorer.protocol.seed)
                for r, task in zip(rows, part, strict=True)
            ]
            for task, outcome in zip(part, pool(calls), strict=True):
                yield task, outcome
                meter.add(len(task.names))


def load_sources(
    runs: Sequence[Run], data: str | FactorData | None = None, quiet: bool = False
) -> dict[str, FactorData]:
    """The dataset of each name that runs ask for, loaded once; `data` stands for all of them."""
    names = dict.fromkeys(run.spec.data for run in runs)
    if data is None:
        return {name: load_data(name, quiet=quiet) for name in names}
    return dict.fromkeys(names, load_data(data, quiet=quiet))


def describe(run: Run) -> dict[str, Any]:
    """A run's id, label and settings as one flat row."""
    spec = run.spec.to_dict()
    method = spec.pop("method")
    name = method.pop("name")
    return {"run": run.id, "label": run.label, "method": name, **method, **spec}


@dataclass(frozen=True)
class Table:
    """The examples that are encoded, on the device of the runs."""

    data: FactorData
    index: torch.Tensor

    @classmethod
    def of(cls, data: FactorData, protocol: Protocol) -> Table:
        index = protocol.index(data.sizes) if data.gridded else protocol.some(len(data))
        return cls(data, torch.as_tensor(index, device=data.device))


class Together:
    """Runs to be encoded: the first that is asked for brings on its neighbours, as many as go together."""

    def __init__(self, scorers: Sequence[Scorer]) -> None:
        self.waiting = list(scorers)
        self.made: dict[int, Gaussian] = {}
        self.source: Iterator[Gaussian] | None = None
        for scorer in scorers:
            scorer.together = self

    def posterior(self, scorer: Scorer, tell: Callable[[str], None]) -> Gaussian:
        """The posteriors of one run's table, handed out once."""
        if self.source is None:
            self.source = encode_tables([(s.run, s.data, s.index) for s in self.waiting], tell)
        while id(scorer) not in self.made:
            self.made[id(self.waiting.pop(0))] = next(self.source)
        return self.made.pop(id(scorer))


class Scorer:
    """One run's codes, encoded when first needed, and the scores already kept in its folder."""

    def __init__(self, run: Run, table: Table, protocol: Protocol) -> None:
        if run.divergence is not None:
            raise UserError(
                f"Run {run.id} diverged at step {run.divergence['step']} and has no codes to score. Leave it out."
            )
        self.run, self.data, self.index, self.protocol = run, table.data, table.index, protocol
        self.folder = None if run.path is None else RunDir(run.path, run.spec)
        self.records = [] if self.folder is None else read_scores(self.folder.path)
        self.sizes = protocol.sizes(len(self.index))
        self.tables: dict[str, Rows] = {}
        self.waiting: set[str] = set()
        self.together = Together([self])

    def key(self, name: str, kind: str) -> dict[str, Any]:
        """What a record must agree with to stand for this score."""
        about = {"codes": kind, "data": self.data.name, "source": getattr(self.data, "fingerprint", None)}
        return {**identity(name, self.protocol.seed, self.sizes, self.protocol.draws), **about}

    def kept(self, name: str, kind: str) -> Values | None:
        """The values of a score that has been made."""
        record = find_score(self.records, self.key(name, kind))
        return None if record is None else dict(record["values"])

    def left(self, names: Iterable[str], kind: str) -> list[str]:
        """The metrics that have not been computed for this kind of codes."""
        missing = [name for name in names if self.kept(name, kind) is None]
        if missing:
            self.waiting.add(kind)
        return missing

    def add(self, task: Task, outcome: Outcome) -> None:
        """Keep what came out, in the run's folder too."""
        new = [{**self.key(name, task.kind), "values": found} for name, found in outcome.values.items()]
        self.records = [*self.records, *new] if self.folder is None else add_scores(self.folder.path, new)
        self.waiting.discard(task.kind)
        if not self.waiting:
            self.tables = {}

    def flat(self, names: Iterable[str], kinds: Iterable[str]) -> dict[str, Any]:
        """The stamp of the protocol and all scores under flat names."""
        flat: dict[str, Any] = {"protocol": stamp(self.key(name, "") for name in names)}
        flat |= samples_of(self.sizes, self.protocol)
        for kind, name in ((kind, name) for kind in kinds for name in names):
            suffix = "" if kind == self.run.spec.method.code_kinds[0] else f".{kind}"
            flat |= {f"{name}.{key}{suffix}": value for key, value in (self.kept(name, kind) or {}).items()}
        return flat

    def rows(self, kind: str, tell: Callable[[str], None] = silent) -> Rows:
        """The codes of the table, means and samples encoded together when one of them is first asked for."""
        if not self.tables:
            q = self.together.posterior(self, tell)
            zero = torch.tensor(0, device=q.mean.device)
            method, seed = self.run.spec.method, zero + self.protocol.seed
            factors = self.data.factors(self.index).cpu().numpy()
            for name in method.code_kinds:
                code = method.code(self.run.net, q, name, Noise.of(seed, zero))
                self.tables[name] = self.protocol.rows(code.cpu().numpy(), factors)
        return self.tables[kind]
