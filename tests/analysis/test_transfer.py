"""Transfer of settings between metrics and datasets: known win rates, and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pandas import DataFrame

from oracles import analysis as oracle
from unbraid import analysis
from unbraid.errors import UserError
from unbraid.metrics import headline

COLUMNS = (headline("mig"), headline("dci"))


def rates(table: DataFrame) -> DataFrame:
    return analysis.win_rates(analysis.transfer(table).table)


def test_a_setting_that_is_best_everywhere_always_wins() -> None:
    table = oracle.results_grid(
        lambda d, m, level, seed, c: (1 + d) * (3 * m + level) + c,
        data="abc",
        methods="mn",
        levels=3,
        seeds=3,
        columns=COLUMNS,
    )
    assert (rates(table) == 1).all(axis=None)
    assert len(rates(table)) == 4


def test_only_settings_of_both_datasets_are_chosen_and_compared() -> None:
    table = oracle.results_grid(lambda d, m, level, seed, c: 3 * m + level, data="ab", methods="mn", levels=3, seeds=2)
    both = analysis.transfer(table).table.set_index(["from_data", "to_data"])
    extra = table[(table["data"] == "a") & (table["method"] == "m")].assign(method="own")
    extra[COLUMNS[0]] += 100.0
    found = analysis.transfer(DataFrame([*table.to_dict("records"), *extra.to_dict("records")])).table
    found = found.set_index(["from_data", "to_data"])
    for name in ("by_mean", "by_seed"):
        assert found[name].tolist() == both[name].tolist() == [1, 1, 1, 1]


def test_unrelated_settings_win_half_the_time() -> None:
    """The best setting of each dataset has the middle rank on the other."""
    scores = [[0, 1, 2, 3, 4], [0, 1, 4, 3, 2]]
    table = oracle.results_grid(lambda d, m, level, seed, c: scores[d][level], data="ab", levels=5, seeds=2)
    found = rates(table)
    assert found.loc["same metric, other data"].tolist() == [0.5, 0.5]
    assert found.loc["same metric, same data"].tolist() == [1, 1]
    assert "other metric, same data" not in found.index


def test_ties_count_half_and_opposite_orders_zero() -> None:
    flat = oracle.results_grid(lambda d, m, level, seed, c: level * d, data="ab", levels=4, seeds=2)
    pairs = analysis.transfer(flat).table.set_index(["from_data", "to_data"])
    assert pairs.loc[("b", "a"), "by_mean"] == 0.5
    assert pairs.loc[("a", "b"), "by_mean"] == 0.5  # all four are chosen equally: the average is the middle
    assert math.isnan(pairs.loc[("a", "b"), "correlation"])
    opposite = oracle.results_grid(lambda d, m, level, seed, c: level * (-1) ** d, data="ab", levels=4, seeds=2)
    assert rates(opposite).loc["same metric, other data"].tolist() == [0, 0]
    assert analysis.transfer(opposite).table["correlation"].tolist() == [1, -1, -1, 1]


def test_settings_are_chosen_without_the_seed_they_are_compared_on() -> None:
    """Each setting is best with one seed and worst with the other, so a choice by one seed is wrong for the other."""
    table = oracle.results_grid(lambda d, m, level, seed, c: float(level == seed), data="ab", levels=2, seeds=2)
    assert (rates(table) == 0).all(axis=None)


def test_metrics_with_low_scores_good() -> None:
    column = headline("fairness")
    scores = [[0, 1, 2], [0, 2, 1]]
    table = oracle.results_grid(
        lambda d, m, level, seed, c: scores[d][level], data="ab", levels=3, seeds=2, columns=[column]
    )
    found = analysis.win_rates(analysis.transfer(table, ["fairness"]).table)
    assert (found == 1).all(axis=None)


@pytest.mark.parametrize("by", ["by_mean", "by_seed"])
def test_equals_brute_force_with_ties_and_missing_values(by: str) -> None:
    rng = np.random.default_rng(3)
    table = oracle.results_grid(
        lambda *_: float(rng.integers(0, 4)), data="abc", methods="mn", levels=2, seeds=3, columns=COLUMNS
    )
    for column in COLUMNS:
        table.loc[rng.random(len(table)) < 0.15, column] = np.nan
    found = analysis.transfer(table.drop(index=[4, 17])).table
    for row in found.to_dict("records"):
        source, target = ((headline(row[f"{end}_metric"]), row[f"{end}_data"]) for end in ("from", "to"))
        expected = oracle.win_rate(table.drop(index=[4, 17]), source, target, by)
        assert row[by] == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_random_settings_win_half_on_average() -> None:
    rng = np.random.default_rng(0)
    table = oracle.results_grid(
        lambda *_: rng.normal(), data="abcdefg", methods="mnop", levels=3, seeds=10, columns=COLUMNS
    )
    assert rates(table).to_numpy() == pytest.approx(0.5, abs=0.05)


def test_one_setting_raises_an_error() -> None:
    with pytest.raises(UserError, match="at least 2 settings"):
        analysis.transfer(oracle.results_grid(lambda d, m, level, seed, c: seed, data="ab", seeds=3))
