"""The laws of all metrics, one entry per metric."""

from __future__ import annotations

from laws import (
    downstream_tasks,
    fairness,
    information,
    linear,
    peers,
    symmetry,
    trees,
    unified,
    votes,
    without_classifier,
)  # fmt: skip
from laws.base import Law

LAWS: dict[str, Law] = {**without_classifier.LAWS, **linear.LAWS, **trees.LAWS, **information.LAWS, **fairness.LAWS}
LAWS |= downstream_tasks.LAWS | unified.LAWS | votes.LAWS | peers.LAWS | symmetry.LAWS
