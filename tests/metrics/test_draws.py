"""Training rows and test rows are disjoint, and codes that carry nothing score at chance."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from support.known_codes import GRID, Array, factor_grid, noise, random_factors, reflected
from unbraid.metrics import METRICS, beta_vae, factor_vae, fairness
from unbraid.metrics.interventions import group_rows, split_rows
from unbraid.metrics.protocol import Protocol, Rows, identity

SIZES = (2, 3, 4)
GUESS = sum(1 / size for size in SIZES) / len(SIZES)  # expected accuracy of any guess of independent, uniform factors
WITH_TEST_SET = {name for name in METRICS if {"test_codes", "draws"} & set(inspect.signature(METRICS[name]).parameters)}
# The accuracies of each metric with a test set, and their expectation for codes that carry nothing
CHANCE: dict[str, dict[str, float]] = {
    "beta_vae": {"eval_accuracy": 1 / 3},
    "factor_vae": {"eval_accuracy": 1 / 3},
    "dci": {"informativeness_test": GUESS},
    "explicitness": {"explicitness_score_test": 0.5},
    "downstream_lr": {"mean_test_accuracy": GUESS, "100:mean_test_accuracy": GUESS},
    "downstream_gbt": {"mean_test_accuracy": GUESS, "100:mean_test_accuracy": GUESS},
    "strong_downstream": {"mean_test_accuracy": GUESS, "mean_strong_test_accuracy": GUESS},
    "reduced_downstream": {"mean_test_accuracy_reduced_factor": GUESS, "mean_test_accuracy_other_factors": GUESS},
    "z_max_var": {"eval_accuracy": 1 / 3},
    "snc": {"snc": GUESS},
    "nk": {"mean_test_accuracy": GUESS, "mean_knockout_accuracy": GUESS},
}
WITHOUT_ACCURACY = {
    "sap": "a gap between two accuracies, which test_sap_of_noise checks",
    "fairness": "a distance between predictions, which test_fairness_of_noise checks",
    "dci_es": "the lowest of several test errors, which is below chance; test_peers.py checks its floor",
    "unified": "aggregations of matrices, which test_unified.py compares with sap",
}
DRAWN_FROM_THE_TABLE = ("beta_vae", "factor_vae", "fairness", "strong_downstream", "z_max_var")
CODES: dict[str, Callable[[int, int], Array]] = {
    "noise": lambda rows, seed: noise(rows, 5, seed),
    "constant": lambda rows, seed: np.full((rows, 3), 0.3),
}

# Scores of the codes in test_reference_draws_are_those_of_the_first_release
FIRST_RELEASE: dict[str, Any] = {
    "factor_vae": {"train_accuracy": 0.678, "eval_accuracy": 0.724, "num_active_dims": 3.0},
    "beta_vae": {"train_accuracy": 0.754, "eval_accuracy": 0.73},
    "fairness": 0.11418287037037038,
}


def test_chance_covers_every_metric_with_a_test_set() -> None:
    assert set(CHANCE) | set(WITHOUT_ACCURACY) == WITH_TEST_SET


def accuracies(name: str, codes: str, rows: int, repeats: int, draws: str = "disjoint") -> dict[str, Array]:
    """Return the accuracies of one metric for several independent tables."""
    protocol = Protocol(train=2 * rows, test=rows, draws=draws)
    found = []
    for seed in range(repeats):
        table = protocol.rows(CODES[codes](rows, seed), random_factors(SIZES, rows, 100 + seed))
        found.append(table.score([name], seed).values_or_raise()[name])
    return {key: np.array([scores[key] for scores in found]) for key in CHANCE[name]}


def check_chance(name: str, codes: str, rows: int, repeats: int) -> None:
    """The mean accuracy over independent tables is at chance, within 4 standard errors."""
    for key, got in accuracies(name, codes, rows, repeats).items():
        if name in ("factor_vae", "z_max_var") and codes == "constant":
            assert np.all(got == 0)  # no latent is active, so there are no votes
            continue
        chance = CHANCE[name][key]
        binomial = np.sqrt(chance * (1 - chance) / (rows // 3) / len(SIZES))
        error = max(float(got.std(ddof=1)), binomial) / np.sqrt(repeats)
        assert abs(got.mean() - chance) < 4 * error, (key, got)


@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("name", CHANCE)
def test_codes_that_carry_nothing_score_at_chance(name: str, codes: str) -> None:
    check_chance(name, codes, 200, 6)
    if codes == "noise":
        check_chance(name, codes, 1_000, 3)


@pytest.mark.slow
@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("name", CHANCE)
@pytest.mark.parametrize("rows", [5_000, 20_000])
def test_codes_that_carry_nothing_score_at_chance_in_large_tables(name: str, codes: str, rows: int) -> None:
    check_chance(name, codes, rows, 3)


@pytest.mark.parametrize("name", ["beta_vae", "factor_vae", "dci", "downstream_gbt"])
def test_reference_draws_score_noise_above_chance(name: str) -> None:
    """The law above can fail: reference draws test on rows that were used for training."""
    key = next(iter(CHANCE[name]))
    got = accuracies(name, "noise", 200, 4, draws="reference")[key]
    assert got.mean() > CHANCE[name][key] + 0.03


@pytest.mark.parametrize("rows", [200, 1_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_sap_of_noise(rows: int) -> None:
    scores = [
        Protocol().rows(noise(rows, 5, seed), random_factors(SIZES, rows, seed)).score(["sap"], 0).values["sap"]
        for seed in range(5)
    ]
    # The best of 5 accuracies leads by less than two standard deviations of an accuracy on the test rows.
    assert np.mean([score["SAP_score"] for score in scores]) < 2 * np.sqrt(0.25 / min(rows / 3, 5_000))


def test_fairness_of_noise() -> None:
    """Trees that have seen a row predict its factors exactly, so noise seems fair. It is not on new rows."""
    headline = "mean_fairness:mean_pred:mean_sens"
    codes = noise(len(GRID), 5)
    assert fairness(codes, GRID, draws="reference")[headline] < 0.01
    assert fairness(codes, GRID)[headline] > 0.2
    assert fairness(GRID, GRID)[headline] == 0


@pytest.mark.parametrize("factors", [GRID, factor_grid(3, 7).repeat(3, axis=0), np.arange(60)[:, None] // 2])
def test_halves_are_disjoint_and_share_values(factors: Array) -> None:
    train, test = split_rows(factors, np.random.default_rng(0))
    assert sorted([*train, *test]) == list(range(len(factors)))
    assert abs(len(train) - len(test)) <= max(2, 0.1 * len(factors))
    for j, column in enumerate(factors.T):
        for half in (train, test):
            assert len(group_rows(column[half], j, 0.0).drawable) > 0
        if np.bincount(column).min() >= 4 and len(set(column)) == max(len(set(other)) for other in factors.T):
            assert all(np.bincount(column[half]).min() >= 2 for half in (train, test))


def recorded_calls(monkeypatch: pytest.MonkeyPatch, module: str, function: str) -> list[tuple[Any, ...]]:
    """Record the positional arguments of all calls of a function."""
    owner, calls = importlib.import_module(module), []
    original = getattr(owner, function)

    def record(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return original(*args, **options)

    monkeypatch.setattr(owner, function, record)
    return calls


@pytest.mark.parametrize(
    ("metric", "function"), [(beta_vae, "pair_differences"), (factor_vae, "intervention_variances")]
)
def test_votes_draw_from_disjoint_rows(monkeypatch: pytest.MonkeyPatch, metric: Any, function: str) -> None:
    calls = recorded_calls(monkeypatch, f"unbraid.metrics.{metric.__name__}", function)
    codes = np.c_[np.arange(120.0), noise(120, 1)]
    metric(codes, GRID, train=50, test=50)
    train, test = (set(args[0][:, 0]) for args in calls)
    assert train | test == set(codes[:, 0])
    assert not train & test


def test_pairs_never_contain_a_row_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = recorded_calls(monkeypatch, "unbraid.metrics.row_statistics", "mean_differences")
    beta_vae(noise(24, 2), factor_grid(2, 3, 4), train=200, test=200)
    assert all(np.all(rows != partners) for _, rows, partners in calls)
    assert len(calls) == 6


@pytest.mark.parametrize("factors", [GRID, np.repeat(factor_grid(3, 4), 5, axis=0)])
def test_interventions_of_fairness_use_no_training_row(monkeypatch: pytest.MonkeyPatch, factors: Array) -> None:
    trained: list[set[float]] = []
    tested: list[set[float]] = []

    class Predictor:
        def predict(self, codes: Array) -> Array:
            tested.append(set(codes[:, 0]))
            return np.zeros(len(codes), int)

    def fit(codes: Array, *args: Any, **options: Any) -> Predictor:
        trained.append(set(codes[:, 0]))
        return Predictor()

    monkeypatch.setattr("unbraid.metrics.trees.boosted_trees", fit, raising=False)
    fairness(np.arange(len(factors))[:, None], factors)
    assert len(set.union(*trained)) >= len(factors) / 3
    assert not set.union(*trained) & set.union(*tested)


def test_fairness_rejects_a_table_without_training_rows() -> None:
    with pytest.raises(ValueError, match=r"no intervention uses .* Got \d such rows among 4 instead. .*'reference'"):
        fairness(noise(4, 2), factor_grid(2, 2))


@pytest.mark.parametrize("metric", [beta_vae, factor_vae])
def test_draws_agree_if_many_rows_share_each_value(metric: Any) -> None:
    factors = np.tile(GRID, (40, 1))
    codes = reflected(factors) + 1.5 * noise(len(factors), 3)
    one, two = (metric(codes, factors, draws=draws, batch=16)["eval_accuracy"] for draws in ("disjoint", "reference"))
    assert 0.5 < one < 0.95
    assert one == pytest.approx(two, abs=0.03)


@pytest.mark.parametrize("metric", [beta_vae, factor_vae, fairness])
def test_rejects_unknown_draws(metric: Any) -> None:
    with pytest.raises(ValueError, match=r"Unknown way to draw rows 'disjunct'. Did you mean 'disjoint'"):
        metric(noise(120, 3), GRID, draws="disjunct")


def test_reference_draws_are_those_of_the_first_release() -> None:
    """The values were computed by release 0.1, which had no other draws."""
    codes = reflected(GRID) + 0.5 * noise(120, 3)
    assert factor_vae(codes, GRID, draws="reference", batch=8, train=500, test=500) == FIRST_RELEASE["factor_vae"]
    got = beta_vae(codes, GRID, draws="reference", batch=8, train=500, test=500)
    assert got == pytest.approx(FIRST_RELEASE["beta_vae"], abs=0.005)  # rounding may move two votes
    headline = "mean_fairness:mean_pred:mean_sens"
    assert fairness(codes, GRID, draws="reference", train=100)[headline] == pytest.approx(FIRST_RELEASE["fairness"])


def test_rows_pass_their_draws_to_metrics() -> None:
    codes, names = noise(120, 4), list(DRAWN_FROM_THE_TABLE)
    for draws in ("disjoint", "reference"):
        got = Protocol(draws=draws).rows(codes, GRID).score(names, 0).values_or_raise()
        assert got == {name: METRICS[name](codes, GRID, draws=draws) for name in names}
    assert Rows(codes, GRID, np.arange(5), np.arange(5)).draws == "disjoint"


def test_only_metrics_that_draw_from_the_table_have_a_new_identity() -> None:
    sizes = Protocol().sizes(120)
    for name in METRICS:
        new = set(identity(name, 0, sizes)) - set(identity(name, 0, sizes, "reference"))
        assert new == ({"interventions"} if name in DRAWN_FROM_THE_TABLE else set())
