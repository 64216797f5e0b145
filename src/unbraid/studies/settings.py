"""The settings of a study: folder, device, precision, metrics, and how metrics sample rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbraid.errors import UserError, unknown_name_message
from unbraid.metrics import METRICS
from unbraid.metrics.options import join_lists
from unbraid.metrics.protocol import Protocol
from unbraid.studies.group_scores import GROUP_METRICS
from unbraid.training.train import CHECKPOINT_SECONDS

STUDY_METRICS = (
    "beta_vae", "factor_vae", "mig", "dci", "modularity", "explicitness", "sap", "unsupervised", "downstream_lr",
    "downstream_gbt", "information", "gaps", "active", "udr",
)  # fmt: skip
"""The default metrics of a study: the metrics of `locatello2019`, and those that the analyses need."""


@dataclass(frozen=True)
class StudySettings:
    """Settings for training and scoring the runs of a study.

    Attributes:
        out: The folder for the runs and the results table.
        device: "cpu" or "cuda".
        precision: The precision of all runs. None chooses the fastest on the device.
        metrics: Metrics that are computed for each run separately. If it is None, all metrics that can be
            computed for a single run are computed, including those that are not in `STUDY_METRICS`.
        protocol: How metrics sample rows.
        jobs: Number of processes that compute metrics. None uses all cores.
        scored: Whether runs are scored at all.
        checkpoint_seconds: Time between checkpoints, in seconds.
        group_metrics: Metrics that are computed after training, for groups of runs that differ in the seed only.
        likelihood: The likelihood of all runs. None keeps the value of the study.
    """

    out: Path
    device: str = "cpu"
    precision: str | None = None
    metrics: Sequence[str] | None = None
    protocol: Protocol = Protocol()
    jobs: int | None = None
    scored: bool = True
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    group_metrics: Sequence[str] = GROUP_METRICS
    likelihood: str | None = None


def split_metrics(names: Iterable[str] | None) -> tuple[list[str], list[str]]:
    """Split names of metrics into metrics of single runs and metrics of groups of runs, without duplicates.

    None stands for `STUDY_METRICS`. Names of metrics of single runs may have options.

    >>> split_metrics(["udr", "mig", "udr", "dci_es?sizes=16", "32"])
    (['mig', 'dci_es?sizes=16,32'], ['udr'])
    """
    given = join_lists(STUDY_METRICS if names is None else list(names))
    single = [name for name in given if name not in GROUP_METRICS]
    for name in single:
        if "?" not in name and name not in METRICS:
            raise UserError(unknown_name_message("metric", name, [*METRICS, *GROUP_METRICS]))
    runs = list(dict.fromkeys(map(METRICS.canonical_name, single)))
    return runs, list(dict.fromkeys(name for name in given if name in GROUP_METRICS))
