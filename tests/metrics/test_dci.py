"""DCI: golden values, importance matrices, errors, and a comparison with scikit-learn at the size of a study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.golden import GOLDEN_CASES, Golden, golden_case
from support.known_codes import CODE_SIZES, GRID, NOISY, noise, random_factors
from unbraid.metrics.dci import completeness, dci, disentanglement


@pytest.fixture(params=GOLDEN_CASES)
def golden(request: pytest.FixtureRequest, shared: Path) -> Golden:
    return golden_case(shared, request.param)


def golden_scores(case: Golden) -> dict[str, float]:
    return dci(*case.points)


def test_golden_dci(golden: Golden) -> None:
    scores = golden_scores(golden)
    for key, expected in golden.want["dci"].items():
        assert scores[key] == pytest.approx(expected, abs=0.01 + golden.want["dci_spread"][key]), key


def test_golden_importance_matrix(golden: Golden) -> None:
    matrix = np.array(golden.want["dci_importance_matrix"])
    score, each = disentanglement(matrix)
    assert score == pytest.approx(golden.want["dci"]["disentanglement"], abs=1e-9)
    assert each == pytest.approx(np.array(golden.want["dci_disentanglement_per_code"]), abs=1e-9)
    score, each = completeness(matrix)
    assert score == pytest.approx(golden.want["dci"]["completeness"], abs=1e-9)
    assert each == pytest.approx(np.array(golden.want["dci_completeness_per_factor"]), abs=1e-9)


def test_the_two_definitions_of_importance_differ(shared: Path) -> None:
    scores = golden_scores(golden_case(shared, "noisy"))
    assert scores["disentanglement_mean"] == pytest.approx(0.676, abs=0.01)
    assert scores["disentanglement_per_tree"] == pytest.approx(0.180, abs=0.01)


def test_dci_needs_two_latents_and_two_factors() -> None:
    with pytest.raises(ValueError, match=r"Codes must have at least 2 columns. Got 1 instead"):
        dci(NOISY[:, :1], GRID, NOISY[:, :1], GRID)
    with pytest.raises(ValueError, match=r"Factors must have at least 2 columns. Got 1 instead"):
        dci(NOISY, GRID[:, :1], NOISY, GRID[:, :1])
    with pytest.raises(ValueError, match=r"Importances must be >= 0. Got -1.0 instead"):
        disentanglement(np.array([[1.0, -1.0], [0.0, 1.0]]))


def test_scores_of_importance_matrices() -> None:
    assert disentanglement(np.zeros((3, 2)))[0] == completeness(np.zeros((3, 2)))[0] == 0
    assert disentanglement(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))[0] == pytest.approx(1, abs=1e-8)
    assert completeness(np.array([[2.0, 0.0], [2.0, 4.0]]))[0] == pytest.approx(0.5, abs=1e-8)
    assert disentanglement(np.array([[2.0, 0.0], [3.0, 3.0]]))[0] == pytest.approx(0.25, abs=1e-8)
    assert disentanglement(np.ones((4, 3)))[0] == pytest.approx(0, abs=1e-12)


def test_dci_with_new_and_missing_test_values() -> None:
    train, test = GRID[:, 0] < 4, GRID[:, 0] >= 3  # the value 4 is new, the values 0 to 2 are missing
    scores = dci(GRID[train], GRID[train], GRID[test], GRID[test])
    assert scores["informativeness_train"] == 1
    assert scores["informativeness_test"] == pytest.approx((0.5 + 1 + 1) / 3)


@pytest.mark.slow
def test_dci_at_the_size_of_a_study_agrees_with_scikit_learn() -> None:
    """Compare on noisy linear codes of the factors of dSprites, with 10,000 training and 5,000 test examples."""
    sizes = CODE_SIZES["dsprites"]
    factors, test_factors = random_factors(sizes, 10_000, 0), random_factors(sizes, 5_000, 1)
    mix = np.random.default_rng(2).normal(size=(5, 10))
    codes, test_codes = (
        (v / np.array(sizes) - 0.5) @ mix + 0.05 * noise(len(v), 10, seed)
        for v, seed in ((factors, 3), (test_factors, 4))
    )
    ours = dci(codes, factors, test_codes, test_factors)
    theirs = dci(codes, factors, test_codes, test_factors, trees="sklearn")
    print(ours, theirs, sep="\n")
    assert ours == pytest.approx(theirs, abs=0.01)
