"""Select trained runs without labels: by how well their latents agree with those of other runs, or by PIPE."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.loading import DataLike
from unbraid.errors import UserError, unknown_name_message, warn_user
from unbraid.metrics.protocol import Protocol
from unbraid.metrics.udr import udr
from unbraid.runs.only import Only
from unbraid.runs.run import Run
from unbraid.runs.same_model import group_same_models, same_model_notes
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.progress import ProgressCallback, ignore_progress, progress
from unbraid.scoring.encoding import encode_tables
from unbraid.scoring.rows import ScoreRows
from unbraid.scoring.score import describe_run, load_datasets, scorable_runs

CRITERIA = ("udr", "model_centrality", "pipe")
GROUPINGS = ("settings", "data")
MAX_PARTNERS = 50  # maximum number of other runs with which `select` compares a run, an even number
INFORMATIVE_NATS = 0.01  # a latent is informative if its mean KL from the prior exceeds this


@explain_unknown_arguments()
def select(
    runs: str | Path | Run | Iterable[str | Path | Run],
    *,
    data: DataLike | None = None,
    by: str = "udr",
    method: str = "lasso",
    within: str | None = None,
    examples: int = 10_000,
    seed: int = 0,
    quiet: bool = False,
    trust: bool = False,
    only: Only = None,
) -> list[dict[str, Any]]:
    """Rank trained runs by a criterion that needs no labels.

    There are three criteria:

    - "udr" is unsupervised disentanglement ranking (`unbraid.metrics.udr`): how closely the latents of a run match
      those of other runs one to one. Only informative latents are compared, that is, latents whose mean KL from the
      prior exceeds 0.01 nats. For methods without a KL per latent (see `Method.information`), all latents are compared.
    - "model_centrality" is a mean of FactorVAE scores in two directions: other runs encode examples that a run decodes,
      and the run encodes examples that the others decode. The latents of the decoding run take the place of the
      factors. This criterion needs a decoder and a normal prior (`unbraid.metrics.model_centrality`).
    - "pipe" trains a classifier to distinguish reconstructions from examples that are decoded from independently drawn
      latents (`unbraid.scoring.pipe.pipe`). Each run is judged alone and needs a decoder. On one core, PIPE takes about
      15 s per run for the images of `sprites` (32x32 pixels).

    UDR and ModelCentrality measure agreement, so a mistake that all runs share scores high. A high PIPE score is not
    sufficient for disentanglement, because a run whose decoder ignores the latents has the highest score. It is
    necessary only if the latents fill their range evenly: disentangled latents that are normally distributed score low.

    In a group of more than 51 runs, each run is compared with 50 random others, so that time and memory grow in
    proportion to the number of runs.

    Reference: Duan et al. (2020), arXiv:1905.12614 (UDR); Lin et al. (2020), arXiv:1906.06034 (ModelCentrality);
    Estermann and Wattenhofer (2023), arXiv:2303.01384 (PIPE).

    Args:
        runs: The trained runs, or one or several folders of runs. Diverged runs in folders are left out with a warning.
            Except for PIPE, every run needs another run to be compared with (see `within`). A run that is given twice
            counts once. A model that was adopted twice also counts once, and a warning names its runs.
        data: The dataset to encode with all runs. By default each run encodes its own dataset.
        by: The criterion: "udr", "model_centrality" or "pipe".
        method: How UDR compares the latents of two runs, "lasso" or "spearman".
        within: Which runs are compared with each other. "settings" compares runs that differ only in the seed, as in
            the paper on UDR. "data" compares all runs on the same dataset. The default is "settings" if every run can
            be compared in this way, and "data" otherwise.
        examples: Maximum number of examples to encode. For ModelCentrality, it is also the number of examples that each
            run decodes.
        seed: Random seed for the choice of examples, for latents and classifiers, and for the choice of the runs that
            are compared in a large group.
        quiet: Whether to hide the progress bar.
        trust: Whether to run code that a folder names: methods and networks outside unbraid (see `load_runs`).
        only: Which runs to rank, by their settings, such as "method=beta_vae,beta=8" (see `load_runs`). By default all.

    Returns:
        One flat dictionary per run, best first, with `run` (id), `label`, all settings, the score under the name of the
        criterion, and `informative`, the number of informative latents. Notebooks and `print` show the list as a table.

    Raises:
        UserError: If `by`, `method` or `within` is unknown, if a run has no other run to be compared with, or if a run
            lacks what the criterion needs.

    >>> import unbraid as ub
    >>> runs = ub.train(ub.methods.VAE(), data="toy", seeds=range(2), steps=5, quiet=True)
    >>> [sorted(row)[-2:] for row in ub.select(runs, examples=100, quiet=True)]
    [['steps', 'udr'], ['steps', 'udr']]
    """
    for what, name, known in (
        ("criterion to rank by", by, CRITERIA),
        ("method of ranking", method, ("lasso", "spearman")),
        ("group to rank within", within or "settings", GROUPINGS),
    ):
        if name not in known:
            raise UserError(unknown_name_message(what, name, list(known)))
    runs = _different_models(scorable_runs(runs, data, trust, only))
    datasets = load_datasets(runs, data, quiet)
    rows: list[dict[str, Any]] = []
    with progress("ranking", len(runs), quiet) as report:
        for group in [[run] for run in runs] if by == "pipe" else group_runs(runs, within):
            dataset = datasets[group[0].spec.data].to(group[0].device)
            ranking = GroupRanking(group, dataset, draw_examples(dataset, examples, seed), seed, report, len(rows))
            for run, (value, count) in zip(group, ranking.rank(by, method, examples), strict=True):
                rows.append({**describe_run(run), by: value, "informative": count})
    return ScoreRows(sorted(rows, key=lambda row: -row[by]), [run.spec for run in runs])


def _different_models(runs: Sequence[Run]) -> list[Run]:
    """Return one run per model, and warn about copies. A model would agree perfectly with a copy of itself."""
    for note in same_model_notes(runs):
        warn_user(f"{note} Only the first one is ranked.")
    return [group[0] for group in group_same_models(runs)]


@dataclass(frozen=True)
class GroupRanking:
    """Runs that are compared with each other, the examples that they encode, and how to report progress.

    Attributes:
        group: The runs.
        data: Their dataset, on the device of the runs.
        index: The examples to encode.
        seed: Random seed of the ranking.
        report: Called with the number of runs that are finished.
        done: Number of runs that were finished before this group.
    """

    group: Sequence[Run]
    data: FactorData
    index: Tensor
    seed: int
    report: ProgressCallback
    done: int

    def rank(self, by: str, method: str, examples: int) -> list[tuple[float, int]]:
        """Return the score of each run by a criterion, and its number of informative latents."""
        if by == "udr":
            return self.rank_by_udr(method)
        counts = [run.informative for run in encode_runs(self.group, self.data, self.index, self.report, self.done)]
        if by == "pipe":
            from unbraid.scoring.pipe import pipe

            scores = [pipe(run, self.data, self.index, self.seed) for run in self.group]
        else:
            from unbraid.scoring.centrality import rank_by_centrality

            scores = rank_by_centrality(self.group, examples, self.seed, MAX_PARTNERS, self.report, self.done)
        return list(zip(scores, counts, strict=True))

    def rank_by_udr(self, method: str) -> list[tuple[float, int]]:
        """Return the UDR of each run and its number of informative latents."""
        if len(self.group) > MAX_PARTNERS + 1:
            return rank_large_group(self.group, self.data, self.index, method, self.seed, self.report, self.done)
        whole = rank_group(self.group, self.data, self.index, method, self.report, self.done)
        return list(zip(whole.scores, whole.informative, strict=True))


class RankedGroup(NamedTuple):
    """Several runs that encoded the same examples. All lists have one entry per run.

    Attributes:
        codes: Codes of the default kind, (examples, d).
        scores: The UDR.
        informative: Number of informative latents.
        variances: Mean posterior variance of each latent, (d,), or None if the method has no normal posterior.
    """

    codes: list[Any]
    scores: list[float]
    informative: list[int]
    variances: list[Any]


def rank_group(
    group: Sequence[Run],
    data: FactorData,
    index: Tensor,
    method: str = "lasso",
    report: ProgressCallback = ignore_progress,
    done: int = 0,
) -> RankedGroup:
    """Encode the same examples with every run and compute the UDR of each run. The UDR of a single run is NaN."""
    encoded = list(encode_runs(group, data, index, report, done))
    codes, nats = [run.codes for run in encoded], [run.nats for run in encoded]
    ranked = udr(codes, nats, method=method).model_scores if len(codes) > 1 else np.full(len(codes), np.nan)
    return RankedGroup(codes, ranked.tolist(), [run.informative for run in encoded], [run.variances for run in encoded])


class EncodedRun(NamedTuple):
    """The codes that one run computed from the examples, and statistics of its posteriors.

    Attributes:
        codes: Codes of the default kind, (examples, d).
        nats: Mean KL of each latent from the prior, (d,), or ones if the method has no KL per latent.
        variances: Mean posterior variance of each latent, (d,), or None if the method has no normal posterior.
    """

    codes: Any
    nats: Any
    variances: Any

    @property
    def informative(self) -> int:
        """The number of informative latents."""
        return int((self.nats > INFORMATIVE_NATS).sum())


def encode_runs(
    group: Sequence[Run], data: FactorData, index: Tensor, report: ProgressCallback, done: int
) -> Iterator[EncodedRun]:
    """Encode the examples with one run after another, and yield one `EncodedRun` per run."""
    for i, (run, q) in enumerate(zip(group, encode_tables((run, data, index) for run in group), strict=True)):
        report(done + i, f"encoded with {run.label}")
        codes, kl = run.codes(q).cpu().numpy(), run.spec.method.information(q)
        nats = np.ones(codes.shape[1]) if kl is None else kl.cpu().numpy()
        yield EncodedRun(codes, nats, None if kl is None else q.logvar.exp().mean(0).cpu().numpy())


def rank_large_group(
    group: Sequence[Run],
    data: FactorData,
    index: Tensor,
    method: str,
    seed: int,
    report: ProgressCallback = ignore_progress,
    done: int = 0,
) -> list[tuple[float, int]]:
    """Return the UDR and the number of informative latents of each run in a group of more than `MAX_PARTNERS` + 1 runs.

    The runs are put on a circle in random order. Each run is compared with its `MAX_PARTNERS` nearest neighbours, half
    of them on each side. The codes of a run are in memory only while they are compared.
    """
    n, reach = len(group), MAX_PARTNERS // 2
    order = np.random.default_rng(seed).permutation(n)
    encodings = enumerate(encode_runs([group[i] for i in order], data, index, report, done))
    scores: list[list[float]] = [[] for _ in range(n)]
    informative = [0] * n
    encoded: dict[int, EncodedRun] = {}
    for start in range(0, n, reach):
        owners = min(reach, n - start)
        window = [(start + k) % n for k in range(owners + reach)]
        while not all(place in encoded for place in window):
            place, encoded[place] = next(encodings)
            informative[place] = encoded[place].informative
        pairs = udr([encoded[p].codes for p in window], [encoded[p].nats for p in window], method=method).pairwise
        for i in range(owners):
            for j in range(i + 1, i + reach + 1):
                scores[window[j]].append(pairs[i, j])
                scores[window[i]].append(pairs[j, i])
        encoded = {place: run for place, run in encoded.items() if place >= start + owners or place < reach}
    ranked = [(float(np.median(values)), count) for values, count in zip(scores, informative, strict=True)]
    return [ranked[place] for place in np.argsort(order)]


def draw_examples(data: FactorData, examples: int, seed: int) -> Tensor:
    """Return the indices of at most `examples` random examples of a dataset, without repetition."""
    return torch.as_tensor(Protocol(train=examples, seed=seed).sample_indices(len(data)), device=data.device)


def group_runs(runs: Sequence[Run], within: str | None = None) -> list[list[Run]]:
    """Group runs that are compared with each other (see `select`). Raise a UserError if a group has only one run."""
    by: dict[str, dict[Any, list[Run]]] = {"settings": {}, "data": {}}
    for run in runs:
        by["data"].setdefault(run.spec.data, []).append(run)
        by["settings"].setdefault(run.spec.settings_key(), []).append(run)
    fits = {key: all(len(group) > 1 for group in groups.values()) for key, groups in by.items()}
    kind = within or ("settings" if fits["settings"] else "data")
    if not runs or not fits[kind]:
        alike = "that differ only in the seed" if kind == "settings" else "on the same data"
        alone = next((group[0].label for group in by[kind].values() if len(group) == 1), None)
        got = "no runs" if alone is None else f"only {alone}"
        raise UserError(f"A ranking needs at least 2 runs {alike}. Got {got} instead. Train more seeds.")
    return list(by[kind].values())
