"""Analyses of many runs, of datasets, and of single trained runs.

Most analyses are functions of a results table and return a table, a figure and a short text. Importing this package
does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from unbraid.analysis.alignment import Alignment, alignment
from unbraid.analysis.capacity import capacity
from unbraid.analysis.challenge import challenge
from unbraid.analysis.correlation import agreement, downstream, selection
from unbraid.analysis.demystifying import discard_over_pruned, manipulated
from unbraid.analysis.efficiency import efficiency
from unbraid.analysis.example_table import example_results
from unbraid.analysis.linear_vae import optimum
from unbraid.analysis.manipulated_views import manipulated_factors, manipulated_spread, manipulated_strengths
from unbraid.analysis.orthogonality import distance_to_orthogonality, orthogonality, polarised_regime, random_distance
from unbraid.analysis.pmp import pmp_ablation, pmp_comparison
from unbraid.analysis.ranking import method_ranking, ranking_agreement
from unbraid.analysis.registry import ANALYSES, Analysis, analyse
from unbraid.analysis.results_table import Result
from unbraid.analysis.scores import distributions, scores, strengths
from unbraid.analysis.theory import collapse, disentangle, entangle, householder, jacobian, rotation
from unbraid.analysis.total_correlation import total_correlation
from unbraid.analysis.trace_bound import trace_bound
from unbraid.analysis.transfer import transfer, win_rates
from unbraid.analysis.variance import variance
from unbraid.analysis.vitae import stability

if TYPE_CHECKING:
    from unbraid.analysis.annealing import growth
    from unbraid.analysis.factor_utilisation import utilisation
    from unbraid.analysis.twin import Twin, entangled_twin

__all__ = [
    "ANALYSES",
    "Alignment",
    "Analysis",
    "Result",
    "Twin",
    "agreement",
    "alignment",
    "analyse",
    "capacity",
    "challenge",
    "collapse",
    "discard_over_pruned",
    "disentangle",
    "distance_to_orthogonality",
    "distributions",
    "downstream",
    "efficiency",
    "entangle",
    "entangled_twin",
    "example_results",
    "growth",
    "householder",
    "jacobian",
    "manipulated",
    "manipulated_factors",
    "manipulated_spread",
    "manipulated_strengths",
    "method_ranking",
    "optimum",
    "orthogonality",
    "pmp_ablation",
    "pmp_comparison",
    "polarised_regime",
    "random_distance",
    "ranking_agreement",
    "rotation",
    "scores",
    "selection",
    "stability",
    "strengths",
    "total_correlation",
    "trace_bound",
    "transfer",
    "utilisation",
    "variance",
    "win_rates",
]

_NEED_TORCH = {"Twin": "twin", "entangled_twin": "twin", "growth": "annealing", "utilisation": "factor_utilisation"}


def __getattr__(name: str) -> Any:
    if name in _NEED_TORCH:
        return getattr(importlib.import_module(f"unbraid.analysis.{_NEED_TORCH[name]}"), name)
    raise AttributeError(f"module 'unbraid.analysis' has no attribute {name!r}. It has: {', '.join(__all__)}.")
