"""The rows that metrics draw while one factor is fixed, or while only one factor varies."""

from __future__ import annotations

import numpy as np
import pytest

from support.known_codes import GRID, MAPS, NOISY, random_factors
from unbraid.errors import UserError
from unbraid.metrics import strong_downstream, z_max_var
from unbraid.metrics.interventions import split_rows
from unbraid.metrics.settings import count_values_by_setting
from unbraid.metrics.strong_downstream import _draw_experiment
from unbraid.metrics.z_max_var import _rows_by_part


@pytest.mark.parametrize("replace", [False, True])
def test_the_fixed_factor_has_one_value_in_training_and_others_in_the_test(replace: bool) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        strong, plain = _draw_experiment(GRID, 0, 2, 15, 30, rng, replace=replace)
        (value,) = set(GRID[strong.train, 2].tolist())
        assert value not in GRID[strong.test, 2]
        assert len(set(GRID[strong.test, 2].tolist())) > 2
        assert [len(part) for part in (*strong, *plain)] == [15, 30, 15, 30]
        assert replace or not set(plain.train.tolist()) & set(plain.test.tolist())


def test_an_experiment_uses_all_rows_of_a_rare_value() -> None:
    strong, plain = _draw_experiment(GRID, 0, 2, 1000, 1000, np.random.default_rng(0), replace=False)
    assert [len(part) for part in (*strong, *plain)] == [20, 100, 20, 100]


def test_strong_downstream_needs_a_repeated_value() -> None:
    factors = np.c_[GRID[:, :1], np.arange(120)]
    with pytest.raises(UserError, match=r"factor column 1 must occur in at least 2 rows .* Got counts \[1, 1"):
        strong_downstream(NOISY, factors)


@pytest.mark.parametrize("j", range(3))
def test_only_one_factor_varies_in_a_setting(j: int) -> None:
    setting, counts = count_values_by_setting(GRID, j)
    assert len(counts) == 120 // (size := GRID[:, j].max() + 1)
    assert (counts == size).all()
    for number in range(len(counts)):
        others = np.delete(GRID[setting == number], j, axis=1)
        assert (others == others[0]).all()


@pytest.mark.parametrize("j", range(3))
def test_only_settings_with_two_values_are_used_in_each_half(j: int) -> None:
    halves = split_rows(GRID, np.random.default_rng(0))
    for half, rows in zip(halves, _rows_by_part(GRID, j, halves), strict=True):
        assert set(rows.tolist()) <= set(half.tolist())
        assert (count_values_by_setting(GRID[rows], j)[1] > 1).all()
        left_out = np.setdiff1d(half, rows)
        assert len(left_out) < len(rows)
        assert not len(left_out) or (count_values_by_setting(GRID[left_out], j)[1] == 1).all()


def test_z_max_var_uses_settings_with_half_of_the_values() -> None:
    """Of 4 values, 1 occurs with the first setting, 2 with the second and 4 with the third and the fourth."""
    factors = np.array([[0, 0], [0, 1], [3, 1], *([v, s] for s in (2, 3) for v in range(4))])
    every_row = np.arange(len(factors))
    assert _rows_by_part(factors, 0, (every_row, every_row))[0].tolist() == list(range(1, 11))


def test_z_max_var_needs_rows_that_differ_in_one_factor() -> None:
    factors = random_factors((9, 9, 9), 60, 0)
    with pytest.raises(UserError, match=r"Factor column 0 must vary alone, over half of its values"):
        z_max_var(NOISY[:60], factors)


@pytest.mark.parametrize("law", ["rows", "factors"])
def test_many_experiments_make_the_strong_task_independent_of_the_order(law: str) -> None:
    """The law of this metric cannot assert it, because its few experiments draw different rows in a different order."""
    before = strong_downstream(NOISY, GRID, experiments=24)
    after = strong_downstream(*MAPS[law](NOISY, GRID), experiments=24)
    assert after == pytest.approx(before, abs=0.03)
