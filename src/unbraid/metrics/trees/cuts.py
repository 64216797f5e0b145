"""Search for the best of all cuts of a node, in which bins exclude most cuts.

A histogram holds one int64 per bin: the number of rows, shifted left by `shift` bits, plus the sum of their fixed-point
residuals. With 10,000 rows, each residual is rounded to 2^-46 of the sum of their absolute values. Such sums are exact
in any order, so the best cut depends neither on the bins nor on the order of additions.

A cut with w of W rows and s of the sum S on its left lowers the squared error by (W s - w S)^2 / (W w (W - w)). "gain"
below is W times that. The gain is convex in (w, s). Over all cuts inside a bin it is therefore at most the largest of
its values at the corners of the box of reachable (w, s), and a bin whose corners stay below the best cut so far need
not be searched.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from unbraid.metrics.trees.bins import RESOLUTION, Columns
from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]
Number: TypeAlias = Any  # a Python or numpy number; compiled code does not distinguish them
SLACK = 1 - 1e-12  # bounds are compared with slightly less than the best gain, to allow for rounding


class Cut(NamedTuple):
    """The best cut so far. Ties go to the first column in the random order of the node, then to the lower cut."""

    gain: Number  # -1 if there is no cut yet
    rank: Number  # the position of the column in the random order
    place: Number  # where the right part begins in the sorted rows of the column


class Node(NamedTuple):
    """The data of a node in which a cut is searched."""

    hist: Array  # (2, bins): histograms of the rows with residual <= 0 and > 0
    where: Array  # (n,): the node of every row
    number: Number  # the number of this node
    packed: Array  # (n,): 1 << shift, plus the fixed-point residual
    shift: Number
    total: Number  # the sum of `packed` over the node


@kernel(inline="always")
def unpack_sum(total: Number, shift: Number) -> tuple[Number, Number]:
    """Return the number of rows and the sum of residuals of a packed sum."""
    count = (total + (np.int64(1) << (shift - 1))) >> shift
    return count, total - (count << shift)


@kernel(inline="always")
def gain_exceeds(w: Number, s: Number, W: Number, S: Number, bar: Number) -> Number:
    """Return whether the gain is above `bar`."""
    excess = np.float64(W * s - w * S)
    return excess * excess > bar * np.float64(w * (W - w))


@kernel(inline="always")
def gain(w: Number, s: Number, W: Number, S: Number) -> Number:
    """Return the gain. It is equal for mirrored cuts, because the difference of products is an exact integer."""
    excess = np.float64(W * s - w * S)
    return excess * excess / np.float64(w * (W - w))


@kernel()
def best_cut_between_bins(node: Node, columns: Columns, perm: Array, left: Array) -> Cut:
    """Return the best cut between bins, and write to `left` the sum over all lower bins of the column."""
    hist, shift, offset = node.hist, node.shift, columns.offset
    W, S = unpack_sum(node.total, shift)
    best, rank, place, bar = -1.0, -1, np.int64(-1), -1.0
    for u in range(len(perm)):
        f, below = perm[u], np.int64(0)
        for b in range(offset[f], offset[f + 1]):
            left[b] = below
            w, s = unpack_sum(below, shift)
            if gain_exceeds(w, s, W, S, bar):  # false if a side is empty: both sides of the comparison are then 0
                value = gain(w, s, W, S)
                if value > best:
                    best, rank, place, bar = value, u, np.int64(columns.start[b + f]), value * SLACK
            below += hist[0, b] + hist[1, b]
    return Cut(best, rank, place)


@kernel()
def best_cut_inside_bin(
    node: Node, columns: Columns, f: Number, rank: Number, b: Number, left: Number, best: Cut
) -> Cut:
    """Return the better of `best` and the best cut inside bin b of column f; `left` is the sum over lower bins."""
    order, values, where, packed, shift = columns.order[f], columns.values[f], node.where, node.packed, node.shift
    W, S = unpack_sum(node.total, shift)
    begin, inside, bar = columns.start[b + f], left, best.gain * SLACK
    for j in range(begin, columns.start[b + f + 1]):
        i = order[j]
        own = where[i] == node.number
        w, s = unpack_sum(inside, shift)
        if gain_exceeds(w, s, W, S, bar) and own and inside != left:
            value = gain(w, s, W, S)
            first = rank < best.rank or (rank == best.rank and j < best.place)
            if value > best.gain or (value == best.gain and first):
                before = j - 1
                while where[order[before]] != node.number:
                    before -= 1
                if values[j] > values[before] + RESOLUTION:
                    best = Cut(value, np.int64(rank), np.int64(j))
                    bar = value * SLACK
        inside += packed[i] if own else np.int64(0)
    return best


@kernel(inline="always")
def gain_may_exceed(w: Number, s: Number, W: Number, S: Number, bar: Number) -> Number:
    """Return whether the gain could be above `bar`. 1024 covers the rounding of the products, a few hundred units."""
    excess = abs(W * s - w * S) + 1024.0
    return excess * excess > bar * w * (W - w)


@kernel()
def mark_promising_bins(node: Node, left: Array, wide: Array, bar: Number, open_bins: Array) -> None:
    """Mark bins inside which a cut might have a gain above `bar`, in a loop without branches, which vectorises."""
    none, some, shift = node.hist[0], node.hist[1], node.shift
    count, total = unpack_sum(node.total, shift)
    W, S = np.float64(count), np.float64(total)
    for b in range(len(left)):
        below, low = unpack_sum(none[b], shift)
        above, high = unpack_sum(some[b], shift)
        w, s = unpack_sum(left[b], shift)
        first, last = np.float64(w + 1), np.float64(w + below + above - 1)
        top, bottom = np.float64(s + high), np.float64(s + low)
        a = gain_may_exceed(first, top, W, S, bar) | gain_may_exceed(last, top, W, S, bar)
        z = gain_may_exceed(first, bottom, W, S, bar) | gain_may_exceed(last, bottom, W, S, bar)
        open_bins[b] = (a | z) & (last > first - 1) & wide[b]


@kernel()
def may_hold_better_cut(
    node: Node, columns: Columns, f: Number, b: Number, left: Number, bar: Number, sums: Array
) -> Number:
    """Return whether a cut inside bin b of column f might have a gain above `bar`.

    The sums are computed first, so that the loop that compares them vectorises.
    """
    order, where, packed, shift = columns.order[f], node.where, node.packed, node.shift
    begin, end = columns.start[b + f], columns.start[b + f + 1]
    for j in range(end - begin):
        i = order[begin + j]
        left += packed[i] if where[i] == node.number else np.int64(0)
        sums[j] = left
    count, total = unpack_sum(node.total, shift)
    W, S = np.float64(count), np.float64(total)
    better = False
    for j in range(end - begin - 1):
        w, s = unpack_sum(sums[j], shift)
        better |= gain_may_exceed(np.float64(w), np.float64(s), W, S, bar)
    return better


@kernel()
def best_cut(node: Node, columns: Columns, perm: Array, left: Array, open_bins: Array, sums: Array) -> Cut:
    """Return the best of all cuts of a node."""
    best = best_cut_between_bins(node, columns, perm, left)
    mark_promising_bins(node, left, columns.wide, best.gain * SLACK, open_bins)
    for u in range(len(perm)):
        f = perm[u]
        for b in range(columns.offset[f], columns.offset[f + 1]):
            if open_bins[b] and may_hold_better_cut(node, columns, f, b, left[b], best.gain * SLACK, sums):
                best = best_cut_inside_bin(node, columns, f, u, b, left[b], best)
    return best


@kernel()
def values_around_cut(node: Node, columns: Columns, f: Number, place: Number) -> tuple[Number, Number]:
    """Return the last value of the node left of a cut and the first right of it, skipping empty bins."""
    order, values, start, hist = columns.order[f], columns.values[f], columns.start, node.hist
    low, high, right = place - 1, place, np.int64(columns.code[order[place], f])
    if place == start[right + f]:
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
