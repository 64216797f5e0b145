"""Scores of a representation: pure functions of arrays, ``(codes, factors, ...) -> dict of floats``, without torch."""

from __future__ import annotations

from collections.abc import Callable

from unbraid.metrics.factor_vae import factor_vae
from unbraid.metrics.mig import mig
from unbraid.metrics.modularity import modularity
from unbraid.metrics.sap import sap
from unbraid.metrics.unsupervised import unsupervised

METRICS: dict[str, Callable[..., dict[str, float]]] = {
    "mig": mig,
    "sap": sap,
    "modularity": modularity,
    "factor_vae": factor_vae,
    "unsupervised": unsupervised,
}

# Metrics that draw their interventions from every row of the table; the others are given a sample of it.
WHOLE_TABLE: frozenset[str] = frozenset({"factor_vae"})

# The score that stands for the metric where there is room for one.
HEADLINE: dict[str, str] = {
    "mig": "discrete_mig",
    "sap": "SAP_score",
    "modularity": "modularity_score",
    "factor_vae": "eval_accuracy",
    "unsupervised": "gaussian_total_correlation",
}

__all__ = ["HEADLINE", "METRICS", "WHOLE_TABLE", "factor_vae", "mig", "modularity", "sap", "unsupervised"]
