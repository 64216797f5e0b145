"""The best cut of a node, among all cuts: bins tell which of them to look into.

A histogram holds one int64 a bin: the number of rows above `shift` bits of their summed fixed-point residuals (of
10,000 rows, each is rounded to 2^-46 of the sum of their sizes). Such sums are exact in any order, so the cut chosen
depends neither on the bins nor on the order of additions. A cut with w of W rows and s of the sum S on its left lowers
the squared error by (W s - w S)^2 / (W w (W - w)); "gain" below is W times that. It is convex in (w, s): over all cuts
inside a bin it is at most the largest of the values at the corners of the box that its rows can reach, and a bin whose
corners stay below the best cut so far need not be opened.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from unbraid.metrics.trees.bins import SAME, Columns
from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]
Number: TypeAlias = Any  # Python's or numpy's: all the same to compiled code
SLACK = 1 - 1e-12  # bounds are compared with a little less than the best gain, which covers their rounding


class Cut(NamedTuple):
    """The best cut so far; ties go to the column that comes first in the node's random order, then to the lower cut."""

    gain: Number  # -1: none yet
    rank: Number  # the column's place in the random order
    place: Number  # where the right part begins in the column's sorted rows


class Node(NamedTuple):
    """What a search for a cut needs to know of a node."""

    hist: Array  # (2, bins): rows of residual <= 0, and > 0
    where: Array  # (n,): the node of every row
    number: Number  # this node
    packed: Array  # (n,): 1 << shift, plus the fixed-point residual
    shift: Number
    total: Number  # the sum of `packed` over the node


@kernel(inline="always")
def unpacked(total: Number, shift: Number) -> tuple[Number, Number]:
    """Number of rows and sum of residuals."""
    count = (total + (np.int64(1) << (shift - 1))) >> shift
    return count, total - (count << shift)


@kernel(inline="always")
def beats(w: Number, s: Number, W: Number, S: Number, bar: Number) -> Number:
    """Is the gain above `bar`?"""
    excess = np.float64(W * s - w * S)
    return excess * excess > bar * np.float64(w * (W - w))


@kernel(inline="always")
def gain(w: Number, s: Number, W: Number, S: Number) -> Number:
    """The gain; equal for mirrored cuts, since the difference of products is an exact integer."""
    excess = np.float64(W * s - w * S)
    return excess * excess / np.float64(w * (W - w))


@kernel()
def best_edge(node: Node, columns: Columns, perm: Array, left: Array) -> Cut:
    """The best of the cuts between bins; `left` gets the sum over all lower bins of the column."""
    hist, shift, offset = node.hist, node.shift, columns.offset
    W, S = unpacked(node.total, shift)
    best, rank, place, bar = -1.0, -1, np.int64(-1), -1.0
    for u in range(len(perm)):
        f, below = perm[u], np.int64(0)
        for b in range(offset[f], offset[f + 1]):
            left[b] = below
            w, s = unpacked(below, shift)
            if beats(w, s, W, S, bar):  # never where a side is empty: there it compares 0 > 0
                value = gain(w, s, W, S)
                if value > best:
                    best, rank, place, bar = value, u, np.int64(columns.start[b + f]), value * SLACK
            below += hist[0, b] + hist[1, b]
    return Cut(best, rank, place)


@kernel()
def best_inside(node: Node, columns: Columns, f: Number, rank: Number, b: Number, left: Number, best: Cut) -> Cut:
    """The better of `best` and the best cut inside bin b of column f, with `left` summed over lower bins."""
    order, values, where, packed, shift = columns.order[f], columns.values[f], node.where, node.packed, node.shift
    W, S = unpacked(node.total, shift)
    begin, inside, bar = columns.start[b + f], left, best.gain * SLACK
    for j in range(begin, columns.start[b + f + 1]):
        i = order[j]
        own = where[i] == node.number
        w, s = unpacked(inside, shift)
        if beats(w, s, W, S, bar) and own and inside != left:
            value = gain(w, s, W, S)
            first = rank < best.rank or (rank == best.rank and j < best.place)
            if value > best.gain or (value == best.gain and first):
                before = j - 1
                while where[order[before]] != node.number:
                    before -= 1
                if values[j] > values[before] + SAME:
                    best = Cut(value, np.int64(rank), np.int64(j))
                    bar = value * SLACK
        inside += packed[i] if own else np.int64(0)
    return best


@kernel(inline="always")
def reaches(w: Number, s: Number, W: Number, S: Number, bar: Number) -> Number:
    """Could the gain be above `bar`? Products in floating point may be off by a few hundred units: 1024 covers that."""
    excess = abs(W * s - w * S) + 1024.0
    return excess * excess > bar * w * (W - w)


@kernel()
def promising(node: Node, left: Array, wide: Array, bar: Number, open_bins: Array) -> None:
    """Mark bins inside of which a cut might have a gain above `bar`; the loop is free of branches and vectorises."""
    none, some, shift = node.hist[0], node.hist[1], node.shift
    count, total = unpacked(node.total, shift)
    W, S = np.float64(count), np.float64(total)
    for b in range(len(left)):
        below, low = unpacked(none[b], shift)
        above, high = unpacked(some[b], shift)
        w, s = unpacked(left[b], shift)
        first, last = np.float64(w + 1), np.float64(w + below + above - 1)
        top, bottom = np.float64(s + high), np.float64(s + low)
        a = reaches(first, top, W, S, bar) | reaches(last, top, W, S, bar)
        z = reaches(first, bottom, W, S, bar) | reaches(last, bottom, W, S, bar)
        open_bins[b] = (a | z) & (last > first - 1) & wide[b]


@kernel()
def holds_better(node: Node, columns: Columns, f: Number, b: Number, left: Number, bar: Number, sums: Array) -> Number:
    """Might a cut inside bin b of column f have a gain above `bar`? Sums first, then a loop that vectorises."""
    order, where, packed, shift = columns.order[f], node.where, node.packed, node.shift
    begin, end = columns.start[b + f], columns.start[b + f + 1]
    for j in range(end - begin):
        i = order[begin + j]
        left += packed[i] if where[i] == node.number else np.int64(0)
        sums[j] = left
    count, total = unpacked(node.total, shift)
    W, S = np.float64(count), np.float64(total)
    better = False
    for j in range(end - begin - 1):
        w, s = unpacked(sums[j], shift)
        better |= reaches(np.float64(w), np.float64(s), W, S, bar)
    return better


@kernel()
def best_cut(node: Node, columns: Columns, perm: Array, left: Array, open_bins: Array, sums: Array) -> Cut:
    """The best of all cuts of a node."""
    best = best_edge(node, columns, perm, left)
    promising(node, left, columns.wide, best.gain * SLACK, open_bins)
    for u in range(len(perm)):
        f = perm[u]
        for b in range(columns.offset[f], columns.offset[f + 1]):
            if open_bins[b] and holds_better(node, columns, f, b, left[b], best.gain * SLACK, sums):
                best = best_inside(node, columns, f, u, b, left[b], best)
    return best


@kernel()
def neighbours(node: Node, columns: Columns, f: Number, place: Number) -> tuple[Number, Number]:
    """The node's last value left of a cut, and its first value right of it; empty bins are passed over."""
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
