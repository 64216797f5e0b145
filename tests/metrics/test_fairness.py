"""Fairness: golden values, interventions that change one factor only, and predictors with known scores."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from oracles import fairness as oracle
from support.golden import golden_extra
from support.known_codes import GRID, NOISY, Array, factor_grid, noise
from unbraid.metrics.fairness import aggregate_scores, fairness, total_variation
from unbraid.metrics.settings import intervention_rows

HEADLINE = "mean_fairness:mean_pred:mean_sens"
fairness_of_reference_draws = partial(fairness, draws="reference")


class Lookup:
    """A predictor that returns the most common label of a row of codes (the smallest of ties), or -1 for a new row."""

    def __init__(self, codes: Array, labels: Array) -> None:
        counts: dict[bytes, Counter[int]] = {}
        for code, label in zip(codes, labels.tolist(), strict=True):
            counts.setdefault(code.tobytes(), Counter())[label] += 1
        self.best = {code: min(c, key=lambda y: (-c[y], y)) for code, c in counts.items()}

    def predict(self, codes: Array) -> Array:
        return np.array([self.best.get(code.tobytes(), -1) for code in codes])


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Array, Array, int, str]]:
    """Replace the trees by a lookup table, and record the arguments of the fits."""
    calls: list[tuple[Array, Array, int, str]] = []

    def lookup(codes: Array, labels: Array, *, seed: int, trees: str) -> Lookup:
        calls.append((codes, labels, seed, trees))
        return Lookup(codes, labels)

    monkeypatch.setattr("unbraid.metrics.trees.boosted_trees", lookup, raising=False)
    return calls


def test_golden_aggregates(shared: Path) -> None:
    want, arrays = golden_extra(shared)
    counts, matrix = arrays["fairness_counts"], arrays["fairness_matrix"]
    assert aggregate_scores(matrix, "mean_fairness") == pytest.approx(want["fairness_scores_dict"], abs=1e-9)
    mean, largest = total_variation(counts)
    # The reference implementation divides in single precision, which changes the eighth digit.
    assert {"mean": mean, "max": largest} == pytest.approx(want["fairness_inter_group"], abs=2e-8)


def test_golden_distances_in_single_precision(shared: Path) -> None:
    """In single precision the values agree to 1e-9, so precision causes the difference in the eighth digit."""
    extra = golden_extra(shared)
    want, counts = extra.want["fairness_inter_group"], extra.arrays["fairness_counts"]
    totals = counts.sum(axis=0)
    fractions = counts.astype(np.float32) / totals.astype(np.float32)
    overall = counts.sum(axis=1).astype(np.float32) / np.float32(counts.sum())
    gaps = np.abs(fractions - overall[:, None]).sum(axis=0) / 2
    assert gaps @ totals / totals.sum() == pytest.approx(want["mean"], abs=1e-9)
    assert gaps.max() == pytest.approx(want["max"], abs=1e-9)


def test_interventions_change_one_factor_only() -> None:
    rng = np.random.default_rng(0)
    for j in range(3):
        rows = intervention_rows(GRID, j, 50, rng)
        assert rows.shape == (50, len(np.unique(GRID[:, j])))
        changed = GRID[rows]
        assert np.all(changed[:, :, j] == np.unique(GRID[:, j]))
        others = np.delete(changed, j, axis=2)
        assert np.all(others == others[:, :1])


def test_interventions_reach_every_setting() -> None:
    rows = intervention_rows(GRID, 0, 2000, np.random.default_rng(0))
    assert np.array_equal(np.unique(rows), np.arange(len(GRID)))
    assert np.bincount(rows[:, 0], minlength=24).max() < 4 * 2000 / 24


def test_interventions_draw_among_rows_of_equal_factors() -> None:
    factors = np.r_[GRID, GRID]
    rows = intervention_rows(factors, 1, 400, np.random.default_rng(0))
    assert np.any(rows < 120)
    assert np.any(rows >= 120)
    mixed = (rows < 120).any(axis=1) & (rows >= 120).any(axis=1)
    assert mixed.mean() > 0.7  # 7 of 8 draws of four rows mix both copies


def test_incomplete_settings_are_never_drawn() -> None:
    incomplete = np.delete(GRID, 0, axis=0)  # (0, 0, 0) is missing, which makes three settings incomplete
    rows = intervention_rows(incomplete, 2, 500, np.random.default_rng(0))
    assert not np.any((incomplete[rows][:, :, :2] == 0).all(axis=2))
    assert len(np.unique(rows)) == 114  # 19 of 20 settings


def test_label_values_do_not_matter() -> None:
    names = np.array([-(2**62), 7, 2**62, 2**40, 5, 6])
    order = np.argsort(np.argsort(names))
    for j in range(3):
        got = intervention_rows(names[GRID], j, 30, np.random.default_rng(1))
        assert np.array_equal(got, intervention_rows(order[GRID], j, 30, np.random.default_rng(1)))


def test_many_settings_do_not_overflow() -> None:
    wide = np.random.default_rng(0).integers(0, 1000, size=(500, 12))
    factors = np.r_[np.c_[np.zeros(500, int), wide], np.c_[np.ones(500, int), wide]]
    rows = intervention_rows(factors, 0, 300, np.random.default_rng(0))
    assert np.all(rows[:, 1] - rows[:, 0] == 500)


@pytest.mark.parametrize(("test", "needed"), [(100, 50), (7, 4), (3, 2)])
def test_rejects_a_table_without_complete_settings(fits: list[object], test: int, needed: int) -> None:
    factors = np.random.default_rng(0).integers(0, 50, size=(300, 3))
    message = rf"factor column 0 .* at least {needed} settings.* Got 0 among \d+ settings instead. Pass the whole"
    with pytest.raises(ValueError, match=message):
        fairness(noise(300, 2), factors, train=100, test=test)
    assert not fits


def test_a_small_full_grid_is_accepted(fits: list[object]) -> None:
    assert fairness_of_reference_draws(factor_grid(2, 2), factor_grid(2, 2), train=50, test=1000)[HEADLINE] == 0


def test_training_rows_depend_on_the_seed(fits: list[tuple[Array, Array, int, str]]) -> None:
    fairness_of_reference_draws(NOISY, GRID, train=77, test=5, seed=3, trees="sklearn")
    rows = np.random.default_rng(3).integers(120, size=77)
    assert len(fits) == 3
    for i, (codes, labels, seed, trees) in enumerate(fits):
        assert np.array_equal(codes, NOISY[rows])
        assert np.array_equal(labels, GRID[rows, i])
        assert (seed, trees) == (3, "sklearn")


def test_predictors_with_known_scores(fits: list[object]) -> None:
    bits = factor_grid(2, 2)
    codes = np.where(bits[:, 1] == 0, bits[:, 0], 2)[:, None]  # contains the first bit only if the second is 0
    scores = fairness_of_reference_draws(codes, bits, train=1000, test=4000)
    assert scores["mean_fairness:pred0:sens1"] == pytest.approx(0.25, abs=0.01)
    assert scores["max_fairness:pred0:sens1"] == pytest.approx(0.25, abs=0.01)
    assert scores["mean_fairness:pred1:sens0"] == 0
    assert scores[HEADLINE] == pytest.approx(0.125, abs=0.005)
    assert scores["mean_fairness:max_sens:mean_pred"] == scores["mean_fairness:pred0:sens1"]
    # The first bit is predicted from the second alone.
    of_second_bit = fairness_of_reference_draws(bits[:, 1:], bits, train=1000, test=50)
    assert of_second_bit["mean_fairness:pred0:sens1"] in (0.0, 0.5)
    assert fairness_of_reference_draws(np.zeros((4, 1)), bits, train=100, test=50)[HEADLINE] == 0


def test_predictions_that_follow_the_sensitive_factor_are_unfair(fits: list[object]) -> None:
    """If each of three sensitive values has its own prediction, every distance from the average is 2/3."""
    grid = factor_grid(3, 3)
    tilted = grid[(grid[:, 0] == grid[:, 1]) | (np.arange(9) == 1)]
    heavy = np.r_[np.repeat(tilted, 50, axis=0), grid]  # the target nearly always equals the sensitive factor
    scores = fairness_of_reference_draws(heavy[:, 1:], heavy, train=5000, test=30)
    assert scores["mean_fairness:pred0:sens1"] >= 0.4


class RoundedSum:
    """A predictor that returns the rounded sum of each row of codes and ignores the training data."""

    def predict(self, codes: Array) -> Array:
        return np.rint(codes.sum(axis=1)).astype(int)


def test_equals_its_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many draws, the score approaches the average over all rows of the table."""
    monkeypatch.setattr("unbraid.metrics.trees.boosted_trees", lambda *_, **__: RoundedSum(), raising=False)
    factors = np.repeat(factor_grid(2, 3), 30, axis=0)
    codes = factors * [0.4, 1.0] + 0.3 * noise(len(factors), 2)
    got = fairness_of_reference_draws(codes, factors, test=100_000)
    predictions = RoundedSum().predict(codes).tolist()
    for pred, sens in ((0, 1), (1, 0)):
        distances = oracle.distances(oracle.predictions_by_value(predictions, factors.tolist(), sens))
        assert min(distances) > 0.02
        # Relative frequencies in 100,000 draws have errors of 0.0016. A distance is half the sum of about six of them.
        assert got[f"mean_fairness:pred{pred}:sens{sens}"] == pytest.approx(np.mean(distances), abs=0.01)
        assert got[f"max_fairness:pred{pred}:sens{sens}"] == pytest.approx(max(distances), abs=0.01)


