"""Running a study: stacks of runs, claimed, trained, scored and written; any number of processes share the work."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.errors import UserError
from unbraid.methods import Method
from unbraid.metrics.protocol import Protocol, chosen, identity
from unbraid.nets.registry import name_net
from unbraid.nets.vae import PairBuilder
from unbraid.runs.folder import RunDir
from unbraid.runs.results import index, read_places
from unbraid.runs.run import Run
from unbraid.runs.scores import find_score, read_scores
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runtime.locks import lock, try_lock
from unbraid.runtime.progress import Report, progress, silent
from unbraid.scoring.score import Table, score
from unbraid.studies.cut import stacked
from unbraid.studies.group_scores import CLOSING, Closing
from unbraid.studies.planned import Planned, changed
from unbraid.training.memory import capacity
from unbraid.training.schedule import TOGETHER, together
from unbraid.training.train import CHECKPOINT_SECONDS, Choice, check_specs, train_held

POLL = 2.0  # seconds between looks at stacks that other processes hold
ON_CPU = 16  # runs in a stack there
COMPARED = "unsupervised"  # the metric by which mean codes are compared with sampled ones
Files = dict[str, bytes]  # a run's folder


@dataclass(frozen=True)
class Order:
    """How a study is carried out: where, on what, which scores of a run alone and which (`closing`) at the end."""

    out: Path
    device: str = "cpu"
    precision: str | None = None
    metrics: Sequence[str] | None = None
    protocol: Protocol = Protocol()
    jobs: int | None = None
    scored: bool = True
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    closing: Sequence[str] = CLOSING


@dataclass
class Stackful:
    """Runs that ride together, their data and network."""

    runs: list[Planned]
    data: FactorData
    builder: PairBuilder

    @property
    def name(self) -> str:
        """A name that the same runs have in every process."""
        return hashlib.sha256(" ".join(run.spec.id for run in self.runs).encode()).hexdigest()[:16]

    def trained(self, out: Path) -> bool:
        """Whether nothing is left to train."""
        return all(RunDir(out / run.spec.id, run.spec).status in ("done", "diverged") for run in self.runs)


def prepared(planned: Sequence[Planned], order: Order) -> Iterator[Stackful]:
    """The stacks of a study, dataset by dataset, each as large as the device takes."""
    for name, group in groupby(sorted(planned, key=lambda run: run.index), lambda run: run.spec.data):
        data = load_data(name, order.device)
        runs = [changed(run, **fitting(run, data, order)) for run in group]
        for kind in stacked(runs):
            builder = name_net(kind[0].spec.net)[1]
            check_specs([kind[0].spec], data, builder)
            cpu = data.device.type == "cpu"
            most = ON_CPU if cpu else capacity(kind[0].spec, data, builder, len(kind))
            yield from (Stackful(part, data, builder) for part in stacked(kind, most))


def fitting(run: Planned, data: FactorData, order: Order) -> dict[str, Any]:
    """What the data and the device decide of a run: its precision, and an MLP for vectors."""
    choice = Choice.of(data)
    precision = order.precision or choice.precision
    if len(data.shape) == 3 or run.spec.net != "locatello":
        return {"precision": precision}
    return {"precision": precision, "net": choice.net, "likelihood": choice.likelihood}


def fleets(stacks: Iterable[Stackful], device: str) -> Iterator[Stackful]:
    """Stacks as they are trained: on a GPU small ones of one dataset and network at the same time, claimed as one."""
    if not device.startswith("cuda"):
        yield from stacks
        return
    for _, alike in groupby(stacks, lambda one: (id(one.data), one.builder)):
        for group in together(alike, lambda one: len(one.runs), TOGETHER):
            yield Stackful([run for one in group for run in one.runs], group[0].data, group[0].builder)


@contextmanager
def claimed(out: Path, stack: Stackful) -> Iterator[bool]:
    """Whether this process may train the stack; no other process may while the claim is held."""
    folder = out / ".claims"
    make_folder(folder)
    with try_lock(folder / f"{stack.name}.lock") as mine:
        yield mine


@dataclass
class Tally:
    """How far a study is, told as one line."""

    report: Report
    total: int
    done: int = 0
    before: int = 0

    def within(self, done: float, note: str = "") -> None:
        """Model-steps of the stack under way."""
        self.report(self.before + done, ", ".join([f"{self.done} of {self.total} runs done", note]))

    def finish(self, stack: Stackful) -> None:
        """Count a stack."""
        self.done += len(stack.runs)
        self.before += sum(run.spec.steps for run in stack.runs)
        self.report(self.before, f"{self.done} of {self.total} runs done")


def run_study(planned: Sequence[Planned], order: Order, quiet: bool = False) -> Path:
    """Train and score every run that is not there yet, and write the results table; its path is returned.

    Every run is idempotent by its id, so the same command goes on after any kill, and several processes with the same
    output share the stacks among them.
    """
    make_folder(order.out)
    steps = sum(run.spec.steps for run in planned)
    with ExitStack() as opened:
        report = silent if quiet else opened.enter_context(progress("study", steps))
        tally = Tally(report, len(planned))
        scorer = opened.enter_context(Scoring(order))
        waiting = []
        known: list[Planned] = []
        for stack in fleets(prepared(planned, order), order.device):
            known += stack.runs
            keep_places(order, stack.runs)
            if not attempt(stack, order, tally, scorer):
                waiting.append(stack)
        while waiting:
            time.sleep(POLL)
            waiting = [stack for stack in waiting if not attempt(stack, order, tally, scorer)]
    return finished(known, order, quiet)


def finished(runs: Sequence[Planned], order: Order, quiet: bool = False) -> Path:
    """Add what is said of runs at the end, and write the table."""
    if order.scored:
        Closing(order.out, order.closing, order.protocol, order.device).close([run.spec.id for run in runs], quiet)
    return index(order.out, {run.spec.id: run.facts() for run in runs})


def attempt(stack: Stackful, order: Order, tally: Tally, scorer: Scoring) -> bool:
    """Train and score a stack unless another process is at it; whether it is done."""
    with claimed(order.out, stack) as mine:
        if not mine:
            return False
        specs = [run.spec for run in stack.runs]
        runs = train_held(
            specs, stack.data, stack.builder, order.out, report=tally.within,
            checkpoint_seconds=order.checkpoint_seconds,
        )  # fmt: skip
        scorer.add([run for run in runs if run.divergence is None], stack.data)
        tally.finish(stack)
    return True


class Scoring:
    """Scores of trained runs, made beside the training of the next ones where a GPU leaves the cores free."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.beside = order.device != "cpu"
        self.pool = ThreadPoolExecutor(1)
        self.under_way: list[Future[Any]] = []

    def __enter__(self) -> Scoring:
        return self

    def __exit__(self, kind: type[BaseException] | None, *trace: Any) -> None:
        self.pool.shutdown(cancel_futures=kind is not None)
        if kind is None:
            for future in self.under_way:
                future.result()

    def add(self, runs: list[Run], data: FactorData) -> None:
        """Score these, now or soon; what went wrong with earlier ones is raised here."""
        if not (self.order.scored and runs):
            return
        options: dict[str, Any] = {"protocol": self.order.protocol, "jobs": self.order.jobs, "quiet": True}
        if not self.beside:
            score_codes(runs, self.order.metrics, data, **options)
            return
        for future in [future for future in self.under_way if future.done()]:
            self.under_way.remove(future)
            future.result()
        self.under_way.append(self.pool.submit(score_codes, runs, self.order.metrics, data, **options))


