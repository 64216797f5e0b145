"""Linearity: all of its scores against loops over all traversals and pairs, and the cases that it treats separately."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from oracles import peers as oracle
from support.known_codes import GRID, NOISY, factor_grid, noise, reflected
from unbraid.errors import UserError
from unbraid.metrics import METRICS, linearity
from unbraid.metrics.linearity import line_ratios, rank_correlation

RATIOS = ("linear_ratio", "axis_ratio", "axis_alignment")


def test_all_scores_equal_loops_over_all_traversals_and_pairs() -> None:
    factors = factor_grid(3, 4, 5)
    codes = factors @ np.array([[1, 0.3, 0], [0, 2, 0.5], [0.2, 0, 1]]) + 0.5 * noise(60, 3)
    expected = oracle.linearity(codes.tolist(), factors.tolist())
    for p in (1, 2):
        expected[f"factor_rank_correlation_l{p}"] = oracle.factor_rank_correlation(codes.tolist(), factors.tolist(), p)
        expected[f"global_rank_correlation_l{p}"] = oracle.global_rank_correlation(codes.tolist(), factors.tolist(), p)
    assert linearity(codes, factors, repeats=3000, pairs=100_000) == pytest.approx(expected, abs=0.015)


def test_rank_correlation_equals_scipy() -> None:
    a, b = np.random.default_rng(0).integers(4, size=300), np.random.default_rng(1).random(300).round(1)
    for sign in (1, -1):
        x = (a + sign * 10 * b).astype(int)
        assert rank_correlation(x, b) == pytest.approx(float(spearmanr(x, b).statistic), abs=1e-12)


def test_rounding_errors_do_not_break_ties() -> None:
    """Without rounding, equal distances in rotated codes would have random ranks."""
    a = np.repeat([1, 2, 3], 50)
    assert rank_correlation(a, a / 3 + 1e-12 * noise(150, 1)[:, 0]) == pytest.approx(1, abs=1e-12)
    assert rank_correlation(a, a / 3 + 1e-3 * noise(150, 1)[:, 0]) < 0.97


def test_ratios_of_an_ellipse_are_known() -> None:
    """Points on an ellipse with half-axes 2 and 1 have variances in the ratio 4 to 1. The third latent is constant."""
    angles = 2 * np.pi * np.arange(12) / 12
    ellipse = np.stack([2 * np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    linear = (0.8 - 1 / 3) / (2 / 3)
    turn = np.array([[0.8, 0.6, 0], [-0.6, 0.8, 0], [0, 0, 1]])
    axis = (0.8 * 0.64 + 0.2 * 0.36 - 1 / 3) / (2 / 3)
    expected = [[linear, linear, 1], [linear, axis, axis / linear]]
    assert line_ratios(np.stack([ellipse, ellipse @ turn])) == pytest.approx(np.array(expected), abs=1e-12)


def test_a_traversal_without_a_main_direction_scores_zero() -> None:
    triangle = np.stack([np.cos(2 * np.pi * np.arange(3) / 3), np.sin(2 * np.pi * np.arange(3) / 3)], axis=1)
    assert line_ratios(triangle[None]) == pytest.approx(np.zeros((1, 3)), abs=1e-12)


def test_rotation_changes_only_the_ratios_of_axes_and_the_l1_norm() -> None:
    codes = (GRID - GRID.mean(axis=0)) / GRID.std(axis=0) + 0.2 * noise(120, 3)
    v = np.arange(1, 4) / np.linalg.norm(np.arange(1, 4))
    before, after = linearity(codes, GRID), linearity(codes @ (np.eye(3) - 2 * np.outer(v, v)), GRID)
    changed = {key for key in before if abs(before[key] - after[key]) > 1e-9}
    expected = {"axis_ratio", "axis_alignment", "factor_rank_correlation_l1", "global_rank_correlation_l1"}
    assert changed == expected
    assert after["axis_ratio"] < before["axis_ratio"] - 0.2


def test_shift_and_common_scale_change_nothing() -> None:
    before = linearity(NOISY, GRID)
    for codes in (NOISY + 100, 1e-150 * NOISY, -1e300 * NOISY):
        assert linearity(codes, GRID) == pytest.approx(before, abs=1e-6)


def test_labels_count_by_their_order() -> None:
    assert linearity(NOISY, 7 * GRID**2 - 3) == linearity(NOISY, GRID)


def test_the_reverse_order_of_distances_is_a_correlation_of_minus_one() -> None:
    """Neighbours are far apart in the codes, and the first and last value are close."""
    factors = factor_grid(3, 4)
    codes = np.array([0.0, 10.0, 1.0])[factors[:, :1]]
    assert linearity(codes, factors)["factor_rank_correlation_l1"] < -0.4


def test_one_latent_and_duplicates() -> None:
    one = linearity(reflected(GRID)[:, :1], GRID)
    assert [one[key] for key in RATIOS] == [1, 1, 1]
    pair = linearity(GRID[:, [0, 0]] + 1.0, GRID)
    assert [pair[key] for key in RATIOS] == pytest.approx([1 / 3, 0, 0], abs=1e-9)


def test_a_factor_with_two_values_is_left_out_of_the_rank_correlations() -> None:
    factors = factor_grid(2, 5)
    codes = np.c_[3 * factors[:, 0], factors[:, 1]]
    assert linearity(codes, factors)["factor_rank_correlation_l1"] == pytest.approx(1, abs=1e-12)


def test_needs_complete_traversals() -> None:
    factors = np.c_[np.arange(120) % 60, np.arange(120) % 60]
    with pytest.raises(UserError, match=r"To change factor column 0 alone, .* lower 'repeats'"):
        linearity(NOISY, factors)


@pytest.mark.parametrize(("option", "low"), [("repeats", 1), ("pairs", 2)])
def test_rejects_too_small_a_parameter(option: str, low: int) -> None:
    with pytest.raises(UserError, match=f"The '{option}' parameter must be >= {low}. Got {low - 1} instead."):
        linearity(NOISY, GRID, **{option: low - 1})


@pytest.mark.parametrize("name", ["linearity", "flatness", "omes", "z_max_var", "fairness", "d_lsbd"])
def test_metrics_of_complete_rows_say_so_if_there_are_none(name: str) -> None:
    factors = np.tile([[0, np.nan], [1, np.nan], [np.nan, 0], [np.nan, 1]], (30, 1))
    with pytest.raises(UserError, match=r"At least 2 rows must have a label for every factor. Got 0 instead."):
        METRICS[name](NOISY, factors)


def test_a_factor_must_vary_in_the_complete_rows() -> None:
    factors = GRID.astype(float)
    factors[GRID[:, 0] > 0, 1] = np.nan
    with pytest.raises(UserError, match="Every factor must take at least 2 values"):
        linearity(NOISY, factors)
