"""Search for the best of all cuts of a node. Histograms over bins exclude most cuts from the search.

A histogram holds one int64 per bin: the number of rows, shifted left by `shift` bits, plus the sum of their fixed-point
residuals. With 10,000 rows, each residual is rounded to a multiple of 2^-46 times the sum of the absolute residuals.
Sums of such fixed-point numbers are exact in any order, so the best cut depends neither on the bins nor on the order of
additions.

A node has W rows, whose residuals have the sum S. A cut with w rows and the sum s on its left lowers the squared error
by (W s - w S)^2 / (W w (W - w)). The gain of a cut is W times this reduction. The gain is convex in (w, s). The cuts
inside a bin lie in a box of (w, s), so their gain is at most the largest gain at a corner of the box. If the gains at
all corners are below that of the best cut so far, the bin need not be searched.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from unbraid.metrics.trees.bins import RESOLUTION, Columns
from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]
Number: TypeAlias = Any  # a Python or numpy number; compiled code does not distinguish the two
SLACK = 1 - 1e-12  # bounds are compared with slightly less than the best gain, because they are rounded


class Cut(NamedTuple):
    """The best cut so far. Ties go to the first column in the random order of the node, then to the lowest position."""

    gain: Number  # -1 if there is no cut yet
    rank: Number  # the position of the column in the random order
    position: Number  # index, in the sorted rows of the column, of the first row on the right of the cut


class Node(NamedTuple):
    """The node for which a cut is searched."""

    hist: Array  # (2, bins): histograms of the rows with residual <= 0 and > 0
    where: Array  # (n,): the node of every row
    number: Number  # the number of this node
    mask: Array  # (15,): -1 (all bits set) at the number of this node, and 0 elsewhere
    packed: Array  # (n,): 1 << shift, plus the fixed-point residual
    shift: Number
    total: Number  # the sum of `packed` over the node


@kernel(inline="always")
def unpack_sum(total: Number, shift: Number) -> tuple[Number, Number]:
    """Return the number of rows and the sum of fixed-point residuals that a packed sum holds."""
    count = (total + (np.int64(1) << (shift - 1))) >> shift
    return count, total - (count << shift)


@kernel(inline="always")
def gain_exceeds(w: Number, s: Number, W: Number, S: Number, bar: Number) -> Number:
    """Return whether the gain of a cut is above `bar`."""
    excess = np.float64(W * s - w * S)
    return excess * excess > bar * np.float64(w * (W - w))


@kernel(inline="always")
def gain(w: Number, s: Number, W: Number, S: Number) -> Number:
    """Return the gain of a cut. Exchanging its sides gives the same gain, because W s - w S is an exact integer."""
    excess = np.float64(W * s - w * S)
    return excess * excess / np.float64(w * (W - w))


@kernel(inline="always")
def gain_may_exceed(w: Number, s: Number, W: Number, S: Number, bar: Number) -> Number:
    """Return whether the gain could be above `bar`, given w, s, W and S as floating-point numbers.

    Rounding changes the products by a few hundred units. Adding 1024 allows for this.
    """
    excess = abs(W * s - w * S) + 1024.0
    return excess * excess > bar * w * (W - w)


@kernel()
def sum_lower_bins(hist: Array, begin: Number, end: Number, left: Array) -> None:
    """Write to `left`, for each of the bins of one column, the sum over the lower bins."""
    negative, positive, left, below = hist[0, begin:end], hist[1, begin:end], left[begin:end], np.int64(0)
    for b in range(end - begin):
        left[b] = below
        below += negative[b] + positive[b]


@kernel()
def any_gain_may_exceed(sums: Array, node: Node, bar: Number) -> Number:
    """Return whether a cut with one of the given sums on its left might have a gain above `bar`.

    The loop has no branches, so that it can be vectorised.
    """
    count, total = unpack_sum(node.total, node.shift)
    W, S = np.float64(count), np.float64(total)
    found = False
    for b in range(len(sums)):
        packed_count, packed_sum = unpack_sum(sums[b], node.shift)
        w, s = np.float64(packed_count), np.float64(packed_sum)
        found |= gain_may_exceed(w, s, W, S, bar) & (w > 0) & (w < W)
    return found


@kernel()
def best_cut_between_bins(node: Node, columns: Columns, perm: Array, left: Array) -> Cut:
    """Find the best cut between bins, and write to `left`, for each bin, the sum over the lower bins of its column."""
    shift, offset = node.shift, columns.offset
    W, S = unpack_sum(node.total, shift)
    best, rank, position, bar = -1.0, -1, np.int64(-1), -1.0
    for u in range(len(perm)):
        f = perm[u]
        begin, end = offset[f], offset[f + 1]
        sum_lower_bins(node.hist, begin, end, left)
        if not any_gain_may_exceed(left[begin:end], node, bar):
            continue
        for b in range(begin, end):
            w, s = unpack_sum(left[b], shift)
            if gain_exceeds(
                w, s, W, S, bar
            ):  # false if one side of the cut is empty: `gain_exceeds` then compares 0 with 0
                value = gain(w, s, W, S)
                if value > best:
                    best, rank, position, bar = value, u, np.int64(columns.start[b + f]), value * SLACK
    return Cut(best, rank, position)


@kernel()
def mark_promising_bins(node: Node, left: Array, divisible: Array, bar: Number, to_search: Array) -> None:
    """Mark the bins inside which a cut might have a gain above `bar`.

    The loop has no branches, so that it can be vectorised.
    """
    negative, positive, shift = node.hist[0], node.hist[1], node.shift
    count, total = unpack_sum(node.total, shift)
    W, S = np.float64(count), np.float64(total)
    for b in range(len(left)):
        below, low = unpack_sum(negative[b], shift)
        above, high = unpack_sum(positive[b], shift)
        w, s = unpack_sum(left[b], shift)
        first, last = np.float64(w + 1), np.float64(w + below + above - 1)
        top, bottom = np.float64(s + high), np.float64(s + low)
        a = gain_may_exceed(first, top, W, S, bar) | gain_may_exceed(last, top, W, S, bar)
        z = gain_may_exceed(first, bottom, W, S, bar) | gain_may_exceed(last, bottom, W, S, bar)
        to_search[b] = (a | z) & (last > first - 1) & divisible[b]


@kernel()
def sum_inside_bin(node: Node, columns: Columns, f: Number, b: Number, left: Number, sums: Array) -> Array:
    """Return the running sums of `packed` over the node's rows in bin b of column f, starting from `left`.

    They are written to the beginning of `sums`. The mask replaces a comparison, because the branches of a comparison
    are slow: whether a row belongs to the node is not predictable.
    """
    order, where, packed, mask = columns.order[f], node.where, node.packed, node.mask
    begin, end = columns.start[b + f], columns.start[b + f + 1]
    for j in range(end - begin):
        i = order[begin + j]
        left += packed[i] & mask[where[i]]
        sums[j] = left
    return sums[: end - begin]


@kernel()
def best_cut_inside_bin(
    node: Node, columns: Columns, f: Number, rank: Number, b: Number, left: Number, sums: Array, best: Cut
) -> Cut:
    """Return the better of `best` and the best cut inside bin b of column f.

    `rank` is the position of the column in the random order, `left` is the sum over the lower bins, and `sums` are the
    running sums inside the bin. They change at the rows that belong to the node.
    """
    order, values, where, shift = columns.order[f], columns.values[f], node.where, node.shift
    W, S = unpack_sum(node.total, shift)
    begin, bar = columns.start[b + f], best.gain * SLACK
    for j in range(begin + 1, begin + len(sums)):
        inside = sums[j - begin - 1]
        w, s = unpack_sum(inside, shift)
        if gain_exceeds(w, s, W, S, bar) and inside != sums[j - begin] and inside != left:
            value = gain(w, s, W, S)
            first = rank < best.rank or (rank == best.rank and j < best.position)
            if value > best.gain or (value == best.gain and first):
                before = j - 1
                while where[order[before]] != node.number:
                    before -= 1
                if values[j] > values[before] + RESOLUTION:
                    best = Cut(value, np.int64(rank), np.int64(j))
                    bar = value * SLACK
    return best


@kernel()
def best_cut(node: Node, columns: Columns, perm: Array, left: Array, to_search: Array, sums: Array) -> Cut:
    """Return the best of all cuts of a node."""
    best = best_cut_between_bins(node, columns, perm, left)
    mark_promising_bins(node, left, columns.divisible, best.gain * SLACK, to_search)
    for u in range(len(perm)):
        f = perm[u]
        for b in range(columns.offset[f], columns.offset[f + 1]):
            if to_search[b]:
                inside = sum_inside_bin(node, columns, f, b, left[b], sums)
                if any_gain_may_exceed(inside[:-1], node, best.gain * SLACK):
                    best = best_cut_inside_bin(node, columns, f, u, b, left[b], inside, best)
    return best


@kernel()
def values_around_cut(node: Node, columns: Columns, f: Number, position: Number) -> tuple[Number, Number]:
    """Return the value of the node's last row on the left of a cut and that of its first row on the right."""
    order, values, start, hist = columns.order[f], columns.values[f], columns.start, node.hist
    low, high, right = position - 1, position, np.int64(columns.bin_index[order[position], f])
    if position == start[right + f]:
        left = right - 1
        while hist[0, left] + hist[1, left] == 0:
            left -= 1
        low = np.int64(start[left + 1 + f]) - 1
        while hist[0, right] + hist[1, right] == 0:
            right += 1
        high = np.int64(start[right + f])
    while node.where[order[low]] != node.number:
        low -= 1
    while node.where[order[high]] != node.number:
        high += 1
    return values[low], values[high]