@pytest.mark.parametrize(("option", "low"), [("train", 2), ("test", 1)])
def test_rejects_too_small_a_parameter(option: str, low: int) -> None:
    with pytest.raises(ValueError, match=f"The '{option}' parameter must be >= {low}. Got {low - 1} instead."):
        fairness(NOISY, GRID, **{option: low - 1})


REJECTED: dict[str, tuple[Callable[[], tuple[Array, Array]], str]] = {
    "one factor": (lambda: (NOISY, GRID[:, :1]), r"Factors must have at least 2 columns. Got 1"),
    "constant factor": (
        lambda: (NOISY, GRID * [1, 0, 1]),
        r"at least 2 values. Got only the value 0 in factor column 1",
    ),
    "other length": (lambda: (NOISY, GRID[:90]), r"same number of rows. Got 120 and 90"),
    "continuous": (lambda: (NOISY, GRID + 0.5), r"Factors must be integers"),
    "infinite": (lambda: (NOISY * np.inf, GRID), r"Codes must be finite"),
}


@pytest.mark.parametrize("what", REJECTED)
@pytest.mark.filterwarnings("ignore:invalid value encountered in multiply")
def test_rejects_invalid_input(what: str) -> None:
    arrays, message = REJECTED[what]
    with pytest.raises(ValueError, match=message):
        fairness(*arrays())


def test_rejects_a_training_sample_with_one_value(fits: list[object]) -> None:
    rare = np.c_[np.arange(400) % 2, (np.arange(400) >= 398).astype(int)]
    with pytest.raises(ValueError, match=r"at least 2 values. Got only the value 0 in factor column 1"):
        fairness_of_reference_draws(noise(400, 2), rare, train=5, test=2)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, bool])
def test_accepts_any_numeric_dtype(fits: list[object], dtype: type) -> None:
    factors, codes = factor_grid(2, 2, 2), noise(8, 2).astype(np.float32)
    got = fairness_of_reference_draws(codes, factors.astype(dtype), train=20, test=10)
    assert got == fairness_of_reference_draws(codes.astype(float).tolist(), factors.tolist(), train=20, test=10)
    json.dumps(got, allow_nan=False)


def test_depends_only_on_its_seed(fits: list[object]) -> None:
    np.random.seed(0)
    first = fairness_of_reference_draws(NOISY, GRID, train=60, test=20)
    np.random.seed(1)
    assert fairness_of_reference_draws(NOISY, GRID, train=60, test=20) == first
    assert fairness_of_reference_draws(NOISY, GRID, train=60, test=20, seed=1) != first
