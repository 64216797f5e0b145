"""Compiled loops that fit all stages of boosted trees and predict scores. Classes are processed in parallel threads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from unbraid.metrics.trees.bins import Columns, Trees
from unbraid.metrics.trees.cuts import Number
from unbraid.metrics.trees.growth import INNER, Workspace, grow_tree
from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]
BLOCK = 256  # number of rows per block; their scores of all classes fit into the cache
LOG2E, LN2_HIGH, LN2_LOW = float(1 / np.log(2)), 0.693147180369123816490, 1.90821492927058770002e-10
TAYLOR = tuple(float(1 / q) for q in np.cumprod(np.append(1.0, np.arange(1.0, 13)))[::-1])  # 1/12!, ..., 1/1!, 1/0!


class State(NamedTuple):
    """Scores of the training rows and their residuals, with one row per class.

    Attributes:
        raw: Scores, of shape (k, n).
        residual: Residuals, of shape (k, n).
        packed: Counts and fixed-point residuals packed into int64, of shape (k, n).
        scale: For each class, the number by which residuals are multiplied to become fixed-point numbers.
        shift: Number of bits that hold the fixed-point residual.
    """

    raw: Array
    residual: Array
    packed: Array
    scale: Array
    shift: Number


@kernel(fastmath={"reassoc", "nsz"})
def absolute_sum(residual: Array) -> Number:
    """Return the sum of absolute values. Additions may be reordered, because only the exponent of the sum is used."""
    total = 0.0
    for r in residual:
        total += abs(r)
    return total


@kernel()
def softmax_residuals(raw: Array, y: Array, a: Number, z: Number, out: Array, sizes: Array) -> None:
    """Write the residuals one-hot(y) - softmax(raw) of rows a to z - 1 to `out`, and their absolute sums to `sizes`.

    There is one sum per class. The exponential is computed by a Taylor series, with a relative error of 1e-15, so that
    the loop can be vectorised.
    """
    k, top, norm, power = len(raw), np.full(z - a, -np.inf), np.zeros(z - a), np.empty(z - a)
    bits = power.view(np.int64)
    for c in range(k):
        score = raw[c, a:z]
        for i in range(z - a):
            top[i] = max(top[i], score[i])
    for c in range(k):
        score, e = raw[c, a:z], out[c, a:z]
        for i in range(z - a):
            v = max(score[i] - top[i], -700.0)
            m = np.floor(v * LOG2E + 0.5)
            p, u = 0.0, (v - m * LN2_HIGH) - m * LN2_LOW
            for q in TAYLOR:
                p = p * u + q
            e[i] = p
            bits[i] = (np.int64(m) + 1023) << 52
        for i in range(z - a):
            e[i] *= power[i]
            norm[i] += e[i]
    for i in range(z - a):
        norm[i] = -1 / norm[i]
    for c in range(k):
        out[c, a:z] *= norm
    for i in range(a, z):
        out[y[i], i] += 1
    for c in range(k):
        sizes[c] = absolute_sum(out[c, a:z])


@kernel()
def pack_residuals(
    residual: Array, a: Number, z: Number, scale: Array, shift: Number, packed: Array, by_row: Array
) -> None:
    """Write one packed int64 per residual of rows a to z - 1 to `packed` (k, n), and transposed to `by_row` (n, k)."""
    one = np.int64(1) << shift
    for c in range(len(residual)):
        for i in range(a, z):
            packed[c, i] = one + np.int64(np.floor(residual[c, i] * scale[c] + 0.5))
    for i in range(a, z):
        for c in range(len(residual)):
            by_row[i, c] = packed[c, i]


@kernel()
def root_histogram(f: Number, columns: Columns, by_row: Array, root: Array) -> None:
    """Fill the histogram of all rows over the bins of column f, for all classes at once.

    Four rows are added at a time, because this reduces loads and stores.
    """
    k, order = by_row.shape[1], columns.order[f]
    for b in range(columns.offset[f], columns.offset[f + 1]):
        h, j, end = root[b], np.int64(columns.start[b + f]), np.int64(columns.start[b + f + 1])
        h[:] = 0
        while j + 4 <= end:
            v0, v1, v2, v3 = by_row[order[j]], by_row[order[j + 1]], by_row[order[j + 2]], by_row[order[j + 3]]
            for c in range(k):
                h[c] += (v0[c] + v1[c]) + (v2[c] + v3[c])
            j += 4
        for i in order[j:end]:
            v = by_row[i]
            for c in range(k):
                h[c] += v[c]


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
    for i in range(len(raw)):
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
    blocks, first_class = (n + BLOCK - 1) // BLOCK, 1 if k == 2 else 0
    residual, packed, by_row = np.empty((k, n)), np.empty((k, n), np.int64), np.empty((n, k), np.int64)
    root, sizes, scale = np.empty((bins, k), np.int64), np.empty((blocks, k)), np.empty(k)
    hist, where = np.empty((threads, INNER, 2, bins), np.int64), np.empty((threads, n), np.uint8)
    rows, spare = np.empty((threads, n), np.uint32), np.empty((threads, n), np.uint32)
    perm = np.empty((threads, d), np.int32)
    left, to_search = np.empty((threads, bins), np.int64), np.empty((threads, bins), np.bool_)
    sums = np.empty((threads, n), np.int64)
    shift = 62 - int(np.ceil(np.log2(n + 1)))
    for stage in range(len(trees.value)):
        for block in prange(blocks):
            a, z = block * BLOCK, min(n, (block + 1) * BLOCK)
            softmax_residuals(raw, y, a, z, residual, sizes[block])
        for c in range(k):
            scale[c] = 2.0 ** min(np.floor(shift - 2 - np.log2(sizes[:, c].sum() + 1e-300)), 300.0)
        for block in prange(blocks):
            a, z = block * BLOCK, min(n, (block + 1) * BLOCK)
            pack_residuals(residual, a, z, scale, shift, packed, by_row)
        for f in prange(d):
            root_histogram(f, columns, by_row, root)
        for t in prange(threads):
            space = Workspace(hist[t], rows[t], spare[t], where[t], perm[t], left[t], to_search[t], sums[t])
            state = State(raw, residual, packed, scale, shift)
            for c in range(first_class + t, k, threads):
                grow_class_tree(
                    c, stage, state, columns, space, root, members[first[c] : first[c + 1]], rate, seed, trees
                )


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
