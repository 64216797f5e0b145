"""Groups of rows that have the same value of a factor. Sampling from one group is an intervention on the factor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from unbraid.metrics.arrays import input_error

CHUNK = 1024  # number of interventions whose rows are in memory at once, which is 1 MB for 64 rows each


class ValueGroups(NamedTuple):
    """Rows sorted by the value of one factor. The rows ``order[start[i]:stop[i]]`` have the same value as row i."""

    order: Int[np.ndarray, " n"]
    start: Int[np.ndarray, " n"]
    stop: Int[np.ndarray, " n"]
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


def group_rows(column: Int[np.ndarray, " n"], j: int) -> ValueGroups:
    """Group the rows of factor column j by their value.

    Raises:
        UserError: If fewer than half of the rows have a value that occurs in another row. The score would then describe
            only those few rows.

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
    drawable = np.flatnonzero(stop - start > 1)
    if 2 * len(drawable) < len(column):
        rule = "To fix a factor, at least half of the rows must share their value of it with another row."
        got = f"{len(drawable)} of {len(column)} rows, with {np.sum(sizes > 1)} of {len(sizes)} values,"
        raise input_error(rule, f"{got} in factor column {j}", "Pass the whole table, or drop that factor.")
    return ValueGroups(order, start, stop, drawable)


def interventions_by_factor(
    factors: Int[np.ndarray, "n k"], fixed: Int[np.ndarray, " m"]
) -> Iterator[tuple[ValueGroups, Int[np.ndarray, " c"]]]:
    """Yield the groups of each factor together with the indices of the interventions that fix it, in chunks.

    `fixed` holds the factor that each of the m interventions fixes.
    """
    for j, column in enumerate(factors.T):
        groups, indices = group_rows(column, j), np.flatnonzero(fixed == j)
        for i in range(0, len(indices), CHUNK):
            yield groups, indices[i : i + CHUNK]
