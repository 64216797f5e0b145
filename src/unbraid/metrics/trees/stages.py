"""Compiled loops that fit all stages of boosted trees and predict scores. Classes are processed in parallel threads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from unbraid.metrics.trees.bins import Columns, Trees
from unbraid.metrics.trees.cuts import Number
from unbraid.metrics.trees.growth import INNER, Workspace, grow_tree
from unbraid.metrics.trees.residuals import (
    add_to_histogram,
    pack_residuals,
    softmax_residuals,
)
from unbraid.runtime.jit import kernel
from unbraid.runtime.vectors import LANES, aligned, round_up

Array = np.ndarray[Any, np.dtype[Any]]
BLOCK = 256  # number of rows per block; their scores of all classes fit into the cache
HISTOGRAM_BLOCK = 1024  # number of rows that are added to the histogram of one column before the next column


class State(NamedTuple):
    """Scores of the training rows and their residuals, with one row per class.

    The number m of columns is the number n of training rows, padded to a multiple of LANES.

    Attributes:
        raw: Scores, of shape (k, m).
        residual: Residuals, of shape (k, m).
        packed: Counts and fixed-point residuals packed into int64, of shape (k, m).
        scale: For each class, the number by which residuals are multiplied to become fixed-point numbers.
        shift: Number of bits that hold the fixed-point residual.
    """

    raw: Array
    residual: Array
    packed: Array
    scale: Array
    shift: Number


@kernel()
def split_root(hist: Array, root: Array, packed: Array, members: Array, bin_index: Array) -> None:
    """Split the root histogram of one class into a histogram of the rows of the class and one of all other rows."""
    hist[1] = 0
    for i in members:
        for f in range(bin_index.shape[1]):
            hist[1, bin_index[i, f]] += packed[i]
    for b in range(len(root)):
        hist[0, b] = root[b] - hist[1, b]


@kernel()
def root_histograms(t: Number, threads: Number, columns: Columns, by_row: Array, root: Array) -> None:
    """Fill the histograms of all rows over the bins of columns t, t + threads, ..., for all classes at once.

    The columns take turns in each block of rows, so that its residuals stay in the cache.
    """
    n, d = columns.bin_index.shape
    for f in range(t, d, threads):
        root[columns.offset[f] : columns.offset[f + 1]] = 0
    for a in range(0, n, HISTOGRAM_BLOCK):
        for f in range(t, d, threads):
            add_to_histogram(f, columns.bin_index, by_row, a, min(n, a + HISTOGRAM_BLOCK), root)


@kernel()
def grow_class_tree(
    c: Number, stage: Number, state: State, columns: Columns, space: Workspace, root: Array, own: Array, rate: Number,
    seed: Number, trees: Trees,
) -> None:  # fmt: skip
    """Grow the tree of class c in one stage, and add its leaf values to the scores of the training rows."""
    feature, threshold = trees.feature[stage, c], trees.threshold[stage, c]
    value, importance = trees.value[stage, c], trees.importance[stage, c]
    space.perm[:] = np.arange(len(space.perm))
    split_root(space.hist[0], root[:, c], state.packed[c], own, columns.bin_index)
    seed = seed + np.uint64(stage * len(state.raw) + c) * np.uint64(0xD1342543DE82EF95)
    grow_tree(state.residual[c], state.packed[c], state.shift, state.scale[c], columns, space, seed,
         feature, threshold, value, importance)  # fmt: skip
    value *= rate
    raw = state.raw[c]
    for i in range(len(space.where)):
        raw[i] += value[space.where[i] - INNER]


@kernel(parallel=True)
def fit_stages(
    columns: Columns, y: Array, members: Array, first: Array, raw: Array, rate: Number, seed: Number, threads: Number,
    trees: Trees,
) -> None:  # fmt: skip
    """Grow the trees of all stages, and update the scores `raw` (k, n) of the training rows.

    The rows of class c are ``members[first[c] : first[c + 1]]``.
    """
    (k, n), (d, _), bins = raw.shape, columns.x.shape, len(columns.divisible)
    blocks, first_class, m, width = (n + BLOCK - 1) // BLOCK, 1 if k == 2 else 0, round_up(n, LANES), round_up(k, LANES)
    scores, residual, packed = (
        aligned(k * m, 0.0).reshape(k, m),
        aligned(k * m, 0.0).reshape(k, m),
        aligned(k * m, 0).reshape(k, m),
    )
    by_row, root = aligned(n * width, 0).reshape(n, width), aligned(bins * width, 0).reshape(bins, width)
    sizes, scale = np.empty((blocks, k, LANES)), np.empty(k)
    hist, where = np.empty((threads, INNER, 2, bins), np.int64), np.empty((threads, n), np.uint8)
    rows, spare = np.empty((threads, n), np.uint32), np.empty((threads, n), np.uint32)
    perm = np.empty((threads, d), np.int32)
    left, to_search = np.empty((threads, bins), np.int64), np.empty((threads, bins), np.bool_)
    sums = np.empty((threads, n), np.int64)
    shift = 62 - int(np.ceil(np.log2(n + 1)))
    scores[:, :n] = raw
    for stage in range(len(trees.value)):
        for block in prange(blocks):
            a, z = block * BLOCK, min(n, (block + 1) * BLOCK)
            softmax_residuals(scores, y, a, z, residual, sizes[block])
        for c in range(k):
            scale[c] = 2.0 ** min(np.floor(shift - 2 - np.log2(sizes[:, c].sum() + 1e-300)), 300.0)
        for block in prange(blocks):
            a, z = block * BLOCK, min(n, (block + 1) * BLOCK)
            pack_residuals(residual, a, z, scale, shift, packed, by_row)
        for t in prange(threads):
            root_histograms(t, threads, columns, by_row, root)
        for t in prange(threads):
            space = Workspace(hist[t], rows[t], spare[t], where[t], perm[t], left[t], to_search[t], sums[t])
            state = State(scores, residual, packed, scale, shift)
            for c in range(first_class + t, k, threads):
                grow_class_tree(
                    c, stage, state, columns, space, root, members[first[c] : first[c + 1]], rate, seed, trees
                )
    raw[:] = scores[:, :n]


@kernel(parallel=True)
def add_forest(x: Array, feature: Array, bound: Array, value: Array, raw: Array) -> None:
    """Add the leaf values of all trees to the scores `raw` (k, n) of the rows x (d, n)."""
    for c in prange(raw.shape[0]):
        for stage in range(len(value)):
            add_tree(x, feature[stage, c], bound[stage, c], value[stage, c], raw[c])


@kernel()
def add_tree(x: Array, feature: Array, bound: Array, value: Array, raw: Array) -> None:
    """Add the leaf values of one tree to the scores of one class.

    Every row is compared with every node, because a loop that follows branches cannot be vectorised.
    """
    x0, x1, x2 = x[feature[0]], x[feature[1]], x[feature[2]]
    x3, x4, x5, x6 = x[feature[3]], x[feature[4]], x[feature[5]], x[feature[6]]
    c0, c1, c2, c3, c4, c5, c6 = bound[0], bound[1], bound[2], bound[3], bound[4], bound[5], bound[6]
    v0, v1, v2, v3, v4, v5, v6, v7 = value[0], value[1], value[2], value[3], value[4], value[5], value[6], value[7]
    for i in range(len(raw)):
        right, right_left, right_right = x0[i] > c0, x1[i] > c1, x2[i] > c2
        a = v1 if x3[i] > c3 else v0
        b = v3 if x4[i] > c4 else v2
        c = v5 if x5[i] > c5 else v4
        d = v7 if x6[i] > c6 else v6
        left = b if right_left else a
        other = d if right_right else c
        raw[i] += other if right else left
