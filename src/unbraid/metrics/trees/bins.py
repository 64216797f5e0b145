"""Data structures that the compiled loops read and write: binned columns of codes, and trees."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, UInt32

Array = np.ndarray[Any, np.dtype[Any]]
RESOLUTION = np.float32(1e-7)  # as in scikit-learn, no cut separates values whose difference is at most this


class Columns(NamedTuple):
    """Columns of codes, sorted and binned. A bin is a range of sorted rows that ends where a tree may cut."""

    x: Float32[np.ndarray, "d n"]
    order: UInt32[np.ndarray, "d n"]  # the row numbers, sorted by each column
    values: Float32[np.ndarray, "d n"]  # the sorted values of each column
    bin_index: UInt32[np.ndarray, "n d"]  # the bin of each value; bins are numbered across all columns
    offset: Int32[np.ndarray, " d+1"]  # the first bin of each column
    start: Int32[np.ndarray, " bins+d"]  # bin b of column f is order[f, start[b + f] : start[b + f + 1]]
    divisible: Bool[np.ndarray, " bins"]  # whether a bin holds several values, so a cut inside it is possible


class Trees(NamedTuple):
    """All trees of a fit, indexed by stage and class."""

    feature: Array  # (stages, k, 7): the column that each inner node compares
    threshold: Array  # (stages, k, 7): rows with a larger value go right. Infinite if the node is not cut.
    value: Array  # (stages, k, 8): the value that each leaf adds to the score of the class
    importance: Array  # (stages, k, d): reduction of the squared error by cuts in each column


def number_of_bins(n: int) -> int:
    """Return the number of bins per column.

    It is near sqrt(n), because scanning all bins then costs about as much as scanning the rows of one bin.

    >>> [number_of_bins(n) for n in (2, 100, 1_000, 10_000, 1_000_000)]
    [8, 13, 41, 130, 256]
    """
    return int(np.clip(np.round(1.3 * np.sqrt(n)), 8, 256))


def as_columns(codes: Float32[np.ndarray, "n d"], bins: int) -> Columns:
    """Sort each column, and divide it at quantiles into at most `bins` bins.

    >>> columns = as_columns(np.array([[3.0], [1.0], [1.0], [2.0]], np.float32), 2)
    >>> columns.bin_index.tolist(), columns.start.tolist(), columns.divisible.tolist()
    ([[1], [0], [0], [1]], [0, 2, 4], [False, True])
    """
    x = np.ascontiguousarray(codes.T)
    order = np.argsort(x, axis=1, kind="stable").astype(np.uint32)
    values = np.take_along_axis(x, order, axis=1)
    cuts = [_bin_starts(column, bins) for column in values]
    offset = np.cumsum([0, *map(len, cuts)]).astype(np.int32)
    n, bin_index = len(codes), np.empty(codes.shape, np.uint32)
    for f, begin in enumerate(cuts):
        bin_index[order[f], f] = np.repeat(np.arange(offset[f], offset[f + 1]), np.diff(begin, append=n))
    start = np.concatenate([np.append(begin, n) for begin in cuts]).astype(np.int32)
    divisible = [
        column[begin] < column[np.append(begin[1:], n) - 1] for column, begin in zip(values, cuts, strict=True)
    ]
    return Columns(x, order, values, bin_index, offset, start, np.concatenate(divisible))


def _bin_starts(values: Float32[np.ndarray, " n"], bins: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the indices among sorted values at which bins begin.

    Bins begin wherever a tree may cut, or near quantiles if there are more such positions than `bins`.
    """
    n = len(values)
    cuts = np.flatnonzero(np.append(True, values[1:] > values[:-1] + RESOLUTION))
    if len(cuts) <= bins:
        return cuts
    return np.unique(cuts[np.searchsorted(cuts, np.arange(bins) * n / bins, side="right") - 1])