def kinds_of(method: Method, metric: str) -> Sequence[str]:
    """The codes that a study scores by a metric: the method's first, and all where the paper compares them."""
    return method.code_kinds if metric == COMPARED else method.code_kinds[:1]


def score_codes(runs: Sequence[Run], metrics: Iterable[str] | None, data: FactorData, **options: Any) -> None:
    """Score the codes that each method has first, and all kinds by the metric that the paper compares them by."""
    names = chosen(metrics)
    for kinds in dict.fromkeys(run.spec.method.code_kinds for run in runs):
        alike = [run for run in runs if run.spec.method.code_kinds == kinds]
        score(alike, metrics, data=data, codes=kinds[:1], **options)
        if COMPARED in names:
            score(alike, [COMPARED], data=data, codes=kinds, **options)


def keep_places(order: Order, runs: Sequence[Planned]) -> None:
    """Write the places of runs in the sweep and the protocol of their scores beside them, for whoever reads them."""
    with lock(order.out / ".places.lock"):
        places = read_places(order.out)
        new = {run.spec.id: {"index": run.index, "strength": run.strength, "level": run.level} for run in runs}
        if new.keys() - places.keys():
            content = {"places": {**places, **new}, "protocol": asdict(order.protocol)}
            write_atomic(order.out / "study.json", json.dumps(content).encode())


def pack(folder: Path) -> Files:
    """The files of a run's folder."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith("."))
    return {path.name: path.read_bytes() for path in files}


def unpack(folder: Path, files: Files) -> None:
    """Write a run's folder, file by file."""
    make_folder(folder)
    for name, content in files.items():
        write_atomic(folder / name, content)


def left(stack: Stackful, order: Order) -> list[Planned]:
    """The runs of a stack that are not trained, or lack a score."""
    folders = [RunDir(order.out / run.spec.id, run.spec) for run in stack.runs]
    rows = {}
    if order.scored and any(folder.status == "done" for folder in folders):
        rows = order.protocol.sizes(len(Table.of(stack.data, order.protocol).index))
    finished = [
        folder.status == "diverged" or (folder.status == "done" and scored(folder, order, rows, stack.data))
        for folder in folders
    ]
    return [run for run, done in zip(stack.runs, finished, strict=True) if not done]


def scored(run: RunDir, order: Order, rows: dict[str, int], data: FactorData) -> bool:
    """Whether every score that is asked for is kept; where none is named, whether there are any."""
    records = read_scores(run.path)
    if not order.scored or order.metrics is None:
        return bool(records) or not order.scored
    protocol, about = order.protocol, {"data": data.name, "source": getattr(data, "fingerprint", None)}
    keys = [
        {**identity(name, protocol.seed, rows, protocol.draws), "codes": kind, **about}
        for name in chosen(order.metrics)
        for kind in kinds_of(run.spec.method, name)
    ]
    return all(find_score(records, key) is not None for key in keys)


def available(planned: Sequence[Planned]) -> tuple[list[Planned], dict[str, str]]:
    """The runs whose data can be opened here, and why the others' cannot; that none can be is an error."""
    kept: list[Planned] = []
    reasons: dict[str, str] = {}
    for name, group in groupby(sorted(planned, key=lambda run: run.index), lambda run: run.spec.data):
        try:
            load_data(name, quiet=True)
        except (UserError, OSError) as error:
            reasons[name] = str(error)
        else:
            kept += list(group)
    if not kept:
        raise UserError(next(iter(reasons.values())))
    return kept, reasons
