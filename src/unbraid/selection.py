"""Choosing among trained runs without labels: those whose latents agree with the others'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from unbraid.data.base import FactorData
from unbraid.dists import Gaussian
from unbraid.encoding import encode_tables
from unbraid.errors import Refusal, unknown
from unbraid.metrics.udr import udr
from unbraid.noise import Noise
from unbraid.progress import progress
from unbraid.run import Run
from unbraid.scoring import describe, load_sources

WITHIN = ("settings", "data")


def rank(
    runs: Sequence[Run],
    *,
    data: str | FactorData | None = None,
    method: str = "lasso",
    within: str | None = None,
    examples: int = 10_000,
    seed: int = 0,
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """One flat row a run with its unsupervised disentanglement ranking ``udr``, the best first.

    A run is compared with the runs that differ from it in the seed only (`within` "settings", as in the paper) or with
    all runs of its dataset ("data"); by default the former where every run has such a partner. Latents whose mean KL
    from the prior is at most .01 nats do not count, and ``informative`` says how many do; with methods that cannot tell
    (`Method.information`) all do.

    Reference: Duan et al. (2020), arXiv:1905.12614.
    """
    if method not in ("lasso", "spearman"):
        raise ValueError(unknown("method of ranking", method, ["lasso", "spearman"]))
    if within is not None and within not in WITHIN:
        raise ValueError(unknown("group to rank within", within, list(WITHIN)))
    sources = load_sources(runs, data, quiet)
    groups = grouped(runs, within)
    rows: list[dict[str, Any]] = []
    tables_of = {
        (name, device): _drawn(sources[name].to(device), examples, seed)
        for name, device in {(run.spec.data, run.device) for run in runs}
    }
    with progress("ranking", len(runs)) as report:
        for group in groups:
            codes: list[Any] = []
            kl: list[Any] = []
            tables = [tables_of[run.spec.data, run.device] for run in group]
            asked = [(run, data, index) for run, (data, index) in zip(group, tables, strict=True)]
            for run, q in zip(group, encode_tables(asked), strict=True):
                if not quiet:
                    report(len(rows) + len(codes), f"encoded with {run.label}")
                codes.append(default_code(run, q).cpu().numpy())
                nats = run.spec.method.information(q)
                kl.append(np.ones(codes[-1].shape[1]) if nats is None else nats.cpu().numpy())
            scores = udr(codes, kl, method="lasso" if method == "lasso" else "spearman").model_scores
            live = [int((row > 0.01).sum()) for row in kl]
            found = zip(group, scores.tolist(), live, strict=True)
            rows += [{**describe(run), "udr": value, "informative": count} for run, value, count in found]
    return sorted(rows, key=lambda row: -row["udr"])


def default_code(run: Run, q: Gaussian) -> torch.Tensor:
    """What metrics see of a run by default."""
    method, zero = run.spec.method, torch.tensor(0, device=q.mean.device)
    with torch.no_grad():
        return method.code(run.net, q, method.code_kinds[0], Noise.of(zero, zero))


def _drawn(data: FactorData, examples: int, seed: int) -> tuple[FactorData, torch.Tensor]:
    """Data and the examples of it that are encoded."""
    index = np.random.default_rng(seed).integers(len(data), size=examples)
    return data, torch.as_tensor(index, device=data.device)


def grouped(runs: Sequence[Run], within: str | None = None) -> list[list[Run]]:
    """Runs that are compared with each other; every group needs two."""
    by: dict[str, dict[Any, list[Run]]] = {"settings": {}, "data": {}}
    for run in runs:
        by["data"].setdefault(run.spec.data, []).append(run)
        settings = {key: value for key, value in run.spec.to_dict().items() if key != "seed"}
        by["settings"].setdefault(str(settings), []).append(run)
    fits = {key: all(len(group) > 1 for group in groups.values()) for key, groups in by.items()}
    kind = within or ("settings" if fits["settings"] else "data")
    if not runs or not fits[kind]:
        alike = "that differ in the seed only" if kind == "settings" else "on the same data"
        alone = next((group[0].label for group in by[kind].values() if len(group) == 1), "no run")
        raise Refusal(f"A ranking compares at least 2 runs {alike}. Got {alone} alone. Train more seeds.")
    return list(by[kind].values())
