"""Training: specs in, runs out, in stacks, resumable at any moment."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Any

import torch

from unbraid import data as datasets
from unbraid.data.base import FactorData
from unbraid.engine.precision import fastest
from unbraid.engine.stack import Divergence, Stack
from unbraid.errors import Refusal
from unbraid.files import locked, make_folder
from unbraid.methods import Method
from unbraid.nets.build import build_net, check_net, name_net
from unbraid.nets.vae import Pair, PairBuilder
from unbraid.progress import Report, progress
from unbraid.run import Run, load_weights, open_run
from unbraid.spec import RunSpec
from unbraid.store import Log, RunDir, find_runs

LOG_LINES = 200  # at most this many lines in a run's log
STACK = 16  # runs that ride together
CHECKPOINT_SECONDS = 30.0  # between checkpoints, at least
CHECKPOINT_SHARE = 0.05  # of the time, at most, goes into writing them


@dataclass
class Berth:
    """A run's place while it trains: where it is kept, how far it is, and what it has logged."""

    spec: RunSpec
    folder: RunDir | None
    step: int = 0
    log: Log = field(default_factory=list)
    divergence: Divergence | None = None
    trained: bool = False

    @classmethod
    def of(cls, spec: RunSpec, out: Path | None) -> Berth:
        """A place for a spec, at the step its folder left it."""
        folder = None if out is None else RunDir.create(out, spec)
        status = "new" if folder is None else folder.status
        step = folder.checkpoint_step() if folder is not None and status == "partial" else 0
        return cls(spec, folder, step, trained=status in ("done", "diverged"))


def load_data(data: str | FactorData, device: str | torch.device = "cpu", quiet: bool = False) -> FactorData:
    """A dataset by name, with progress if making it takes a while."""
    if not isinstance(data, str):
        return data.to(device)
    with ExitStack() as stack:
        report = None if quiet else stack.enter_context(progress(f"preparing {data}", 100))
        return datasets.load(data, device=device, progress=report and (lambda part: report(100 * part)))


@dataclass(frozen=True)
class Choice:
    """What data and device decide where the user has not: the study's network and Bernoulli pixels for images, an MLP
    and a Gaussian for vectors, and the fastest precision."""

    data: FactorData
    net: str
    builder: PairBuilder
    likelihood: str
    precision: str

    @classmethod
    def of(
        cls,
        data: FactorData,
        net: str | PairBuilder | Pair | None = None,
        likelihood: str | None = None,
        precision: str | None = None,
    ) -> Choice:
        images = len(data.shape) == 3
        name, builder = name_net(net or ("locatello" if images else "mlp"))
        likelihood = likelihood or ("bernoulli" if images else "gaussian")
        return cls(data, name, builder, likelihood, precision or (fastest(data.device) if images else "fp32"))

    def spec(self, method: Method, **settings: Any) -> RunSpec:
        """The spec of one run."""
        chosen = {"net": self.net, "likelihood": self.likelihood, "precision": self.precision}
        return RunSpec(method, self.data.name, **settings, **chosen)


def train(
    method: Method | Iterable[Method],
    data: str | FactorData = "sprites",
    *,
    seeds: Iterable[int] = (0,),
    steps: int = 300_000,
    batch: int = 64,
    learning_rate: float | Iterable[float] = 1e-4,
    latents: int = 10,
    net: str | PairBuilder | Pair | None = None,
    likelihood: str | None = None,
    precision: str | None = None,
    out: str | Path | None = None,
    device: str | torch.device = "cpu",
    add: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    quiet: bool = False,
) -> list[Run]:
    """Train every combination of methods, learning rates and seeds; with `out`, keep them there and resume.

    `net` and `likelihood` default to the study's network and Bernoulli pixels for images, an MLP and a Gaussian for
    vectors, `precision` to the fastest the device has. Returns the runs in the order of the arguments, diverged ones included (see `Run.divergence`).

    >>> import unbraid as ub
    >>> runs = ub.train(ub.methods.BetaVAE(beta=4.0), data="toy", seeds=range(2), steps=20, quiet=True)
    >>> runs[0].encode(ub.data.load("toy").images([0, 1, 2])).shape
    torch.Size([3, 10])
    """
    source = load_data(data, device, quiet)
    choice = Choice.of(source, net, likelihood, precision)
    specs = [
        choice.spec(m, seed=seed, steps=steps, batch=batch, learning_rate=rate, latents=latents)
        for m in ([method] if isinstance(method, Method) else method)
        for rate in ([learning_rate] if isinstance(learning_rate, int | float) else learning_rate)
        for seed in seeds
    ]
    folder = None if out is None else Path(out)
    return train_specs(specs, source, choice.builder, folder, add=add, checkpoint_seconds=checkpoint_seconds, quiet=quiet)


def train_specs(
    specs: Sequence[RunSpec],
    data: FactorData,
    builder: PairBuilder,
    out: Path | None = None,
    *,
    add: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    quiet: bool = False,
) -> list[Run]:
    """Train specs on one dataset in as few stacks as they allow; runs already trained are only loaded."""
    unique = {spec.id: spec for spec in specs}
    for spec in {spec.stack_key(): spec for spec in specs}.values():
        check_net(build_net(spec, data.shape, builder), data.shape, spec.latents)
    with ExitStack() as held:
        if out is not None:
            make_folder(out)
            held.enter_context(locked(out))
            refuse_strangers(out, set() if add else set(unique))
        berths = [Berth.of(spec, out) for spec in unique.values()]
        runs = {b.spec.id: open_run(b.folder, data, builder) for b in berths if b.trained and b.folder is not None}
        waiting = [b for b in berths if not b.trained]
        report = None if quiet else held.enter_context(progress("training", sum(b.spec.steps for b in waiting)))
        watch = Watch(waiting, report, checkpoint_seconds)
        for stack, aboard in boarded(berths, data, builder):
            train_stack(stack, aboard, watch)
            runs.update({b.spec.id: landed(stack, i, b, data, builder) for i, b in enumerate(aboard)})
    return [runs[spec.id] for spec in specs]


