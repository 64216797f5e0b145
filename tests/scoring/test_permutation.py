"""Permutation tests: enumeration by hand, agreement with scipy, and the rate of false positives."""

from __future__ import annotations

import math
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from scipy import stats

from unbraid.scoring.permutation import (
    MAX_ASSIGNMENTS,
    assignment_weights,
    compare_many_scores,
    compare_paired_scores,
    p_value,
    stratified_p_value,
)


def p_values_over_all_orders(first: Any, second: Any) -> tuple[list[float], list[float]]:
    """Both p-values, computed from every order of the runs."""
    values, n = np.concatenate([first, second]), len(first)
    every = [abs(values[list(o[n:])].mean(0) - values[list(o[:n])].mean(0)) for o in permutations(range(len(values)))]
    scale = np.sqrt(np.mean(np.square(every), 0))
    observed = abs(second.mean(0) - first.mean(0)) / scale
    alone = [float(np.mean([d[j] / scale[j] >= observed[j] - 1e-9 for d in every])) for j in range(len(observed))]
    among = [float(np.mean([max(d / scale) >= observed[j] - 1e-9 for d in every])) for j in range(len(observed))]
    return alone, among


@pytest.mark.parametrize("sizes", [(3, 3), (2, 4), (4, 3)])
def test_p_values_equal_those_over_all_orders(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(sizes[0], 3)), rng.normal([0, 1, 4], size=(sizes[1], 3))
    difference, alone, among = compare_many_scores(first, second)
    np.testing.assert_allclose(difference, second.mean(0) - first.mean(0))
    np.testing.assert_allclose([alone, among], p_values_over_all_orders(first, second))
    assert (alone <= among).all()


def test_groups_that_do_not_overlap_have_the_smallest_p_value() -> None:
    low, high = np.arange(5.0)[:, None], 10 + np.arange(5.0)[:, None]
    _, alone, among = compare_many_scores(low, high)
    assert alone[0] == among[0] == pytest.approx(2 / math.comb(10, 5))
    _, same, _ = compare_many_scores(low, low)
    assert same[0] == 1
    constant = np.ones((4, 1))
    assert compare_many_scores(constant, constant)[1][0] == 1


@pytest.mark.parametrize(("scale", "offset"), [(1e6, 0.0), (1.0, 1e5), (1e-6, 1.0)])
def test_p_values_do_not_depend_on_the_unit_of_scores(scale: float, offset: float) -> None:
    first, second = np.array([4.1, 5.3, 6.7]), np.array([1.2, 2.9, 3.3])
    scaled = first * scale + offset, second * scale + offset
    assert p_value(*scaled) == 2 / 20
    assert stratified_p_value([scaled]) == stratified_p_value([(first, second)])
    constant = np.full((3, 1), 123456.7)
    groups = [np.hstack([constant, part[:, None]]) for part in scaled]
    _, alone, among = compare_many_scores(*groups)
    assert alone.tolist() == among.tolist() == [1, 2 / 20]


def test_rate_of_false_positives() -> None:
    """For one score, and for any of six dependent scores, over 300 comparisons without a difference."""
    rng = np.random.default_rng(0)
    any_of_six = one = 0
    for _ in range(300):
        scores = rng.normal(size=(10, 6)) + rng.normal(size=(10, 1))
        _, alone, among = compare_many_scores(scores[:5], scores[5:])
        one += alone[0] < 0.05
        any_of_six += (among < 0.05).any()
    assert one / 300 < 0.09  # 5 % plus three standard deviations
    assert any_of_six / 300 < 0.09


def test_many_runs_are_assigned_at_random() -> None:
    weights = np.concatenate(list(assignment_weights(12, 12, np.random.default_rng(0))))
    assert len(weights) == MAX_ASSIGNMENTS
    np.testing.assert_allclose(weights[0], [-1 / 12] * 12 + [1 / 12] * 12)
    np.testing.assert_allclose(weights.sum(1), 0, atol=1e-12)
    (every,) = assignment_weights(4, 4, np.random.default_rng(0))
    assert len(every) == len(list(combinations(range(8), 4)))


def test_p_value_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    for n, shift in ((4, 0.0), (5, 1.0), (12, 0.8)):
        first, second = rng.normal(size=n), rng.normal(size=n + 1) + shift
        theirs = stats.permutation_test(
            (first, second), lambda a, b, axis: np.abs(a.mean(axis) - b.mean(axis)), vectorized=True,
            n_resamples=50_000, alternative="greater",
        )  # fmt: skip
        assert p_value(first, second) == pytest.approx(theirs.pvalue, abs=1e-9 if n < 6 else 0.01)
    assert math.isnan(p_value(np.array([]), np.array([1.0])))


def test_stratified_p_value() -> None:
    """One pair gives the plain p-value. With several pairs, differences between the pairs do not matter."""
    rng = np.random.default_rng(3)
    pairs = [(rng.normal(0.6, 1, 10), rng.normal(0, 1, n)) for n in (9, 12)]
    for first, second in pairs:
        assert stratified_p_value([(first, second)]) == pytest.approx(p_value(first, second), abs=0.02)
    moved = [pairs[0], (pairs[1][0] + 7, pairs[1][1] + 7)]
    assert stratified_p_value(moved) == pytest.approx(stratified_p_value(pairs), abs=1e-3)
    assert stratified_p_value([pairs[0], pairs[0][::-1]]) == 1
    assert p_value(*(np.concatenate(side) for side in zip(*moved, strict=True))) > stratified_p_value(moved)
    assert math.isnan(stratified_p_value([]))
    assert math.isnan(stratified_p_value([pairs[0], (np.array([]), np.array([1.0]))]))


@pytest.mark.parametrize("n", [3, 8])
def test_paired_p_values_equal_those_of_scipy(n: int) -> None:
    rng = np.random.default_rng(2)
    first = rng.normal(size=(n, 3))
    second = first + rng.normal([0, 1, 3], 1, size=(n, 3))
    difference, alone, among = compare_paired_scores(second - first)
    np.testing.assert_allclose(difference, (second - first).mean(0))
    for j in range(3):
        scipy_test = stats.permutation_test(
            (first[:, j], second[:, j]), lambda x, y: np.mean(y - x), permutation_type="samples", n_resamples=np.inf
        )
        assert alone[j] == pytest.approx(scipy_test.pvalue)
    assert (alone <= among).all()
    signs = np.array(np.meshgrid(*[[1, -1]] * n)).reshape(n, -1).T
    gaps = np.abs(signs @ (second - first)) / n
    scale = np.sqrt((gaps**2).mean(0))
    expected = [np.mean((gaps / scale).max(1) >= abs(difference[j]) / scale[j] - 1e-9) for j in range(3)]
    np.testing.assert_allclose(among, expected)


def test_paired_tests_of_many_pairs_are_random_and_find_small_differences() -> None:
    """With 40 pairs there are too many signs to try all. Seeds that matter hide a difference from an unpaired test."""
    rng = np.random.default_rng(3)
    first = rng.normal(0, 5, size=(40, 1))
    second = first + rng.normal(0.5, 0.5, size=(40, 1))
    assert compare_paired_scores(second - first)[1][0] == pytest.approx(1 / MAX_ASSIGNMENTS)
    assert compare_many_scores(first, second)[1][0] > 0.3


def test_paired_tests_have_the_nominal_rate_of_false_positives() -> None:
    rng = np.random.default_rng(4)
    p = [compare_paired_scores(rng.normal(size=(7, 2)))[1] for _ in range(500)]
    assert np.mean(np.array(p) <= 0.0625) == pytest.approx(0.0625, abs=0.025)
