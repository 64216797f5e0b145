"""Metrics that a study computes after training: information and gaps per factor, active latents, and the UDR.

The UDR is the unsupervised disentanglement ranking (see `unbraid.scoring.selection`). The metrics are computed for
groups of runs that differ in the seed only. Each run of a group encodes the same examples, and encodes them only once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.errors import warn_user
from unbraid.metrics.protocol import Protocol, score_versions
from unbraid.runs.folder import RunFolder, find_runs
from unbraid.runs.run import open_run
from unbraid.runs.scores import add_scores, find_score, read_scores
from unbraid.runtime.files import make_folder
from unbraid.runtime.locks import lock
from unbraid.runtime.progress import progress
from unbraid.scoring.code_statistics import (
    ACTIVE_VARIANCE,
    BINS,
    count_active_latents,
    factor_gaps,
    information_per_factor,
)
from unbraid.scoring.factor_table import FactorTable
from unbraid.scoring.selection import RankedGroup, rank_group

GROUP_METRICS = ("information", "gaps", "active", "udr")
OPTIONS: dict[str, dict[str, Any]] = {
    "information": {"bins": BINS}, "gaps": {"bins": BINS}, "active": {"below": ACTIVE_VARIANCE},
    "udr": {"method": "lasso", "threshold": 0.01},
}  # fmt: skip
REVISION = "0.1.0"  # the version of unbraid that last changed the numbers of these metrics
Record = dict[str, Any]


def seed_groups(out: Path, ids: Iterable[str]) -> Iterator[list[RunFolder]]:
    """Yield groups of finished runs that differ in the seed only, from the folder `out`, ordered by dataset.

    Groups that contain no run in `ids` are skipped.
    """
    wanted = set(ids)
    done = [run for run in find_runs(out) if run.status == "done"]
    ordered = sorted(done, key=lambda run: (run.spec.data, run.spec.settings_key(), run.spec.sort_key()))
    for _, group in groupby(ordered, lambda run: run.spec.settings_key()):
        members = list(group)
        if wanted & {run.spec.id for run in members}:
            yield members


@dataclass(frozen=True)
class GroupScoring:
    """Computes metrics of groups of runs that differ in the seed only.

    Attributes:
        out: The folder of the runs.
        names: The metrics to compute.
        protocol: How examples are sampled.
        device: "cpu" or "cuda".
    """

    out: Path
    names: Sequence[str] = GROUP_METRICS
    protocol: Protocol = Protocol()
    device: str = "cpu"

    def score(self, ids: Iterable[str], quiet: bool = True) -> None:
        """Compute the scores of each group that contains a run in `ids` and lacks a score, and write them.

        If one score of a group is missing, all scores of the group are computed again. If runs with new seeds have been
        added to a group, the UDR of its runs counts as missing, because it depends on all runs of the group.
        """
        groups = list(seed_groups(self.out, ids)) if self.names else []
        with progress("comparing seeds", len(groups), quiet) as report_progress:
            done = 0
            for name, members in groupby(groups, lambda group: group[0].spec.data):
                data = load_data(name, self.device, quiet=True)
                index = self.sample(data)
                for group in members:
                    report_progress(done, f"settings, now {name}")
                    self.score_group(group, data, index)
                    done += 1
        single = [group[0] for group in groups if len(group) == 1]
        if single and "udr" in self.names:
            warn_user(
                f"left out: udr of {len(single)} runs, such as {single[0].path.name}: The UDR compares runs that "
                "differ in the seed only, and these settings have only one seed. Train more seeds."
            )

    def score_group(self, group: Sequence[RunFolder], data: FactorData, index: Tensor) -> None:
        """Compute the scores of one group if any is missing. A lock lets only one process at a time do so."""
        name = hashlib.sha256(group[0].spec.settings_key().encode()).hexdigest()[:16]
        make_folder(self.out / ".claims")
        with lock(self.out / ".claims" / f"close-{name}.lock"):
            if not self.lacks_scores(group, data):
                return
            ranked = rank_group([open_run(run, data, device=self.device) for run in group], data, index)
            factors = FactorTable.of(data, index)
            for i, run in enumerate(group):
                own = self.record_keys(run, group, data)
                values = self.values(ranked, i, factors, data)
                new = [{**key, "values": values[name]} for name, key in own.items()]
                add_scores(run.path, new, replaced=lambda record, own=own: record["metric"] in own)  # type: ignore[misc]

    def lacks_scores(self, group: Sequence[RunFolder], data: FactorData) -> bool:
        """Return whether a run of a group lacks one of its scores."""
        keys = [(run, key) for run in group for key in self.record_keys(run, group, data).values()]
        return any(lacks_record(run, key) for run, key in keys)

    def sample(self, data: FactorData) -> Tensor:
        """Return the indices of the examples that all runs on a dataset encode."""
        return torch.as_tensor(self.protocol.sample_indices(len(data)), device=data.device)

    def values(
        self, ranked: RankedGroup, i: int, factors: FactorTable, data: FactorData
    ) -> dict[str, dict[str, float]]:
        """Return the scores of run `i` of a group, by metric."""
        codes, names = ranked.codes[i], data.names
        arguments = codes, factors.values, names, factors.continuous
        with_information, with_gaps = ("information" in self.names and names), ("gaps" in self.names and names)
        return {
            "information": information_per_factor(*arguments) if with_information else {},
            "gaps": factor_gaps(*arguments) if with_gaps else {},
            "active": count_active_latents(ranked.variances[i], data),
            "udr": {"score": float(ranked.scores[i]), "informative": ranked.informative[i]},
        }

    def record_keys(self, run: RunFolder, group: Sequence[RunFolder], data: FactorData) -> dict[str, Record]:
        """Return, for each metric that applies to the run, the entries that an up-to-date record must contain."""
        labelled = bool(data.names)
        applies = {"information": labelled, "gaps": labelled, "active": True, "udr": len(group) > 1}
        among = {"udr": {"among": [member.spec.id for member in group]}}
        common = {
            "rows": {"examples": len(self.protocol.sample_indices(len(data)))},
            "draws": self.protocol.draws,
            "seed": self.protocol.seed,
            "versions": score_versions(REVISION),
            "codes": run.spec.method.code_kinds[0],
            "data": data.name,
            "source": getattr(data, "fingerprint", None),
        }
        wanted = [name for name in self.names if applies[name]]
        return {name: {"metric": name, "options": OPTIONS[name], **common, **among.get(name, {})} for name in wanted}


def lacks_record(run: RunFolder, key: Record) -> bool:
    """Return whether a run has no stored record with these entries."""
    return find_score(read_scores(run.path), key) is None
