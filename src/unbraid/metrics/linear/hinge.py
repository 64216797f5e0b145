"""Squared-hinge lines in one dimension, compiled: a Newton step costs four binary searches in sorted values."""

from __future__ import annotations

from typing import Any

import numpy as np

from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]

STEPS = 100  # each solves one piece of a piecewise quadratic exactly; a dozen is usual
HALVINGS = 60


@kernel()
def _prefix(x: Array) -> Array:
    """Sums (n + 1, 3) of 1, x and x^2 over the first values."""
    sums = np.zeros((len(x) + 1, 3))
    for i in range(len(x)):
        sums[i + 1, 0] = sums[i, 0] + 1
        sums[i + 1, 1] = sums[i, 1] + x[i]
        sums[i + 1, 2] = sums[i, 2] + x[i] * x[i]
    return sums


@kernel()
def _side(x: Array, sums: Array, w: float, b: float, level: float, above: bool, out: Array) -> None:
    """Sums over the sorted x where w x + b is above (or below) the level."""
    out[:] = 0.0
    if w == 0:
        if (b > level) if above else (b < level):
            out[:] = sums[-1]
        return
    cut = (level - b) / w
    if above == (w > 0):
        out[:] = sums[-1] - sums[np.searchsorted(x, cut, side="right")]
    else:
        out[:] = sums[np.searchsorted(x, cut, side="left")]


@kernel()
def _active(own: Any, all_: Any, w: float, b: float, sums: Array) -> None:
    """Sums (2, 3) over the class's points below 1 and the others' points above -1: those that the hinge charges."""
    _side(own[0], own[1], w, b, 1.0, False, sums[0])
    _side(own[0], own[1], w, b, -1.0, True, sums[1])
    inside = sums[1].copy()
    _side(all_[0], all_[1], w, b, -1.0, True, sums[1])
    sums[1] -= inside


@kernel()
def _objective(w: float, b: float, sums: Array, up: float, down: float) -> float:
    total = 0.5 * (w * w + b * b)
    for side, cost, sign in ((0, up, -1.0), (1, down, 1.0)):
        count, first, second = sums[side]
        slack = count * (1 + sign * b) ** 2 + 2 * sign * w * (1 + sign * b) * first + w * w * second
        total += cost * slack
    return total


@kernel()
def _piece(sums: Array, up: float, down: float) -> tuple[float, float]:
    """The lowest point of the quadratic in which exactly these points are charged."""
    ww = 1 + 2 * (up * sums[0, 2] + down * sums[1, 2])
    wb = 2 * (up * sums[0, 1] + down * sums[1, 1])
    bb = 1 + 2 * (up * sums[0, 0] + down * sums[1, 0])
    pull_w, pull_b = 2 * (up * sums[0, 1] - down * sums[1, 1]), 2 * (up * sums[0, 0] - down * sums[1, 0])
    determinant = ww * bb - wb * wb
    return (bb * pull_w - wb * pull_b) / determinant, (ww * pull_b - wb * pull_w) / determinant


@kernel()
def _line(own: Any, all_: Any, up: float, down: float) -> tuple[float, float]:
    """Slope and intercept of one class against the rest: piece after piece, halving a step that does not descend."""
    w = b = 0.0
    sums, trial = np.empty((2, 3)), np.empty((2, 3))
    _active(own, all_, w, b, sums)
    value = _objective(w, b, sums, up, down)
    for _ in range(STEPS):
        to_w, to_b = _piece(sums, up, down)
        share = 1.0
        for _half in range(HALVINGS):
            new_w, new_b = w + share * (to_w - w), b + share * (to_b - b)
            _active(own, all_, new_w, new_b, trial)
            after = _objective(new_w, new_b, trial, up, down)
            if after <= value:
                break
            share /= 2
        if after > value:
            return w, b
        same = share == 1.0 and np.array_equal(trial[:, 0], sums[:, 0])
        w, b, value = new_w, new_b, after
        sums[:] = trial
        if same:
            return w, b
    return w, b


@kernel()
def fitted(x: Array, y: Array, costs: Array, cost: float) -> tuple[Array, Array]:
    """Lines of all classes; points of class c cost costs[c], the others `cost`, or with two classes their own."""
    k = len(costs)
    slopes, intercepts = np.zeros(k), np.zeros(k)
    all_ = (x, _prefix(x))
    for c in range(1 if k == 2 else 0, k):
        values = x[y == c]
        slopes[c], intercepts[c] = _line((values, _prefix(values)), all_, costs[c], costs[0] if k == 2 else cost)
    return slopes, intercepts


@kernel()
def hits(slopes: Array, intercepts: Array, x: Array, truth: Array) -> int:
    """How many points have their highest line, the first of equals, in their own class."""
    count = 0
    for i in range(len(x)):
        best, top = 0, slopes[0] * x[i] + intercepts[0]
        for c in range(1, len(slopes)):
            score = slopes[c] * x[i] + intercepts[c]
            if score > top:
                best, top = c, score
        count += best == truth[i]
    return count
