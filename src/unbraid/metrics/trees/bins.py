"""What goes into the compiled loops, code columns in bins, and what comes out, trees; numpy only."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, UInt32

Array = np.ndarray[Any, np.dtype[Any]]
SAME = np.float32(1e-7)  # scikit-learn never cuts between values this close


class Columns(NamedTuple):
    """Columns in their own order and in bins; a bin is a run of sorted rows that ends where a tree may cut."""

    x: Float32[np.ndarray, "d n"]
    order: UInt32[np.ndarray, "d n"]  # the rows of each column, sorted
    values: Float32[np.ndarray, "d n"]  # the same, as values
    code: UInt32[np.ndarray, "n d"]  # the bin of each value, counted through all columns
    offset: Int32[np.ndarray, " d+1"]  # the first bin of each column
    start: Int32[np.ndarray, " bins+d"]  # where bin b of column f begins in `order`: start[b + f]; one more ends f
    wide: Bool[np.ndarray, " bins"]  # bins of more than one value: there may be a cut inside


class Trees(NamedTuple):
    """All trees of a fit, by stage and class."""

    feature: Array  # (stages, k, 7): the column each inner node looks at
    threshold: Array  # (stages, k, 7): rows above it go right; infinite where a node is not cut
    value: Array  # (stages, k, 8): what each leaf adds to the score of the class
    importance: Array  # (stages, k, d): squared error taken away by cuts of each column


def bins_for(n: int) -> int:
    """How many bins a column gets: near sqrt(n), where going through bins costs what going through one bin's rows does.

    >>> [bins_for(n) for n in (2, 100, 1_000, 10_000, 1_000_000)]
    [8, 13, 41, 130, 256]
    """
    return int(np.clip(np.round(1.3 * np.sqrt(n)), 8, 256))


def as_columns(codes: Float32[np.ndarray, "n d"], bins: int) -> Columns:
    """Cut every column at quantiles into at most `bins` bins.

    >>> columns = as_columns(np.array([[3.0], [1.0], [1.0], [2.0]], np.float32), 2)
    >>> columns.code.tolist(), columns.start.tolist(), columns.wide.tolist()
    ([[1], [0], [0], [1]], [0, 2, 4], [False, True])
    """
    x = np.ascontiguousarray(codes.T)
    order = np.argsort(x, axis=1, kind="stable").astype(np.uint32)
    values = np.take_along_axis(x, order, axis=1)
    cuts = [_starts(column, bins) for column in values]
    offset = np.cumsum([0, *map(len, cuts)]).astype(np.int32)
    n, code = len(codes), np.empty(codes.shape, np.uint32)
    for f, begin in enumerate(cuts):
        code[order[f], f] = np.repeat(np.arange(offset[f], offset[f + 1]), np.diff(begin, append=n))
    start = np.concatenate([np.append(begin, n) for begin in cuts]).astype(np.int32)
    wide = [column[begin] < column[np.append(begin[1:], n) - 1] for column, begin in zip(values, cuts, strict=True)]
    return Columns(x, order, values, code, offset, start, np.concatenate(wide))


def _starts(values: Float32[np.ndarray, " n"], bins: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where bins begin among sorted values: places where a tree may cut, near the quantiles if there are too many."""
    n = len(values)
    cuts = np.flatnonzero(np.append(True, values[1:] > values[:-1] + SAME))
    if len(cuts) <= bins:
        return cuts
    return np.unique(cuts[np.searchsorted(cuts, np.arange(bins) * n / bins, side="right") - 1])
