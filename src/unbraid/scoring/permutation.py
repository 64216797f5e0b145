"""Permutation tests for a difference between the means of two groups of scores, with or without pairs."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
MAX_ASSIGNMENTS = 20_000  # maximum number of assignments of runs to two groups in `compare_many_scores`
BLOCK = 500  # assignments that are in memory at the same time
ROUNDING = 1e-9  # differences of means that are equal up to this fraction of the largest value count as equal
RANDOM_SPLITS = 9_999  # number of random splits in `stratified_p_value`, and in `p_value` if more are possible


def all_subsets(count: int, n: int) -> Array:
    """Return all subsets of n of the numbers 0 to count - 1, one per row, in lexicographic order.

    >>> all_subsets(3, 2).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    return np.array(list(itertools.combinations(range(count), n)))


def assignment_weights(a: int, b: int, rng: np.random.Generator) -> Iterator[Array]:
    """Yield assignments of a + b runs to groups of a and b runs, as blocks of weights (assignments, a + b).

    The product of a row and the scores of all runs is the mean of the second group minus the mean of the first. The
    first row is the observed assignment. If there are at most `MAX_ASSIGNMENTS` assignments, all are yielded.
    Otherwise there are `MAX_ASSIGNMENTS` rows, and all rows but the first are random.
    """
    count = a + b
    if math.comb(count, a) <= MAX_ASSIGNMENTS:
        yield _group_weights(all_subsets(count, a), count)
        return
    yield _group_weights(np.arange(a)[None], count)
    for start in range(1, MAX_ASSIGNMENTS, BLOCK):
        rows = min(BLOCK, MAX_ASSIGNMENTS - start)
        yield _group_weights(rng.permuted(np.tile(np.arange(count), (rows, 1)), axis=1)[:, :a], count)


def _group_weights(first_groups: Array, count: int) -> Array:
    """Return the weights of `count` runs for assignments, given as the indices of the runs in the first group."""
    a = first_groups.shape[1]
    weights = np.full((len(first_groups), count), 1 / (count - a))
    np.put_along_axis(weights, first_groups, -1 / a, axis=1)
    return weights


def compare_many_scores(first: Array, second: Array, seed: int = 0) -> tuple[Array, Array, Array]:
    r"""Test whether the means of m scores differ between two groups of runs.

    .. math:: p_j = P_\pi(|d_j^\pi| \ge |d_j|), \quad
        p_j^{all} = P_\pi(\max_k |d_k^\pi| / s_k \ge |d_j| / s_j)

    :math:`\pi` is a random assignment of the runs to the two groups, and :math:`P_\pi` is the probability over such
    assignments. :math:`d_j` is the observed difference of the means of score j, :math:`d_j^\pi` is this difference
    under the assignment :math:`\pi`, and :math:`s_k` is the root mean square of :math:`d_k^\pi`. The second p-value
    controls the probability of any false positive among the m scores, even if the scores depend on each other. Both
    p-values are two-sided.

    Reference: Westfall & Young (1993), "Resampling-based multiple testing".

    Args:
        first: Scores of the first group, (runs, m).
        second: Scores of the second group, (runs, m).
        seed: Random seed for the assignments.

    Returns:
        Three arrays of shape (m,): the differences of the means (second minus first), the p-value of each score alone,
        and the p-value of each score corrected for all m scores.
    """
    values = np.concatenate([first, second])
    values = values - values.mean(0)  # so that rounding errors are small compared with the differences
    blocks = assignment_weights(len(first), len(second), np.random.default_rng(seed))
    gaps = np.abs(np.concatenate([weights @ values for weights in blocks]))
    return second.mean(0) - first.mean(0), *_p_values(gaps)


def compare_paired_scores(differences: Array, seed: int = 0) -> tuple[Array, Array, Array]:
    r"""Test whether the means of m scores differ between two groups whose runs form n pairs.

    The p-values are those of `compare_many_scores`, but :math:`d^\pi` is the mean of the differences of the pairs, each
    with a random sign. Without an effect, exchanging the two runs of a pair changes nothing but this sign. If there are
    at most `MAX_ASSIGNMENTS` combinations of signs, all are used. Otherwise there are `MAX_ASSIGNMENTS` combinations,
    of which all but the observed one are random.

    Reference: Fisher (1935), "The Design of Experiments", chapter 3.

    Args:
        differences: For each pair, the scores of the second run minus those of the first, (n, m).
        seed: Random seed for the signs.

    Returns:
        Three arrays of shape (m,): the mean differences, the p-value of each score alone, and the p-value of each score
        corrected for all m scores.

    >>> d, alone, among = compare_paired_scores(np.array([[1.0], [2.0], [3.0]]))
    >>> float(d[0]), float(alone[0])  # all signs equal: 2 of 8
    (2.0, 0.25)
    """
    gaps = np.abs(_signs(len(differences), np.random.default_rng(seed)) @ differences) / len(differences)
    return differences.mean(0), *_p_values(gaps)


