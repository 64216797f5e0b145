"""Training: specs in, runs out, in stacks, resumable at any moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unbraid.accel.precision import check_precision, fastest
from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.errors import UserError
from unbraid.methods import Method
from unbraid.nets.registry import check_net, name_net
from unbraid.nets.vae import Pair, PairBuilder
from unbraid.runs.folder import find_runs
from unbraid.runs.network import build_net
from unbraid.runs.run import Run, open_run
from unbraid.runs.spec import RunSpec
from unbraid.runs.tensorboard import check_log, follow
from unbraid.runtime.files import make_folder
from unbraid.runtime.locks import try_lock
from unbraid.runtime.progress import Report, progress
from unbraid.runtime.signals import deferred
from unbraid.training.loop import Watch, train_group
from unbraid.training.schedule import RunInTraining, convoys

CHECKPOINT_SECONDS = 30.0  # between checkpoints, at least


@dataclass(frozen=True)
class Choice:
    """What data and device decide where the user has not.

    The study's network and Bernoulli pixels for images, an MLP and a Gaussian for vectors, and the fastest precision.
    """

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
        precision = precision or (fastest(data.device) if images else "fp32")
        check_precision(precision, data.device)
        return cls(data, name, builder, likelihood, precision)

    def spec(self, method: Method, **settings: Any) -> RunSpec:
        """The spec of one run."""
        chosen: dict[str, Any] = {"net": self.net, "likelihood": self.likelihood, "precision": self.precision}
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
    log: str | None = None,
) -> list[Run]:
    """Train every combination of methods, learning rates and seeds; with `out`, keep them there and resume.

    `net` and `likelihood` default to the study's network and Bernoulli pixels for images, an MLP and a Gaussian for
    vectors; `precision` to the fastest the device has. `log` "tensorboard" writes event files beside each run. Returns
    the runs in the order of the arguments, diverged ones included (see `Run.divergence`).

    >>> import unbraid as ub
    >>> runs = ub.train(ub.methods.BetaVAE(beta=4.0), data="toy", seeds=range(2), steps=20, quiet=True)
    >>> runs[0].encode(ub.data.load("toy").images([0, 1, 2])).shape
    torch.Size([3, 10])
    """
    check_log(log, out)
    methods = [method] if isinstance(method, Method) else list(method)
    rates = [learning_rate] if isinstance(learning_rate, int | float) else list(learning_rate)
    each_seed = list(seeds)
    source = load_data(data, device, quiet)
    choice = Choice.of(source, net, likelihood, precision)
    specs = [
        choice.spec(m, seed=seed, steps=steps, batch=batch, learning_rate=rate, latents=latents)
        for m in methods
        for rate in rates
        for seed in each_seed
    ]
    folder = None if out is None else Path(out)
    return train_specs(
        specs, source, choice.builder, folder, add=add, checkpoint_seconds=checkpoint_seconds, quiet=quiet, log=log
    )


def train_specs(
    specs: Sequence[RunSpec],
    data: FactorData,
    builder: PairBuilder,
    out: Path | None = None,
    *,
    add: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    quiet: bool = False,
    log: str | None = None,
) -> list[Run]:
    """Train specs on one dataset in as few stacks as they allow; runs already trained are only loaded."""
    check_log(log, out)
    unique = {spec.id: spec for spec in specs}
    check_specs(specs, data, builder)
    with ExitStack() as held:
        if out is not None:
            make_folder(out)
            if not held.enter_context(try_lock(out / ".lock")):
                raise UserError(f"Another process is training in {out}. Wait for it, or choose another output folder.")
            refuse_strangers(out, set() if add else set(unique))
        return train_held(specs, data, builder, out, checkpoint_seconds=checkpoint_seconds, quiet=quiet, log=log)


def check_specs(specs: Sequence[RunSpec], data: FactorData, builder: PairBuilder) -> None:
    """Refuse what cannot be trained on the data, before anything is made."""
    for spec in {spec.stack_key(): spec for spec in specs}.values():
        spec.method.check(data, spec.batch, spec.latents)
        check_net(build_net(spec, data.shape, builder), data.shape, spec.latents)


def train_held(
    specs: Sequence[RunSpec],
    data: FactorData,
    builder: PairBuilder,
    out: Path | None = None,
    *,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    quiet: bool = False,
    report: Report | None = None,
    log: str | None = None,
) -> list[Run]:
    """The same without checks, for whoever holds the folder, or these runs of it, already.

    Ctrl-C and SIGTERM (schedulers, `timeout`) end it after the step under way and a checkpoint; a second one at once.
    """
    unique = {spec.id: spec for spec in specs}
    with ExitStack() as held:
        berths = [RunInTraining.of(spec, out) for spec in unique.values()]
        runs = {b.spec.id: open_run(b.folder, data, builder) for b in berths if b.trained and b.folder is not None}
        waiting = [b for b in berths if not b.trained]
        for berth in berths if log is not None else ():
            berth.follow = follow
            if berth.folder is not None and berth.trained:
                follow(berth.folder, runs[berth.spec.id].log)
        if report is None and not quiet:
            report = held.enter_context(progress("training", sum(b.spec.steps for b in waiting)))
        watch = Watch(waiting, report, checkpoint_seconds, held.enter_context(deferred()))
        for convoy in convoys(berths, data, builder):
            runs |= {run.id: run for run in train_group(convoy, watch, data, builder)}
    return [runs[spec.id] for spec in specs]


def refuse_strangers(out: Path, wanted: set[str]) -> None:
    """Refuse a folder with runs that were not asked for, unless none in particular were."""
    strangers = [run for run in find_runs(out) if run.spec.id not in wanted]
    if wanted and strangers:
        raise UserError(
            f"{out} holds {len(strangers)} other run(s), such as {strangers[0].path.name}. Choose another output "
            "folder, ask for those runs too, or say --add (add=True) to keep them side by side."
        )
