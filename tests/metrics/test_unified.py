"""Unified scores: the metrics that are combinations of one matrix and one aggregation, and the graph of a matrix."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import bmat, csr_matrix
from scipy.sparse.csgraph import connected_components

from support.known_codes import CASES, GRID, score
from unbraid.errors import UserError
from unbraid.metrics import unified
from unbraid.metrics.unified import aggregate_matrix, count_components

SPECIAL_CASES = {
    "importance_gbt:dci_disentanglement": ("dci", "disentanglement"),
    "importance_gbt:dci_completeness": ("dci", "completeness"),
    "mutual_information:mig": ("mig", "discrete_mig"),
    "mutual_information:modularity": ("modularity", "modularity_score"),
    "accuracy_svm:sap": ("sap", "SAP_score"),
}


@pytest.mark.parametrize("case", ["noisy", "reflected", "collapsed", "duplicates"])
def test_dci_mig_modularity_and_sap_are_special_cases(case: str) -> None:
    scores = score("unified", CASES[case], GRID)
    for key, (metric, name) in SPECIAL_CASES.items():
        assert scores[key] == pytest.approx(score(metric, CASES[case], GRID)[name], abs=1e-12), key


@pytest.mark.parametrize("seed", range(20))
def test_components_equal_those_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = np.where(rng.random((7, 4)) < 0.4, rng.random((7, 4)), 0.0)
    threshold = float(rng.random())
    edges = csr_matrix(np.where(matrix >= threshold, matrix, 0.0))
    _, labels = connected_components(bmat([[None, edges], [edges.T, None]]) if edges.nnz else csr_matrix((11, 11)))
    sizes = np.bincount(labels)
    assert count_components(matrix, threshold) == (sizes > 1).sum()


def test_area_of_the_precision_by_hand() -> None:
    """Thresholds 4, 3, 2 and 1 have 1, 2, 1 and 1 components."""
    scores = aggregate_matrix(np.array([[4.0, 2.0], [1.0, 3.0]]), np.array([2.0, 1.0]))
    assert scores["area_precision"] == (1 + 2) / 2 + (2 + 1) / 2 + (1 + 1) / 2
    assert scores["max_precision"] == 2
    assert scores["sap"] == (3 + 1) / 2
    assert scores["mig"] == (3 / 2 + 1) / 2
    assert scores["modularity"] == pytest.approx(1 - (4 / 16 + 1 / 9) / 2)


def test_rejects_unknown_trees() -> None:
    with pytest.raises(UserError, match="Unknown trees 'slow'"):
        unified(GRID, GRID, GRID, GRID, trees="slow")
