"""What a study adds to trained runs at its end: nats and gaps of each factor, active latents, and how far runs agree.

All come from one encoding of the same examples by all runs that differ in the seed only.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.loading import load_data
from unbraid.metrics.information import discretise, mutual_information
from unbraid.metrics.mig import gaps
from unbraid.metrics.protocol import LIBRARIES, Protocol
from unbraid.runs.folder import RunDir, find_runs
from unbraid.runs.run import open_run
from unbraid.runs.scores import add_scores, find_score, read_scores
from unbraid.runtime.files import make_folder
from unbraid.runtime.locks import lock
from unbraid.runtime.progress import progress
from unbraid.runtime.provenance import versions
from unbraid.scoring.selection import Compared, compare

CLOSING = ("information", "gaps", "active", "udr")
BINS = 20
ACTIVE = 0.8  # mean posterior variance below which a latent is active: Zietlow et al. (2021), arXiv:2102.06822
OPTIONS: dict[str, dict[str, Any]] = {
    "information": {"bins": BINS}, "gaps": {"bins": BINS}, "active": {"below": ACTIVE},
    "udr": {"method": "lasso", "threshold": 0.01},
}  # fmt: skip
Record = dict[str, Any]


def nats_told(codes: Any, factors: Any, names: Sequence[str], bins: int = BINS) -> dict[str, float]:
    r"""How many nats the best single code tells of each factor.

    .. math:: \max_i I(c_i; v_j)

    counted on `bins` equal-width bins, as in the MIG. It never exceeds what all codes together tell, and falls short of
    that where several share a factor. A code of pure noise has (bins - 1)(values - 1) / 2n nats on average, not 0.

    >>> import numpy as np
    >>> factors = np.indices((2, 4)).reshape(2, -1).T
    >>> {name: round(nats, 3) for name, nats in nats_told(factors[:, 1:], factors, ["shape", "x"]).items()}
    {'shape': 0.0, 'x': 1.386}
    """
    told = mutual_information(discretise(codes, bins), factors).max(axis=0)
    return dict(zip(names, told.tolist(), strict=True))


def gaps_of(codes: Any, factors: Any, names: Sequence[str], bins: int = BINS) -> dict[str, float]:
    r"""The gap of each factor that varies, by name: the MIG is their mean.

    .. math:: (I(c_{i_1}; v_j) - I(c_{i_2}; v_j)) / H(v_j)

    One code alone has no gap, and gives nothing. Numbers differ a little from `mig` of the same run, which sees another
    draw of as many examples.
    """
    varying = [j for j in range(len(names)) if len(set(factors[:, j].tolist())) > 1]
    if codes.shape[1] < 2 or not varying:
        return {}
    return dict(zip([names[j] for j in varying], gaps(codes, factors[:, varying], bins=bins).tolist(), strict=True))


def active_units(variances: Any, data: FactorData) -> dict[str, float]:
    r"""How many latents are active, :math:`E_x[\sigma^2(x)] < 0.8`, and how many factors the data have.

    Nothing for a method without a normal posterior (`variances` is None), and no factors for data without labels.
    """
    if variances is None:
        return {}
    factors = {"factors": sum(size > 1 for size in data.sizes)} if data.names else {}
    return {"units": int((variances < ACTIVE).sum()), **factors}


def settings(run: RunDir) -> str:
    """What runs that are compared agree in: all but the seed."""
    values = {key: value for key, value in run.spec.to_dict().items() if key != "seed"}
    return json.dumps(values, sort_keys=True)


def groups_of(out: Path, ids: Iterable[str]) -> Iterator[list[RunDir]]:
    """Finished runs in a folder that differ in the seed only, where one of them is asked for; dataset by dataset."""
    wanted = set(ids)
    done = [run for run in find_runs(out) if run.status == "done"]
    ordered = sorted(done, key=lambda run: (run.spec.data, settings(run), run.spec.seed))
    for _, group in groupby(ordered, settings):
        members = list(group)
        if wanted & {run.spec.id for run in members}:
            yield members


@dataclass(frozen=True)
class Closing:
    """What is added to which runs, from how many examples, on which device."""

    out: Path
    names: Sequence[str] = CLOSING
    protocol: Protocol = Protocol()
    device: str = "cpu"

    def close(self, ids: Iterable[str], quiet: bool = True) -> None:
        """Add what these runs lack, group by group, each written as soon as it is made.

        A group is ranked anew where runs with other seeds have joined it; everything else is made once.
        """
        groups = list(groups_of(self.out, ids)) if self.names else []
        with progress("ranking", len(groups)) as report:
            done = 0
            for name, members in groupby(groups, lambda group: group[0].spec.data):
                data = load_data(name, self.device, quiet=True)
                index = torch.as_tensor(self.protocol.examples(len(data)), device=data.device)
                for group in members:
                    if not quiet:
                        report(done, f"settings, now {name}")
                    self.close_group(group, data, index)
                    done += 1
        alone = [group[0] for group in groups if len(group) == 1]
        if alone and "udr" in self.names:
            warnings.warn(
                f"left out: udr of {len(alone)} runs, such as {alone[0].path.name}: it compares runs that differ in "
                "the seed only, and these have no other. Train more seeds.",
                RuntimeWarning,
                stacklevel=3,
            )

    def close_group(self, group: Sequence[RunDir], data: FactorData, index: Tensor) -> None:
        """Add to runs of one setting what they lack; processes that come together take turns."""
        name = hashlib.sha256(settings(group[0]).encode()).hexdigest()[:16]
        make_folder(self.out / ".claims")
        with lock(self.out / ".claims" / f"close-{name}.lock"):
            keys = [self.keys(run, group, data) for run in group]
            lacking = [any(missing(run, key) for key in own.values()) for run, own in zip(group, keys, strict=True)]
            if not any(lacking):
                return
            found = compare([open_run(run, data, device=self.device) for run in group], data, index)
            factors = data.factors(index).cpu().numpy()
            for i, (run, own) in enumerate(zip(group, keys, strict=True)):
                values = self.values(found, i, factors, data)
                new = [{**key, "values": values[name]} for name, key in own.items()]
                add_scores(run.path, new, replaced=lambda record, own=own: record["metric"] in own)  # type: ignore[misc]

    def values(self, found: Compared, i: int, factors: Any, data: FactorData) -> dict[str, dict[str, float]]:
        """What is added to the i-th run of a group, by name."""
        codes, named = found.codes[i], data.names
        told = nats_told(codes, factors, named) if "information" in self.names and named else {}
        apart = gaps_of(codes, factors, named) if "gaps" in self.names and named else {}
        ranked = {"score": float(found.scores[i]), "informative": found.informative[i]}
        return {"information": told, "gaps": apart, "active": active_units(found.variances[i], data), "udr": ranked}

    def keys(self, run: RunDir, group: Sequence[RunDir], data: FactorData) -> dict[str, Record]:
        """What records of a run must agree with to stand, of all that can be said of it."""
        fits = {"information": bool(data.names), "gaps": bool(data.names), "active": True, "udr": len(group) > 1}
        among = {"udr": {"among": [member.spec.id for member in group]}}
        about = {
            "rows": {"examples": len(self.protocol.examples(len(data)))},
            "draws": self.protocol.draws,
            "seed": self.protocol.seed,
            "versions": versions(LIBRARIES),
            "codes": run.spec.method.code_kinds[0],
            "data": data.name,
            "source": getattr(data, "fingerprint", None),
        }
        wanted = [name for name in self.names if fits[name]]
        return {name: {"metric": name, "options": OPTIONS[name], **about, **among.get(name, {})} for name in wanted}


def missing(run: RunDir, key: Record) -> bool:
    """Whether a run has no record that agrees with a key."""
    return find_score(read_scores(run.path), key) is None