def count_assignments(first: int, second: int, paired: bool) -> int:
    """Return how many assignments a test of two groups of these sizes uses.

    If the test is paired, `first` is the number of pairs, and `second` is ignored.
    """
    return min(2**first if paired else math.comb(first + second, first), MAX_ASSIGNMENTS)


def _signs(n: int, rng: np.random.Generator) -> Array:
    """Return combinations of n signs, (combinations, n). The signs of the first combination are all positive."""
    if 2**n <= MAX_ASSIGNMENTS:
        return np.array(list(itertools.product((1.0, -1.0), repeat=n)))
    return np.concatenate([np.ones((1, n)), rng.choice((-1.0, 1.0), size=(MAX_ASSIGNMENTS - 1, n))])


def _p_values(gaps: Array) -> tuple[Array, Array]:
    """Return the p-value of each score alone, and corrected for all scores.

    `gaps` are absolute differences of means, (assignments, m). The first row belongs to the observed assignment.
    """
    scale = np.sqrt((gaps**2).mean(0))
    gaps = gaps / np.where(scale > 1e-12, scale, np.inf)  # a smaller scale is only rounding error
    observed = gaps[0] - 1e-9  # treat differences that are equal up to rounding as equal
    alone = (gaps >= observed).mean(0)
    among = (gaps.max(1)[:, None] >= observed).mean(0)
    return alone, among


def p_value(first: Array, second: Array, seed: int = 0) -> float:
    """Return the two-sided p-value of the difference between the means of two groups of values.

    The p-value is the fraction of all splits of the values into groups of these sizes in which the means differ at
    least as much as observed. If there are more than 9,999 splits, 9,999 random ones and the observed one are used.

    Args:
        first: Values of the first group, (n,).
        second: Values of the second group, (m,).
        seed: Random seed for the splits.

    Returns:
        The p-value, or NaN if a group is empty.

    >>> p_value(np.array([4.0, 5.0, 6.0]), np.array([1.0, 2.0, 3.0]))  # 2 of 20
    0.1
    """
    n, values = len(first), np.concatenate([np.sort(first), np.sort(second)])
    if not 0 < n < len(values):
        return math.nan
    values = values - values.mean()
    sums = values[_first_groups(len(values), n, seed)].sum(1)
    gaps = np.abs(sums / n - (values.sum() - sums) / len(second))
    extreme = gaps >= abs(values[:n].mean() - values[n:].mean()) - ROUNDING * np.abs(values).max()
    exhaustive = math.comb(len(values), n) == len(gaps)
    return float(extreme.mean() if exhaustive else (1 + extreme.sum()) / (1 + len(extreme)))


@functools.lru_cache(maxsize=16)
def _first_groups(count: int, n: int, seed: int) -> Array:
    """Return splits of `count` values as the indices of the n values in the first group, (splits, n)."""
    if math.comb(count, n) <= RANDOM_SPLITS:
        return all_subsets(count, n)
    return np.random.default_rng(seed).random((RANDOM_SPLITS, count)).argsort(axis=1)[:, :n]


def stratified_p_value(pairs: Sequence[tuple[Array, Array]], seed: int = 0) -> float:
    """Return the two-sided p-value of a difference of means that is summed over several pairs of groups.

    The pairs may differ in another setting, such as the learning rate. Values are permuted only within their pair, with
    `RANDOM_SPLITS` random permutations.

    Args:
        pairs: Pairs of groups of values.
        seed: Random seed for the splits.

    Returns:
        The p-value, or NaN if there are no pairs or a group is empty.

    >>> low, high = np.arange(6.0), np.arange(6.0) + 2
    >>> stratified_p_value([(low, high)]) > stratified_p_value([(low, high), (low + 50, high + 50)])
    True
    """
    if not pairs or not all(len(first) and len(second) for first, second in pairs):
        return math.nan
    rng, sums, observed, scale = np.random.default_rng(seed), np.zeros(RANDOM_SPLITS), 0.0, 0.0
    for first, second in pairs:
        n, values = len(first), np.concatenate([np.sort(first), np.sort(second)])
        values = values - values.mean()
        shuffled = values[rng.random((RANDOM_SPLITS, len(values))).argsort(axis=1)]
        sums += shuffled[:, :n].mean(1) - shuffled[:, n:].mean(1)
        observed += values[:n].mean() - values[n:].mean()
        scale = max(scale, np.abs(values).max())
    return float((1 + (np.abs(sums) >= abs(observed) - ROUNDING * scale).sum()) / (1 + RANDOM_SPLITS))
