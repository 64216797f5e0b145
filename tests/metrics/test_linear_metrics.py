"""Metrics that predict factors from codes: golden values and special cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracles import linear as oracle
from support.golden import GOLDEN_CASES, Golden, golden_case
from support.known_codes import GRID, NOISY, factor_grid, noise, random_factors
from unbraid.metrics.beta_vae import beta_vae, pair_differences
from unbraid.metrics.downstream import downstream, downstream_gbt, downstream_lr
from unbraid.metrics.explicitness import areas_by_factor, explicitness
from unbraid.metrics.factor_vae import factor_vae
from unbraid.metrics.labels import as_labels
from unbraid.metrics.linear import logistic_regression


@pytest.fixture(params=GOLDEN_CASES)
def golden(request: pytest.FixtureRequest, shared: Path) -> Golden:
    return golden_case(shared, request.param)


def test_golden_explicitness(golden: Golden) -> None:
    want = dict(golden.want["explicitness"])
    codes, factors, test_codes, test_factors = golden.points
    areas = areas_by_factor(codes, as_labels(factors), test_codes, as_labels(test_factors))
    assert areas[0] == pytest.approx(np.array(want.pop("per_factor_train")), abs=1e-5)
    assert areas[1] == pytest.approx(np.array(want.pop("per_factor_test")), abs=1e-5)
    assert explicitness(*golden.points) == pytest.approx(want, abs=1e-5)


def test_golden_beta_vae(golden: Golden) -> None:
    want, arrays = golden.want["beta_vae"], golden.arrays
    parts = {part: (arrays[f"betavae_{part}_points"], arrays[f"betavae_{part}_labels"]) for part in ("train", "eval")}
    model = logistic_regression(*(array.astype(kind) for array, kind in zip(parts["train"], (float, int), strict=True)))
    for part, (points, labels) in parts.items():
        assert np.mean(model.predict(points) == labels) == pytest.approx(want[f"{part}_accuracy"], abs=0.01)


def test_golden_beta_vae_end_to_end(golden: Golden) -> None:
    grid = factor_grid(*golden.arrays["factor_sizes"].tolist())
    got = beta_vae(golden.arrays["code_table"], grid, draws="reference", train=1000, test=500)["eval_accuracy"]
    assert got == pytest.approx(np.mean(golden.want["beta_vae_end_to_end_eval_accuracy_3_seeds"]), abs=0.05)


def check_downstream(got: dict[str, float], want: dict[str, Any], tolerance: float) -> None:
    for part in ("train", "test"):
        assert got[f"mean_{part}_accuracy"] == pytest.approx(want[f"mean_{part}_accuracy"], abs=tolerance)
        single = [got[f"2000:{part}_accuracy_factor_{j}"] for j in range(4)]
        assert single == pytest.approx(want[f"{part}_accuracy"], abs=2 * tolerance)


def test_golden_downstream_lr(golden: Golden) -> None:
    got = downstream_lr(*golden.points, sizes=(2000,))
    check_downstream(got, golden.want["downstream_lr"], 0.05)


@pytest.mark.slow
def test_golden_downstream_gbt(golden: Golden) -> None:
    got = downstream_gbt(*golden.points, sizes=(2000,))
    check_downstream(got, golden.want["downstream_gbt"], 0.01)


def test_explicitness_leaves_out_values_with_undefined_area() -> None:
    codes, factors = NOISY, GRID
    complete = areas_by_factor(codes, as_labels(factors), codes, as_labels(factors))
    few = factors[:, 0] != 2  # one value is missing from the test examples
    partial = areas_by_factor(codes, as_labels(factors), codes[few], as_labels(factors[few]))
    probabilities = logistic_regression((codes - codes.mean(0)) / codes.std(0), factors[:, 0]).probabilities(
        (codes[few] - codes.mean(0)) / codes.std(0)
    )
    expected = [oracle.area(probabilities[:, v].tolist(), (factors[few, 0] == v).tolist()) for v in (0, 1, 3, 4)]
    assert partial[1, 0] == pytest.approx(np.mean(expected))
    # One value occurs only in the test examples.
    new = areas_by_factor(codes[few], as_labels(factors[few]), codes, as_labels(factors))
    assert np.all((new >= 0) & (new <= 1))
    assert np.all(partial[0] == complete[0])


def test_explicitness_of_unusual_codes() -> None:
    with_constant = np.c_[NOISY, np.full(120, 0.3)]
    assert explicitness(with_constant, GRID, with_constant, GRID) == pytest.approx(
        explicitness(NOISY, GRID, NOISY, GRID), abs=1e-6
    )
    one = explicitness(NOISY[:, :1], GRID[:, :1], NOISY[:, :1], GRID[:, :1])
    assert one["explicitness_score_test"] > 0.8
    with pytest.raises(ValueError, match=r"At least one value of every factor .* Got none in factor column 0"):
        explicitness(NOISY, GRID, NOISY[:24], GRID[:24])
    with pytest.raises(ValueError, match="as many columns in train as in test"):
        explicitness(NOISY, GRID, NOISY[:, :2], GRID)


def test_pairs_share_the_fixed_factor() -> None:
    fixed, features = pair_differences(GRID.astype(float), GRID, 3000, 64, np.random.default_rng(0))
    assert np.all(features[np.arange(3000), fixed] == 0)
    assert np.all(np.bincount(fixed) > 900)
    for j, size in enumerate((5, 4, 6)):  # independent values differ by (s^2 - 1) / 3s on average
        assert features[fixed != j, j].mean() == pytest.approx((size**2 - 1) / (3 * size), rel=0.02)


def test_beta_vae_depends_on_its_seed_only() -> None:
    codes = noise(len(GRID), 3)
    first = beta_vae(codes, GRID, train=300, test=200)
    np.random.seed(1)
    assert beta_vae(codes, GRID, train=300, test=200) == first
    assert beta_vae(codes, GRID, train=300, test=200, seed=1) != first
    assert beta_vae(np.asfortranarray(codes), GRID, train=300, test=200) == first


def test_beta_vae_needs_two_factors_and_one_training_draw() -> None:
    with pytest.raises(ValueError, match="Factors must have at least 2 columns"):
        beta_vae(NOISY, GRID[:, :1])
    with pytest.raises(ValueError, match="The 'train' parameter must be >= 1"):
        beta_vae(NOISY, GRID, train=0)
    assert beta_vae(NOISY, GRID, train=1, test=600)["eval_accuracy"] == pytest.approx(1 / 3, abs=0.1)


@pytest.mark.parametrize("metric", [beta_vae, factor_vae])
def test_rows_with_an_unshared_value_are_left_out(metric: Any) -> None:
    factors = np.r_[GRID, [[5, 0, 0], [6, 1, 1]]]
    codes = np.r_[GRID, [[1e9, -1e9, 1e9]] * 2]
    fixed, _ = pair_differences(codes, factors, 500, 8, np.random.default_rng(0))
    assert len(np.unique(fixed)) == 3
    assert metric(codes[:, :1] * 0 + codes, factors, train=300, test=200)["eval_accuracy"] > 0.5


def test_rows_with_a_unique_value_are_never_drawn() -> None:
    factors = np.c_[np.r_[np.zeros(50, int), np.ones(50, int), [2]], np.r_[factor_grid(2, 50)[:, 1] % 2, [0]]]
    codes = np.r_[np.zeros(100), [1e6]][:, None]
    fixed, features = pair_differences(codes, factors, 2000, 4, np.random.default_rng(0))
    assert np.all(features[fixed == 0] == 0)  # the only row with a large code has a value that occurs in no other row
    assert features[fixed == 1].max() > 0


@pytest.mark.parametrize("metric", [beta_vae, factor_vae])
def test_the_error_says_how_many_rows_could_be_drawn(metric: Any) -> None:
    factors = np.c_[np.arange(12) // 2, np.r_[0, 0, 0, np.arange(1, 10)]]
    with pytest.raises(ValueError, match=r"Got 3 of 12 rows, with 1 of 10 values, in factor column 1 instead"):
        metric(noise(12, 2), factors)


SMALL = {"sizes": (10, 40, 5000)}


def test_downstream_takes_the_first_rows() -> None:
    got = downstream_lr(NOISY, GRID, NOISY, GRID, **SMALL)
    assert {key.split(":")[0] for key in got if ":" in key} == {"10", "40", str(len(NOISY))}
    alone = downstream_lr(NOISY[:40], GRID[:40], NOISY, GRID, sizes=[40])
    assert {key: got[key] for key in alone if ":" in key} == {key: alone[key] for key in alone if ":" in key}
    assert got["mean_test_accuracy"] == got[f"{len(NOISY)}:mean_test_accuracy"]  # all rows are used in place of 5,000
    single = [got[f"40:test_accuracy_factor_{j}"] for j in range(3)]
    assert got["40:mean_test_accuracy"] == pytest.approx(np.mean(single))
    assert got["40:min_test_accuracy"] == min(single)
    assert got["10:train_accuracy_factor_0"] == 1  # the first ten rows hold one value, which is always predicted
    assert got["10:test_accuracy_factor_0"] == pytest.approx(1 / 5)


def test_downstream_rejects_invalid_options() -> None:
    with pytest.raises(ValueError, match=r"at least one of the 'sizes'. Got none instead"):
        downstream_lr(NOISY, GRID, NOISY, GRID, sizes=[])
    with pytest.raises(ValueError, match="The 'sizes' parameter must be >= 2"):
        downstream_lr(NOISY, GRID, NOISY, GRID, sizes=[1])
    with pytest.raises(ValueError, match=r"The 'model' parameter must be 'gbt' or 'lr'. Got 'svm' instead"):
        downstream(NOISY, GRID, NOISY, GRID, model="svm")


@pytest.mark.parametrize("sizes", [500, [500], [500, 900]])
def test_sizes_above_the_number_of_rows_use_all_rows(sizes: Any) -> None:
    assert downstream_lr(NOISY, GRID, NOISY, GRID, sizes=sizes) == downstream_lr(NOISY, GRID, NOISY, GRID, sizes=[120])


def test_statistical_efficiency_is_a_ratio() -> None:
    factors = random_factors((2, 3), 10_000, 0)
    codes = factors + noise(10_000, 2, 3)
    got = downstream(codes, factors, codes, factors, model="lr")
    assert got["statistical_efficiency"] == got["100:mean_test_accuracy"] / got["10000:mean_test_accuracy"]
    assert {key.split(":")[0] for key in got if ":" in key} == {"10", "100", "1000", "10000"}


@pytest.mark.parametrize("model", ["lr", "gbt"])
def test_downstream_is_invariant_to_the_order_of_factors(model: Any) -> None:
    before = downstream(NOISY, GRID, NOISY, GRID, model=model, sizes=[120])
    after = downstream(NOISY, GRID[:, ::-1], NOISY, GRID[:, ::-1], model=model, sizes=[120])
    for j in range(3):
        assert after[f"120:test_accuracy_factor_{2 - j}"] == before[f"120:test_accuracy_factor_{j}"]
    assert after["mean_test_accuracy"] == pytest.approx(before["mean_test_accuracy"])


def test_trees_are_invariant_to_the_order_of_all_rows() -> None:
    order = np.random.default_rng(1).permutation(len(GRID))
    before = downstream_gbt(NOISY, GRID, NOISY, GRID, sizes=(120,))
    after = downstream_gbt(NOISY[order], GRID[order], NOISY, GRID, sizes=(120,))
    assert after == pytest.approx(before, abs=1e-12)
