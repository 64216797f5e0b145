"""DCI-ES, OMES, SNC, NK, factorised support and flatness: their parts by hand, and the input that they reject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from support.known_codes import GRID, NOISY, factor_grid, noise, random_factors, reflected, score
from unbraid.errors import UserError
from unbraid.metrics import dci_es, factorised_support, flatness, nk, omes, snc
from unbraid.metrics.dci_es import DEPTHS, _fit_probes, explicitness_of_curves
from unbraid.metrics.known_codes import make_noise_codes, make_perfect_codes
from unbraid.metrics.labels import as_labels
from unbraid.metrics.omes import draw_pairs, pooled_scores
from unbraid.metrics.protocol import Protocol
from unbraid.metrics.snc import assign_latents


def test_explicitness_by_hand() -> None:
    """The first curve falls at once, the second linearly, and the third at the end. The fourth never falls."""
    curves = [[1, 0, 0, 0, 0], [1, 0.75, 0.5, 0.25, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    got = [explicitness_of_curves(np.array(curve, float)[:, None], [0, 1, 2, 3, 4], np.ones(1)) for curve in curves]
    assert got == pytest.approx([1 - 2 * 0.5 / 4, 0.0, 1 - 2 * 3.5 / 4, 1.0])


def test_the_informativeness_of_noise_has_a_low_floor() -> None:
    """The lowest of several test errors is a little below chance."""
    factors = random_factors((3, 4), 3000, 0)
    rows = Protocol(train=2000, test=1000).rows(make_noise_codes(factors, 0, d=5), factors)
    floor = rows.score(["dci_es"], 0).values_or_raise()["dci_es"]
    perfect = rows.with_codes(make_perfect_codes(factors)).score(["dci_es"], 0).values_or_raise()["dci_es"]
    assert 0 <= floor["mean_informativeness"] < 0.04
    assert perfect["mean_informativeness"] > 0.95
    assert floor["explicitness"] > 0.95  # by definition, because the error hardly falls
    assert perfect["size"] == 1
    assert floor["size"] == 0.4


@pytest.mark.parametrize("continuous", [False, True])
def test_probes_equal_trees_that_are_fitted_for_each_depth(continuous: bool) -> None:
    factors = random_factors((6,), 400, 0)
    codes = np.c_[factors + noise(400, 1), noise(400, 2, seed=1)].astype(np.float32)
    column = next(as_labels(factors, continuous).columns())
    probes = _fit_probes(codes, column, codes, column, DEPTHS, 0)
    for depth, error, importances in zip(DEPTHS, *probes, strict=True):
        if continuous:
            tree: Any = DecisionTreeRegressor(max_depth=depth, random_state=0)
        else:
            tree = DecisionTreeClassifier(max_depth=depth, random_state=0, criterion="entropy")
        tree.fit(codes, factors[:, 0])
        assert error == pytest.approx(1 - tree.score(codes, factors[:, 0]), abs=0.01)  # ties between cuts
        assert importances == pytest.approx(tree.feature_importances_, abs=0.01)


def test_rotated_codes_are_less_explicit_for_trees() -> None:
    factors = np.tile(factor_grid(8, 8), (10, 1))
    straight, turned = (score("dci_es", codes, factors) for codes in (factors, reflected(factors)))
    assert turned["explicitness"] < straight["explicitness"] - 0.05
    assert turned["informativeness"] == straight["informativeness"] == 1


@pytest.mark.parametrize("depths", [[], [3], [2, 2], [4, 1], [0, 1]])
def test_dci_es_needs_increasing_depths(depths: list[int]) -> None:
    with pytest.raises(UserError, match=r"depths' (parameter must be >= 1|must be at least 2 increasing numbers)"):
        dci_es(NOISY, GRID, NOISY, GRID, depths=depths)


@pytest.mark.parametrize("j", range(3))
def test_pairs_differ_in_one_factor_and_are_uniform(j: int) -> None:
    factors = np.concatenate([GRID, GRID[:40]])  # some combinations occur twice
    first, second = draw_pairs(factors, j, 4000, np.random.default_rng(0))
    assert (factors[first, j] != factors[second, j]).all()
    assert np.array_equal(np.delete(factors[first], j, axis=1), np.delete(factors[second], j, axis=1))
    assert len(set(first.tolist())) == len(set(second.tolist())) == 160


def test_association_scores_by_hand() -> None:
    """Latent 0 holds factor 0 and half of factor 1, and latent 1 holds factor 1."""
    overlap, multiple = pooled_scores(np.array([[1.0, 0.5], [0.0, 1.0]]))
    own = 1 - 0.5 / 2, (1 * 1 + 0.25 * (1 - (1 + 0.5) / 2)) / 1.5
    assert overlap == pytest.approx(sum(own) / 2)
    assert multiple == pytest.approx((1 + (1 * (1 - 0.5 / 2) + 0.25 * (1 - (0.5 + 1) / 2)) / 1.5) / 2)


def test_alpha_weighs_the_two_scores() -> None:
    scores = [omes(NOISY, GRID, alpha=alpha) for alpha in (0.0, 0.25, 1.0)]
    assert scores[0]["omes"] == scores[1]["multiple_encoding_score"]
    assert scores[2]["omes"] == scores[1]["overlap_score"]
    assert scores[1]["omes"] == pytest.approx(0.75 * scores[0]["omes"] + 0.25 * scores[2]["omes"])
    with pytest.raises(UserError, match=r"'alpha' parameter must be in \[0, 1\]. Got 1.5"):
        omes(NOISY, GRID, alpha=1.5)


def test_omes_and_flatness_need_rows_that_differ_in_one_factor() -> None:
    factors = np.c_[np.arange(120) % 60, np.arange(120) % 60]
    with pytest.raises(UserError, match="Some rows must differ in factor column 0 only"):
        omes(NOISY, factors)
    with pytest.raises(UserError, match=r"To change factor column 0 alone, .* lower 'repeats'"):
        flatness(NOISY, factors)


def test_the_assignment_maximises_the_total_information() -> None:
    """Both factors are best in latent 0, but only the first factor needs it."""
    factors = np.tile(factor_grid(4, 4), (30, 1))
    shared = 10 * factors[:, 0] + factors[:, 1]
    codes = np.c_[shared, factors[:, 1] + 0.6 * noise(480, 1)[:, 0]]
    assert assign_latents(codes, as_labels(factors)) == [0, 1]
    assert assign_latents(codes[:, :1], as_labels(factors)) == [0, None]


def test_test_examples_are_divided_by_the_bins_of_the_training_examples() -> None:
    train = np.arange(100.0)[:, None]
    labels = (train >= 50).astype(int)
    scores = snc(train, labels, np.array([[10.0], [20.0], [49.0], [80.0]]), np.array([[0], [0], [1], [1]]))
    assert scores == {"snc": 0.75, "snc_train": 1.0}


def test_a_factor_without_a_latent_loses_nothing() -> None:
    codes = np.c_[GRID[:, 0], GRID[:, 1]]
    got = nk(codes, GRID, codes, GRID)
    assert got["nk"] == pytest.approx((1 - 1 / 5 + 1 - 1 / 4 + 0) / 3)


def test_batches_of_the_support_are_averaged() -> None:
    codes = noise(300, 3)
    order = np.random.default_rng(0).permutation(300)
    parts = [factorised_support(codes[order[i : i + 100]])["fos"] for i in (0, 100, 200)]
    assert factorised_support(codes, batch=100)["fos"] == pytest.approx(np.mean(parts))
    assert factorised_support(codes, batch=100, batches=1)["fos"] == pytest.approx(parts[0])


OPTIONS: list[tuple[Any, str, int]] = [
    (omes, "pairs", 2), (omes, "prune", 0), (flatness, "repeats", 1),
]  # fmt: skip


@pytest.mark.parametrize(("metric", "option", "low"), OPTIONS)
def test_rejects_too_small_a_parameter(metric: Any, option: str, low: int) -> None:
    with pytest.raises(UserError, match=f"The '{option}' parameter must be >= {low}. Got {low - 1} instead."):
        metric(NOISY, GRID, **{option: low - 1})
