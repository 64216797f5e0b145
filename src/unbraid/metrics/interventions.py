"""Groups of rows that have the same value of a factor. Sampling from one group is an intervention on the factor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from unbraid.errors import UserError, unknown_name_message
from unbraid.metrics.arrays import input_error
from unbraid.metrics.labels import MISSING

DRAWS = ("disjoint", "reference")
CHUNK = 1024  # number of interventions whose row numbers are in memory at the same time (0.5 MB for 64 rows each)


class ValueGroups(NamedTuple):
    """Rows sorted by the value of one factor. The rows ``order[start[i]:stop[i]]`` have the same value as row i.

    For a row whose label is missing, this range is empty.
    """

    order: Int[np.ndarray, " n"]
    start: Int[np.ndarray, " n"]
    stop: Int[np.ndarray, " n"]
    place: Int[np.ndarray, " n"]  # the position of each row in `order`
    drawable: Int[np.ndarray, " m"]  # rows whose value occurs in at least one other row

    def replace_unshared(self, rows: Int[np.ndarray, " m"], rng: np.random.Generator) -> Int[np.ndarray, " m"]:
        """Return the rows, after replacing each row whose value occurs in no other row by a random drawable row."""
        unshared = self.stop[rows] - self.start[rows] < 2
        if not unshared.any():
            return rows
        replaced = rows.copy()
        replaced[unshared] = self.drawable[rng.integers(len(self.drawable), size=int(unshared.sum()))]
        return replaced

    def draw_from_same_group(
        self, rows: Int[np.ndarray, " m"], count: int, rng: np.random.Generator
    ) -> Int[np.ndarray, "m count"]:
        """Draw, for each row, `count` random rows with the same value, with replacement."""
        start, stop = self.start[rows][:, None], self.stop[rows][:, None]
        return np.asarray(self.order[rng.integers(start, stop, size=(len(rows), count))])

    def draw_other_row(self, rows: Int[np.ndarray, " m"], rng: np.random.Generator) -> Int[np.ndarray, " m"]:
        """Draw, for each row, a random different row with the same value."""
        start, size = self.start[rows], self.stop[rows] - self.start[rows]
        shifted = self.place[rows] - start + rng.integers(1, size)
        return np.asarray(self.order[start + shifted % size])


def group_rows(column: Int[np.ndarray, " n"], j: int, least: float = 0.5) -> ValueGroups:
    """Group the rows of factor column j by their value. Rows with a missing label are in no group.

    Raises:
        UserError: If fewer than the fraction `least` of the labelled rows, or no rows at all, share their value with
            another row. A score would then describe few of the rows.

    Example:
        >>> group_rows(np.array([1, 0, 1, 7, 1]), 0).drawable.tolist()
        [0, 2, 4]
    """
    low, high = int(column.min()), int(column.max())
    # 16-bit keys are sorted many times faster than 64-bit ones.
    keys = (column - low).astype(np.uint16) if high - low < 2**16 else column
    order = np.argsort(keys, kind="stable")
    ordered = column[order]
    edges = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(edges, append=len(ordered))
    start, stop = np.empty_like(order), np.empty_like(order)
    start[order], stop[order] = np.repeat(edges, sizes), np.repeat(edges + sizes, sizes)
    missing = column == MISSING
    start[missing] = stop[missing] = 0
    drawable, place = np.flatnonzero(stop - start > 1), np.empty_like(order)
    place[order] = np.arange(len(order))
    labelled = len(column) - int(missing.sum())
    if len(drawable) < max(1, least * labelled):
        rule = "To fix a factor, at least half of the rows must share their value of it with another row."
        got = f"{len(drawable)} of {labelled} rows, with {np.sum(sizes > 1)} of {len(sizes)} values,"
        raise input_error(rule, f"{got} in factor column {j}", "Pass the whole table, or drop that factor.")
    return ValueGroups(order, start, stop, place, drawable)


def split_rows(
    factors: Int[np.ndarray, "n k"], rng: np.random.Generator
) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]:
    """Divide the rows at random into two disjoint halves, one for training and one for evaluation.

    Within each value of the factor with the most values, the first two rows of a random order go to one half, the next
    two to the other half, and so on. If a value of this factor has at least 4 rows, each half therefore contains at
    least 2 of them.

    Raises:
        UserError: If there is a factor for which fewer than half of the rows share their value with another row.

    Example:
        >>> train, test = split_rows(np.repeat([[0], [1]], 4, axis=0), np.random.default_rng(0))
        >>> len(train), len(test), set(train) & set(test)
        (4, 4, set())
    """
    for j, column in enumerate(factors.T):
        group_rows(column, j)
    widest = factors[:, max(range(factors.shape[1]), key=lambda j: len(np.unique(factors[:, j])))]
    order = rng.permutation(len(factors))
    order = order[np.argsort(widest[order], kind="stable")]
    is_first = np.append(True, widest[order][1:] != widest[order][:-1])
    group = np.cumsum(is_first) - 1
    position = np.arange(len(order)) - np.flatnonzero(is_first)[group]
    half = (position // 2 + group) % 2
    return np.sort(order[half == 0]), np.sort(order[half == 1])


def check_draws(draws: str) -> None:
    """Raise a `UserError` if `draws` is neither "disjoint" nor "reference"."""
    if draws not in DRAWS:
        raise UserError(unknown_name_message("way to draw rows", draws, DRAWS))


def interventions_by_factor(
    factors: Int[np.ndarray, "n k"], fixed: Int[np.ndarray, " m"], least: float = 0.5
) -> Iterator[tuple[ValueGroups, Int[np.ndarray, " c"]]]:
    """Yield pairs: the groups of one factor, and the indices of at most 1,024 interventions that fix this factor.

    `fixed` holds the factor that each of the m interventions fixes. `least` is passed to `group_rows`.
    """
    for j, column in enumerate(factors.T):
        groups, indices = group_rows(column, j, least), np.flatnonzero(fixed == j)
        for i in range(0, len(indices), CHUNK):
            yield groups, indices[i : i + CHUNK]