def refuse_strangers(out: Path, wanted: set[str]) -> None:
    """Refuse a folder with runs that were not asked for, unless none in particular were."""
    strangers = [run for run in find_runs(out) if run.spec.id not in wanted]
    if wanted and strangers:
        raise Refusal(
            f"{out} holds {len(strangers)} other run(s), such as {strangers[0].path.name}. Choose another output folder, "
            "ask for those runs too, or say --add (add=True) to keep them side by side."
        )


def boarded(berths: list[Berth], data: FactorData, builder: PairBuilder) -> Iterator[tuple[Stack, list[Berth]]]:
    """Stacks of compatible runs, each loaded only when its turn comes; runs already trained stay behind.

    Who rides with whom, and so on how many threads, follows from the specs alone: the same command gives the same
    arithmetic however often it was interrupted, even if that left runs of one stack at different steps.
    """
    for _, group in groupby(sorted(berths, key=lambda b: b.spec.stack_key()), lambda b: b.spec.stack_key()):
        members = list(group)
        for i in range(0, len(members), STACK):
            planned = members[i : i + STACK]
            threads = min(torch.get_num_threads(), len(planned))
            waiting = sorted((b for b in planned if not b.trained), key=lambda b: b.step)
            for _, level in groupby(waiting, lambda b: b.step):
                aboard = list(level)
                yield load_stack(aboard, data, builder, threads), aboard


def load_stack(berths: list[Berth], data: FactorData, builder: PairBuilder, threads: int) -> Stack:
    """A stack as its checkpoints left it, or at step 0."""
    stack = Stack([berth.spec for berth in berths], data, builder, threads=threads)
    stack.step = berths[0].step
    for i, berth in enumerate(berths):
        if berth.step and berth.folder is not None:
            state, berth.log = berth.folder.read_checkpoint()
            stack.load_state(i, state)
    return stack


@dataclass
class Watch:
    """Tells how training goes and when the next checkpoint is due."""

    berths: list[Berth]
    report: Report | None
    checkpoint_seconds: float
    begun: float = field(default_factory=time.monotonic)
    taken: int = 0
    due: float = field(init=False)

    def __post_init__(self) -> None:
        self.due = self.begun + self.checkpoint_seconds

    def tell(self, stack: Stack) -> None:
        """Report model-steps done, their rate and the stack's mean loss."""
        self.taken += len(stack)
        if self.report is not None:
            rate = self.taken / max(time.monotonic() - self.begun, 1e-9)
            loss = stack.last[:, 0].mean() if stack.terms else float("nan")
            note = f"{len(stack)} runs together, {rate:.0f} model-steps/s, loss {loss:.1f}"
            self.report(sum(berth.step for berth in self.berths), note)

    def checkpoint_due(self) -> bool:
        return time.monotonic() >= self.due

    def checkpoint_taken(self, cost: float) -> None:
        """The next one comes later if writing is slow."""
        self.due = time.monotonic() + max(self.checkpoint_seconds, cost / CHECKPOINT_SHARE)


def train_stack(stack: Stack, berths: list[Berth], watch: Watch) -> None:
    """Advance a stack to its last step, logging, checkpointing and setting aside what diverges."""
    steps = berths[0].spec.steps
    every = max(1, ceil(steps / LOG_LINES))
    while stack.step < steps and any(berth.divergence is None for berth in berths):
        stack.advance()
        for berth in berths:
            berth.step = stack.step
        watch.tell(stack)
        at_log, at_checkpoint = stack.step % every == 0 or stack.step == steps, watch.checkpoint_due()
        if at_log or at_checkpoint:
            set_aside(stack, berths)
        if at_log:
            write_log(stack, berths)
        if at_checkpoint:
            begun = time.monotonic()
            save(stack, berths)
            watch.checkpoint_taken(time.monotonic() - begun)


def set_aside(stack: Stack, berths: list[Berth]) -> None:
    """Name the runs that are no longer finite; the others go on."""
    for found in stack.divergences():
        berths[found.member].divergence = found


def write_log(stack: Stack, berths: list[Berth]) -> None:
    """A line a run: the step and the means of its terms since the last line."""
    for berth, means in zip(berths, stack.means(), strict=True):
        if berth.divergence is None:
            berth.log.append({"step": stack.step, **means})


def save(stack: Stack, berths: list[Berth]) -> None:
    """Checkpoint every run of the stack that is still on its way."""
    for i, berth in enumerate(berths):
        if berth.folder is not None and berth.divergence is None and berth.step < berth.spec.steps:
            berth.folder.write_checkpoint(stack.step, stack.state(i), berth.log)


def landed(stack: Stack, i: int, berth: Berth, data: FactorData, builder: PairBuilder) -> Run:
    """The trained run, written to its folder."""
    weights = stack.weights(i)
    found = berth.divergence and {"step": berth.divergence.step, "term": berth.divergence.term}
    if berth.folder is not None:
        berth.folder.finish(stack.step, weights, berth.log, found)
    net = load_weights(build_net(berth.spec, data.shape, builder), weights, berth.spec.id).to(data.device)
    return Run(berth.spec, net, berth.log, berth.folder and berth.folder.path, found)
