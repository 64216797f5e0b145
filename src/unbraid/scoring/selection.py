"""Choosing among trained runs without labels: those whose latents agree with the others'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError, unknown
from unbraid.metrics.protocol import Protocol
from unbraid.metrics.udr import udr
from unbraid.runs.run import Run, default_code
from unbraid.runtime.progress import Report, progress, silent
from unbraid.scoring.encoding import encode_tables
from unbraid.scoring.score import describe, load_sources

WITHIN = ("settings", "data")
INFORMATIVE = 0.01  # nats from the prior above which a latent counts


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
        raise UserError(unknown("method of ranking", method, ["lasso", "spearman"]))
    if within is not None and within not in WITHIN:
        raise UserError(unknown("group to rank within", within, list(WITHIN)))
    sources = load_sources(runs, data, quiet)
    rows: list[dict[str, Any]] = []
    with progress("ranking", len(runs)) as report:
        tell = silent if quiet else report
        for group in grouped(runs, within):
            source = sources[group[0].spec.data].to(group[0].device)
            found = compare(group, source, drawn(source, examples, seed), method, tell, len(rows))
            scored = zip(group, found.scores, found.informative, strict=True)
            rows += [{**describe(run), "udr": value, "informative": count} for run, value, count in scored]
    return sorted(rows, key=lambda row: -row["udr"])


class Compared(NamedTuple):
    """Codes of several runs for the same examples, their rankings, and how many of their latents are informative.

    `variances` are the mean posterior variances of a run's latents, None where the method has no normal posterior.
    """

    codes: list[Any]
    scores: list[float]
    informative: list[int]
    variances: list[Any]


def compare(
    group: Sequence[Run], data: FactorData, index: Tensor, method: str = "lasso", report: Report = silent, done: int = 0
) -> Compared:
    """Encode the same examples with every run and rank them; a run alone scores NaN, for there is nothing to rank."""
    codes: list[Any] = []
    nats: list[Any] = []
    variances: list[Any] = []
    for run, q in zip(group, encode_tables([(run, data, index) for run in group]), strict=True):
        report(done + len(codes), f"encoded with {run.label}")
        codes.append(default_code(run, q).cpu().numpy())
        kl = run.spec.method.information(q)
        nats.append(np.ones(codes[-1].shape[1]) if kl is None else kl.cpu().numpy())
        variances.append(None if kl is None else q.logvar.exp().mean(0).cpu().numpy())
    ranked = udr(codes, nats, method=method).model_scores if len(codes) > 1 else np.full(len(codes), np.nan)
    return Compared(codes, ranked.tolist(), [int((row > INFORMATIVE).sum()) for row in nats], variances)


def drawn(data: FactorData, examples: int, seed: int) -> Tensor:
    """The examples of data that are encoded, at most so many, none of them twice."""
    return torch.as_tensor(Protocol(train=examples, seed=seed).examples(len(data)), device=data.device)


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
        raise UserError(f"A ranking compares at least 2 runs {alike}. Got {alone} alone. Train more seeds.")
    return list(by[kind].values())
