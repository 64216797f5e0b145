"""Analyses of many runs: pure functions from a results table to a table, a figure and a sentence; without torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pandas import DataFrame

from unbraid.analysis.alignment import Alignment, alignment
from unbraid.analysis.capacity import capacity
from unbraid.analysis.correlation import agreement, downstream, selection
from unbraid.analysis.demystifying import kept, manipulated
from unbraid.analysis.example_table import planted
from unbraid.analysis.linear_vae import optimum
from unbraid.analysis.manipulated_views import manipulated_factors, manipulated_spread, manipulated_strengths
from unbraid.analysis.orthogonality import distance_to_orthogonality, orthogonality, polarised, random_distance
from unbraid.analysis.results_table import Result
from unbraid.analysis.scores import scores, strengths
from unbraid.analysis.theory import collapse, disentangle, entangle, householder, jacobian, rotation
from unbraid.analysis.total_correlation import total_correlation
from unbraid.analysis.trace_bound import trace_bound
from unbraid.analysis.transfer import transfer, win_rates
from unbraid.analysis.variance import variance

if TYPE_CHECKING:
    from unbraid.analysis.annealing import growth
    from unbraid.analysis.twin import Twin, entangled


@dataclass(frozen=True)
class Analysis:
    """A question to a results table and the function that answers it."""

    question: str
    run: Callable[[DataFrame], Result]


ANALYSES: dict[str, Analysis] = {
    "total_correlation": Analysis("Does regularisation make codes uncorrelated?", total_correlation),
    "agreement": Analysis("Do metrics agree with each other?", agreement),
    "scores": Analysis("Is some method better than the others?", scores),
    "strengths": Analysis("Is some strength of regularisation better than the others?", strengths),
    "variance": Analysis("How much do objective, strength and seed matter?", variance),
    "selection": Analysis("Can good runs be told without labels?", selection),
    "transfer": Analysis("Do good settings carry over to other datasets and metrics?", transfer),
    "downstream": Analysis("Do disentangled codes help later tasks?", downstream),
    "capacity": Analysis("What does more capacity bring in AnnealedVAE?", capacity),
    "manipulated": Analysis("What do methods lose on images that were changed against VAEs?", manipulated),
    "manipulated_spread": Analysis("How does the MIG spread over seeds on changed images?", manipulated_spread),
    "manipulated_factors": Analysis("Which factors are lost on changed images?", manipulated_factors),
    "manipulated_strengths": Analysis("Does another strength make up for changed images?", manipulated_strengths),
}

__all__ = [
    "ANALYSES",
    "Alignment",
    "Analysis",
    "Result",
    "Twin",
    "agreement",
    "alignment",
    "capacity",
    "collapse",
    "disentangle",
    "distance_to_orthogonality",
    "downstream",
    "entangle",
    "entangled",
    "growth",
    "householder",
    "jacobian",
    "kept",
    "manipulated",
    "manipulated_factors",
    "manipulated_spread",
    "manipulated_strengths",
    "optimum",
    "orthogonality",
    "planted",
    "polarised",
    "random_distance",
    "rotation",
    "scores",
    "selection",
    "strengths",
    "total_correlation",
    "trace_bound",
    "transfer",
    "variance",
    "win_rates",
]


def __getattr__(name: str) -> Any:
    homes = {"Twin": "twin", "entangled": "twin", "growth": "annealing"}  # they need torch
    if name in homes:
        return getattr(importlib.import_module(f"unbraid.analysis.{homes[name]}"), name)
    raise AttributeError(f"module 'unbraid.analysis' has no attribute {name!r}. It has: {', '.join(__all__)}.")
