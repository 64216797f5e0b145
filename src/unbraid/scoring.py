"""Scores of trained runs: encode a table of examples once, then let every metric read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from unbraid import metrics as registry
from unbraid.data.base import FactorData
from unbraid.dists import Gaussian
from unbraid.errors import Refusal
from unbraid.metrics.protocol import Array, Rows, chosen
from unbraid.noise import Noise
from unbraid.progress import progress
from unbraid.provenance import versions
from unbraid.run import CHUNK, Run
from unbraid.store import RunDir
from unbraid.training import load_data

CODES = ("mean", "sampled")
LIBRARIES = ("unbraid", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Protocol:
    """Sample sizes of a score. The table is every example of the grid, or as many distinct ones as `table` allows."""

    train: int = 10_000
    test: int = 5_000
    table: int = 65_536
    seed: int = 0

    def index(self, data: FactorData) -> Array:
        """The examples in the table: all of a small grid, a seeded choice of a large one."""
        if len(data) <= self.table:
            return np.arange(len(data))
        return np.sort(np.random.default_rng(self.seed).choice(len(data), self.table, replace=False))


def score(
    runs: Run | Sequence[Run],
    metrics: Iterable[str] | None = None,
    *,
    data: str | FactorData | None = None,
    codes: Iterable[str] = CODES,
    protocol: Protocol = Protocol(),
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """One flat row a run: its settings and every score.

    Scores are called ``metric.key`` for codes that are posterior means and ``metric.key.sampled`` for samples.
    Scores of runs that live in a folder are kept in its `scores.jsonl` with their protocol and library versions, and
    read from there the next time.

    >>> import unbraid as ub
    >>> (run,) = ub.train(ub.methods.VAE(), data="toy", steps=5, quiet=True)
    >>> [row] = ub.score(run, ["mig"], quiet=True)
    >>> 0 <= row["mig.discrete_mig"] <= 1
    True
    """
    wanted = [runs] if isinstance(runs, Run) else list(runs)
    names, kinds = chosen(metrics, registry.METRICS), list(codes)
    for kind in kinds:
        if kind not in CODES:
            raise ValueError(f"Codes must be among {', '.join(CODES)}. Got {kind!r} instead.")
    sources = load_sources(wanted, data, quiet)
    rows: list[dict[str, Any]] = []
    with progress("scoring", len(wanted) * len(names) * len(kinds)) as report:
        for run in wanted:
            done = len(rows) * len(names) * len(kinds)
            tell = silent if quiet else partial(report, done)
            work = Scorer(run, sources[run.spec.data].to(run.device), protocol, tell)
            scores: dict[str, float] = {}
            for kind, name in ((kind, name) for kind in kinds for name in names):
                tell(f"{name} of {run.label}")
                suffix = "" if kind == "mean" else f".{kind}"
                scores |= {f"{name}.{key}{suffix}": value for key, value in work.score(name, kind).items()}
            work.keep()
            rows.append({**describe(run), **scores})
    return rows


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


class Scorer:
    """One run's codes, encoded when first needed, and the scores already kept in its folder."""

    def __init__(self, run: Run, data: FactorData, protocol: Protocol, tell: Callable[[str], None]) -> None:
        if run.divergence is not None:
            raise Refusal(
                f"Run {run.id} diverged at step {run.divergence['step']} and has no codes to score. Leave it out."
            )
        self.run, self.data, self.protocol, self.tell = run, data, protocol, tell
        self.folder = None if run.path is None else RunDir(run.path, run.spec)
        self.records = [] if self.folder is None else self.folder.read_lines("scores.jsonl")
        self.fresh = False
        self.rows: dict[str, Rows] = {}

    def score(self, name: str, kind: str) -> dict[str, float]:
        """The values of one metric on one kind of codes, from the folder or computed."""
        key: dict[str, Any] = {"metric": name, "codes": kind, "data": self.data.name}
        key |= {"protocol": vars(self.protocol), "versions": versions(LIBRARIES)}
        for record in self.records:
            if {k: record.get(k) for k in key} == key:
                return dict(record["values"])
        if not self.rows:
            self.rows = self._encode()
        table = name in registry.WHOLE_TABLE
        values = self.rows[kind].score(registry.METRICS[name], table, self.protocol.seed)
        self.records.append({**key, "values": values})
        self.fresh = True
        return values

    def keep(self) -> None:
        """Write what is new to the run's folder."""
        if self.fresh and self.folder is not None:
            self.folder.write_lines("scores.jsonl", self.records)

    def _encode(self) -> dict[str, Rows]:
        index = torch.as_tensor(self.protocol.index(self.data), device=self.data.device)
        q = encode_table(self.run, self.data, index, self.tell)
        noise = Noise.of(torch.tensor(self.protocol.seed, device=q.mean.device), torch.tensor(0, device=q.mean.device))
        tables = {"mean": q.mean, "sampled": q.sample(noise)}
        factors = self.data.factors(index).cpu().numpy()
        p = self.protocol
        return {k: Rows.drawn(v.cpu().numpy(), factors, p.train, p.test, p.seed) for k, v in tables.items()}


def silent(note: str) -> None:
    """Tell nobody."""


@torch.no_grad()
def encode_table(run: Run, data: FactorData, index: torch.Tensor, tell: Callable[[str], None] = silent) -> Gaussian:
    """The posteriors of the examples at `index`, in chunks."""
    parts = []
    for i, part in enumerate(index.split(CHUNK)):
        tell(f"encoded {i * CHUNK:,} of {len(index):,} examples of {run.label}")
        parts.append(run.net.encode(data.batch(part)))
    return Gaussian(torch.cat([q.mean for q in parts]), torch.cat([q.logvar for q in parts]))
