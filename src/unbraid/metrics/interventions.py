"""Rows of a table that share a factor's value: what holding the factor fixed means where codes are already computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from unbraid.metrics.arrays import refusal

CHUNK = 1024  # interventions whose rows are in memory at once: 1 MB for 64 rows each


class Groups(NamedTuple):
    """Rows in order of one factor's value: rows ``order[start[i]:stop[i]]`` share it with row i."""

    order: Int[np.ndarray, " n"]
    start: Int[np.ndarray, " n"]
    stop: Int[np.ndarray, " n"]
    drawable: Int[np.ndarray, " m"]  # rows that share it with another row at least

    def settled(self, rows: Int[np.ndarray, " m"], rng: np.random.Generator) -> Int[np.ndarray, " m"]:
        """Random rows, those whose value no other row has being replaced by other random rows."""
        alone = self.stop[rows] - self.start[rows] < 2
        if not alone.any():
            return rows
        again = self.drawable[rng.integers(len(self.drawable), size=int(alone.sum()))]
        settled = rows.copy()
        settled[alone] = again
        return settled

    def mates(self, rows: Int[np.ndarray, " m"], count: int, rng: np.random.Generator) -> Int[np.ndarray, "m count"]:
        """For each row `count` random rows, with replacement, that share its value."""
        start, stop = self.start[rows][:, None], self.stop[rows][:, None]
        return np.asarray(self.order[rng.integers(start, stop, size=(len(rows), count))])


def grouped(column: Int[np.ndarray, " n"], j: int) -> Groups:
    """The groups of factor column j.

    Refused where fewer than half of the rows share their value with another row: the score would be about those few.

    >>> grouped(np.array([1, 0, 1, 7, 1]), 0).drawable.tolist()
    [0, 2, 4]
    """
    low, high = int(column.min()), int(column.max())
    short = (column - low).astype(np.uint16) if high - low < 2**16 else column  # 16-bit keys sort many times faster
    order = np.argsort(short, kind="stable")
    ordered = column[order]
    edges = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(edges, append=len(ordered))
    start, stop = np.empty_like(order), np.empty_like(order)
    start[order], stop[order] = np.repeat(edges, sizes), np.repeat(edges + sizes, sizes)
    drawable = np.flatnonzero(stop - start > 1)
    if 2 * len(drawable) < len(column):
        rule = "At least half of the rows must share a factor's value with another row, for it to be held fixed."
        got = f"{len(drawable)} of {len(column)} rows, with {np.sum(sizes > 1)} of {len(sizes)} values,"
        raise refusal(rule, f"{got} in factor column {j}", "Pass the whole table, or drop that factor.")
    return Groups(order, start, stop, drawable)


def fixed_factors(
    factors: Int[np.ndarray, "n k"], fixed: Int[np.ndarray, " m"]
) -> Iterator[tuple[Groups, Int[np.ndarray, " c"]]]:
    """The groups of every factor, each with the numbers of the interventions that hold it fixed, a chunk at a time."""
    for j, column in enumerate(factors.T):
        groups, mine = grouped(column, j), np.flatnonzero(fixed == j)
        for i in range(0, len(mine), CHUNK):
            yield groups, mine[i : i + CHUNK]
