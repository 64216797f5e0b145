"""Growth of one tree of depth 3 on the residuals of one class.

Node t has the children 2t + 1 and 2t + 2. Leaf l is node 7 + l.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unbraid.metrics.trees.bins import Columns
from unbraid.metrics.trees.cuts import Node, Number, best_cut, values_around_cut
from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]
INNER, BOTTOM = 7, 3  # number of inner nodes, and index of the first node whose children are leaves
EPSILON = float(np.finfo(float).eps)  # scikit-learn does not cut a node with a smaller variance


class Workspace(NamedTuple):
    """Buffers that one thread reuses for all its trees."""

    hist: Array  # (7, 2, bins): histograms of the inner nodes, for residuals <= 0 and > 0
    rows: Array  # (n,): row numbers, ordered so that the rows of each node are contiguous
    spare: Array  # (n,): temporary row numbers while the rows of a node are partitioned
    where: Array  # (n,): the node of every row
    perm: Array  # (d,): the random order of columns
    left: Array  # (bins,): sums over lower bins
    to_search: Array  # (bins,): whether a bin must be searched
    sums: Array  # (n,): running sums inside a bin


@kernel()
def shuffle(perm: Array, seed: Number) -> Number:
    """Shuffle `perm` in place with the splitmix64 generator, and return the new state of the generator (64 bits)."""
    for i in range(len(perm) - 1, 0, -1):
        seed += np.uint64(0x9E3779B97F4A7C15)
        z = (seed ^ (seed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        j = np.int64((z ^ (z >> np.uint64(31))) % np.uint64(i + 1))
        perm[i], perm[j] = perm[j], perm[i]
    return seed


@kernel()
def fill_histogram(hist: Array, rows: Array, packed: Array, residual: Array, bin_index: Array) -> Number:
    """Fill the histogram of the given rows, and return the sum of `packed` over these rows."""
    hist[:] = 0
    total = np.int64(0)
    for i in rows:
        h, v = hist[np.int64(residual[i] > 0)], packed[i]
        total += v
        for f in range(bin_index.shape[1]):
            h[bin_index[i, f]] += v
    return total


@kernel()
def subtract_histogram(whole: Array, part: Array, rest: Array) -> None:
    """Write to `rest` the histogram of the rows of `whole` that are not in `part`."""
    for half in range(2):
        for b in range(whole.shape[1]):
            rest[half, b] = whole[half, b] - part[half, b]


@kernel()
def partition_rows(rows: Array, spare: Array, column: Array, low: Number, where: Array, left: Number) -> Number:
    """Move the rows with column <= low to the front, without changing their order, and return how many there are.

    Write the child node of each row to `where`: `left` for the rows at the front, and `left` + 1 for the others.
    """
    mid = other = np.int64(0)
    for i in rows:
        right = np.int64(column[i] > low)
        rows[mid] = i
        spare[other] = i
        where[i] = left + right
        mid += 1 - right
        other += right
    rows[mid:] = spare[:other]
    return mid


@kernel()
def split_into_leaves(
    rows: Array, residual: Array, column: Array, low: Number, where: Array, left: Number, value: Array
) -> None:
    """Split the rows of a node into two leaves, and write the values of the leaves.

    The value of a leaf is a Newton step on the deviance, without the learning rate.
    """
    up_left = up_right = down_left = down_right = 0.0
    right_count = np.int64(0)
    for i in rows:
        right = column[i] > low
        where[i] = left + np.int64(right)
        right_count += np.int64(right)
        r = residual[i]
        curve = abs(r) * (1 - abs(r))
        up_left, down_left = up_left + (0.0 if right else r), down_left + (0.0 if right else curve)
        up_right, down_right = up_right + (r if right else 0.0), down_right + (curve if right else 0.0)
    # As in scikit-learn, the value of a leaf is 0 if the mean curvature is too small to divide by.
    small = 1e-150
    value[left - INNER] = up_left / down_left if down_left > small * (len(rows) - right_count) else 0.0
    value[left + 1 - INNER] = up_right / down_right if down_right > small * right_count else 0.0


@kernel()
def is_pure(rows: Array, residual: Array) -> Number:
    """Return whether the variance of the residuals is so small that the node is not cut."""
    mean = 0.0
    for i in rows:
        mean += residual[i]
    mean /= len(rows)
    square = 0.0
    for i in rows:
        square += (residual[i] - mean) ** 2
    return square <= EPSILON * len(rows)


@kernel()
def grow_tree(
    residual: Array, packed: Array, shift: Number, scale: Number, columns: Columns, space: Workspace, seed: Number,
    feature: Array, threshold: Array, value: Array, importance: Array,
) -> None:  # fmt: skip
    """Grow one tree. The histogram of the root must be filled before the call.

    See `unbraid.metrics.trees.stages.State` for `residual`, `packed`, `shift` and `scale`. The tree is written to
    `feature`, `threshold`, `value` and `importance` (see `Trees`). After the call, `space.where` holds the leaf of each
    row.
    """
    hist, rows, where = space.hist, space.rows, space.where
    begin, end, total = np.zeros(15, np.int64), np.zeros(15, np.int64), np.zeros(INNER, np.int64)
    mask = np.zeros(15, np.int64)
    for i in range(len(rows)):
        rows[i] = i
        where[i] = 0
    end[0] = len(rows)
    total[0] = hist[0, :, : columns.offset[1]].sum()  # the bins of any column together hold all rows
    for t in range(INNER):
        a, z, left, right = begin[t], end[t], 2 * t + 1, 2 * t + 2
        f, low, cut, mid = np.int64(0), np.float32(np.inf), np.inf, z  # without a cut, all rows go left
        if z - a > 1 and total[t] != 0:  # the total stays 0 in the descendants of a node without a cut
            mask[t] = -1
            node = Node(hist[t], where, t, mask, packed, shift, total[t])
            seed = shuffle(space.perm, seed)
            best = best_cut(node, columns, space.perm, space.left, space.to_search, space.sums)
            won = best.gain / np.float64(z - a) / (scale * scale)
            if best.rank >= 0 and not (won <= EPSILON * (z - a) and is_pure(rows[a:z], residual)):
                f = np.int64(space.perm[best.rank])
                low, high = values_around_cut(node, columns, f, best.position)
                cut = np.float64(low) / 2 + np.float64(high) / 2
                importance[f] += won
        mask[t] = 0
        feature[t], threshold[t] = f, cut
        if t >= BOTTOM:
            split_into_leaves(rows[a:z], residual, columns.x[f], low, where, left, value)
            continue
        if cut < np.inf:
            mid = a + partition_rows(rows[a:z], space.spare, columns.x[f], low, where, left)
            less, more = (left, right) if mid - a < z - mid else (right, left)
            small = rows[a:mid] if less == left else rows[mid:z]
            total[less] = fill_histogram(hist[less], small, packed, residual, columns.bin_index)
            total[more] = total[t] - total[less]
            subtract_histogram(hist[t], hist[less], hist[more])
        begin[left], end[left], begin[right], end[right] = a, mid, mid, z
