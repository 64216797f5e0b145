"""The unsupervised ranking of models."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import pytest

from support.golden import golden_extra
from support.known_codes import GRID, Array, noise
from unbraid.metrics.udr import ALPHA, lasso, relative_strength, udr


@pytest.mark.parametrize(("method", "tolerance"), [("lasso", 1e-6), ("spearman", 1e-9)])
def test_golden_udr(shared: Path, method: str, tolerance: float) -> None:
    extra = golden_extra(shared)
    want = extra.want[f"udr_{method}"]
    got = udr(list(extra.arrays["udr_reps"]), list(extra.arrays["udr_kl"]), method=method)
    assert got.model_scores == pytest.approx(np.array(want["model_scores"]), abs=tolerance)
    assert got.pairwise == pytest.approx(np.array(want["pairwise"]), abs=tolerance)
    # The reference implementation has nan for excluded latents.
    block = np.nan_to_num(np.array(want["correlation_0_1"], dtype=float))
    assert got.correlations[:4, 4:8] == pytest.approx(block, abs=tolerance)


@functools.cache
def make_models() -> tuple[Array, ...]:
    """Return the codes of five models: two aligned with the same sources, two with different rotations, and noise."""
    source = noise(2000, 3, seed=1)
    rotations = [np.linalg.qr(noise(3, 3, seed=seed))[0] for seed in (2, 3)]
    return source, -source[:, [2, 0, 1]], source @ rotations[0], source @ rotations[1], noise(2000, 3, seed=4)


@pytest.mark.parametrize("method", ["lasso", "spearman"])
def test_udr_prefers_models_that_agree(method: str) -> None:
    ranking = udr(make_models()[:2], method=method)
    best = 1 - ALPHA if method == "lasso" else 1
    # The tolerance allows for sample correlations between the sources.
    assert ranking.model_scores == pytest.approx([best, best], abs=0.1)
    pairs = udr(make_models(), method=method).pairwise
    assert pairs[0, 1] > pairs[[0, 0, 1, 2], [2, 3, 3, 3]].max() + 0.1
    assert pairs[4].max() < 0.1


def test_udr_of_exactly_uncorrelated_copies() -> None:
    """On a complete table the Lasso weight of the matching latent is 1 - 0.1 and all others are 0. Ranks give 1."""
    codes = GRID - GRID.mean(axis=0)
    copies = [codes, codes[:, ::-1] * [5, -1, 2]]
    assert udr(copies).model_scores == pytest.approx([0.9, 0.9], abs=1e-9)
    assert udr(copies, method="spearman").model_scores == pytest.approx([1, 1], abs=1e-9)
    curved = [codes, np.exp(codes)]
    assert udr(curved, method="spearman").model_scores == pytest.approx([1, 1], abs=1e-9)
    assert udr(curved).model_scores.max() < 0.89


def test_udr_equals_scikit_learn() -> None:
    from scipy.stats import spearmanr
    from sklearn.linear_model import Lasso

    source = noise(500, 3)
    a, b = source @ noise(3, 4, seed=1), source @ noise(3, 2, seed=2) + noise(500, 2, seed=3)
    za, zb = ((x - x.mean(axis=0)) / x.std(axis=0) for x in (a, b))
    want = np.abs(Lasso(alpha=ALPHA, tol=1e-12, max_iter=100_000).fit(za, zb).coef_).T
    got = udr([a, b], threshold=0)
    assert got.correlations[:4, 4:] == pytest.approx(want, abs=1e-6)  # a has rank 3, so the minimum is flat
    ranks = np.abs(spearmanr(np.c_[a, b]).statistic)
    assert udr([a, b], method="spearman", threshold=0).correlations == pytest.approx(ranks, abs=1e-12)


def test_udr_uses_only_informative_latents() -> None:
    codes, other = make_models()[:2]
    padded = np.c_[codes, 1e-3 * noise(2000, 2, seed=9), np.full(2000, 0.3)]
    plain, pruned = udr([codes, other]), udr([padded, other])
    assert pruned.pairwise == pytest.approx(plain.pairwise, abs=1e-12)
    assert np.all(pruned.correlations[3:6] == 0)
    assert udr([padded, other], threshold=0).model_scores.max() < plain.model_scores.min() - 0.05
    divergence = [np.array([9, 9, 9, 0.01, 0.0, 9]), np.full(3, 9)]  # a value at the threshold is not above it
    assert udr([padded, other], divergence).pairwise == pytest.approx(plain.pairwise, abs=1e-12)


def test_udr_of_a_collapsed_model_is_zero() -> None:
    ranking = udr([*make_models()[:3], np.full((2000, 3), 0.3)])
    assert ranking.model_scores[3] == 0
    assert np.all(ranking.pairwise[3] == 0)
    assert np.all(ranking.pairwise[:, 3] == 0)
    assert ranking.model_scores[0] > 0
    low = udr(make_models()[:2], [np.zeros(3), np.ones(3)])
    assert low.model_scores.tolist() == [0, 0]


def test_udr_takes_the_median_of_columns() -> None:
    ranking = udr(make_models())
    for i in range(5):
        others = [ranking.pairwise[j, i] for j in range(5) if j != i]
        assert ranking.model_scores[i] == pytest.approx(sorted(others)[1] / 2 + sorted(others)[2] / 2)


def test_udr_is_invariant_to_scale_sign_and_order() -> None:
    codes = make_models()[2]
    mapped = (codes * [-3, 0.7, 11] + 5)[:, [2, 0, 1]]
    one, two = udr([codes, *make_models()[:2]], threshold=0), udr([mapped, *make_models()[:2]], threshold=0)
    assert one.model_scores == pytest.approx(two.model_scores, abs=1e-9)


def test_udr_rejects_invalid_input() -> None:
    codes = make_models()[0]
    with pytest.raises(ValueError, match=r"at least 2 representations. Got 1 instead"):
        udr([codes])
    with pytest.raises(ValueError, match=r"same rows. Got lengths \[2000, 1999\] instead"):
        udr([codes, codes[1:]])
    with pytest.raises(
        ValueError, match=r"'kl' must contain finite arrays of the shapes \[\(3,\), \(3,\)\]. Got shapes \[\(3,\)"
    ):
        udr([codes, codes], [np.ones(3)])
    with pytest.raises(ValueError, match=r"'kl' must contain finite arrays"):
        udr([codes, codes], [np.ones(3), [1, 2, math.nan]])
    with pytest.raises(ValueError, match=r"Representation 1 must be finite"):
        udr([codes, np.where(codes > 3, np.inf, codes)])
    with pytest.raises(ValueError, match=r"The 'threshold' parameter must be >= 0"):
        udr([codes, codes], threshold=-1)
    with pytest.raises(ValueError, match=r"must be 'lasso' or 'spearman'. Got 'pearson' instead"):
        udr([codes, codes], method="pearson")


def test_lasso_satisfies_the_optimality_conditions() -> None:
    x = noise(300, 5) @ noise(5, 5, seed=1)
    gram, cross = x.T @ x / 300, x.T @ noise(300, 7, seed=2) / 300 + noise(5, 7, seed=3)
    weights = lasso(gram, cross, 0.3)
    slope = cross - gram @ weights
    assert np.all(np.abs(slope) <= 0.3 + 1e-8)
    assert slope[weights != 0] == pytest.approx(0.3 * np.sign(weights[weights != 0]), abs=1e-8)
    assert 0 < np.count_nonzero(weights) < weights.size
    assert np.all(lasso(np.zeros((2, 2)), np.ones((2, 1)), 0.1) == 0)


def test_relative_strength_of_a_small_matrix() -> None:
    matrix = np.array([[0.8, 0.2], [0.0, 0.0]])
    columns, rows = (0.8**2 / 0.8 + 0.2**2 / 0.2) / 2, (0.8**2 / 1.0 + 0) / 2
    assert relative_strength(matrix) == pytest.approx((columns + rows) / 2)
    assert relative_strength(np.zeros((0, 3))) == 0
