"""Compiled linear classifiers on one latent with squared hinge loss.

The values of the latent are sorted, and their prefix sums are computed once. The sums for a Newton step therefore need
only three binary searches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]

MAX_STEPS = 100  # each step minimises one piece of a piecewise quadratic exactly; about 12 steps usually suffice
MAX_HALVINGS = 60  # maximum number of times that a step is halved because it does not lower the loss


@kernel()
def _prefix_sums(x: Array) -> Array:
    """Return the sums of 1, x and x^2 over the first 0, 1, ..., n values, with shape (n + 1, 3)."""
    sums = np.zeros((len(x) + 1, 3))
    for i in range(len(x)):
        sums[i + 1, 0] = sums[i, 0] + 1
        sums[i + 1, 1] = sums[i, 1] + x[i]
        sums[i + 1, 2] = sums[i, 2] + x[i] * x[i]
    return sums


@kernel()
def _sums_on_side(x: Array, sums: Array, w: float, b: float, level: float, above: bool, out: Array) -> None:
    """Write to `out` the sums of 1, x and x^2 over the values for which w x + b is above (or below) `level`.

    `x` is sorted and `sums` are its prefix sums.
    """
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
def _violation_sums(own: Any, all_: Any, w: float, b: float, sums: Array) -> None:
    """Write to `sums` (2, 3) the sums of 1, x and x^2 over the rows with positive hinge loss.

    `sums[0]` is over the rows of the class for which w x + b is below 1. `sums[1]` is over the rows of all other
    classes for which w x + b is above -1. `own` and `all_` hold the sorted values and prefix sums of the class and of
    all rows.
    """
    _sums_on_side(own[0], own[1], w, b, 1.0, False, sums[0])
    _sums_on_side(own[0], own[1], w, b, -1.0, True, sums[1])
    own_sums = sums[1].copy()
    _sums_on_side(all_[0], all_[1], w, b, -1.0, True, sums[1])
    sums[1] -= own_sums


@kernel()
def _objective(w: float, b: float, sums: Array, own_cost: float, other_cost: float) -> float:
    """Return the penalised squared hinge loss of the line w x + b. `sums` are those of `_violation_sums`."""
    total = 0.5 * (w * w + b * b)
    for side, cost, sign in ((0, own_cost, -1.0), (1, other_cost, 1.0)):
        count, first, second = sums[side]
        slack = count * (1 + sign * b) ** 2 + 2 * sign * w * (1 + sign * b) * first + w * w * second
        total += cost * slack
    return total


@kernel()
def _minimum_of_piece(sums: Array, own_cost: float, other_cost: float) -> tuple[float, float]:
    """Return slope and intercept that minimise the loss if exactly the rows in `sums` have a positive hinge loss."""
    ww = 1 + 2 * (own_cost * sums[0, 2] + other_cost * sums[1, 2])
    wb = 2 * (own_cost * sums[0, 1] + other_cost * sums[1, 1])
    bb = 1 + 2 * (own_cost * sums[0, 0] + other_cost * sums[1, 0])
    target_w = 2 * (own_cost * sums[0, 1] - other_cost * sums[1, 1])
    target_b = 2 * (own_cost * sums[0, 0] - other_cost * sums[1, 0])
    determinant = ww * bb - wb * wb
    return (bb * target_w - wb * target_b) / determinant, (ww * target_b - wb * target_w) / determinant


@kernel()
def _fit_class(own: Any, all_: Any, own_cost: float, other_cost: float) -> tuple[float, float]:
    """Fit the line of one class against the rest, and return its slope and intercept.

    Each step goes to the minimum of the current quadratic piece. A step that does not lower the loss is halved.
    """
    w = b = 0.0
    sums, trial = np.empty((2, 3)), np.empty((2, 3))
    _violation_sums(own, all_, w, b, sums)
    value = _objective(w, b, sums, own_cost, other_cost)
    for _ in range(MAX_STEPS):
        target_w, target_b = _minimum_of_piece(sums, own_cost, other_cost)
        fraction = 1.0
        for _half in range(MAX_HALVINGS):
            new_w, new_b = w + fraction * (target_w - w), b + fraction * (target_b - b)
            _violation_sums(own, all_, new_w, new_b, trial)
            new_value = _objective(new_w, new_b, trial, own_cost, other_cost)
            if new_value <= value:
                break
            fraction /= 2
        if new_value > value:
            return w, b
        converged = fraction == 1.0 and np.array_equal(trial[:, 0], sums[:, 0])
        w, b, value = new_w, new_b, new_value
        sums[:] = trial
        if converged:
            return w, b
    return w, b


@kernel()
def fit_all_classes(x: Array, y: Array, costs: Array, cost: float) -> tuple[Array, Array]:
    """Fit one line per class, and return the slopes and the intercepts.

    For the line of class c, the rows of class c have cost costs[c], and all other rows have cost `cost`. With two
    classes only the line of the second class is fitted, and the rows of the first class have cost costs[0].
    """
    k = len(costs)
    slopes, intercepts = np.zeros(k), np.zeros(k)
    all_ = (x, _prefix_sums(x))
    for c in range(1 if k == 2 else 0, k):
        values = x[y == c]
        slopes[c], intercepts[c] = _fit_class(
            (values, _prefix_sums(values)), all_, costs[c], costs[0] if k == 2 else cost
        )
    return slopes, intercepts


@kernel()
def count_correct(slopes: Array, intercepts: Array, x: Array, truth: Array) -> int:
    """Count the rows for which the line of their own class is highest. The first of tied lines counts as highest."""
    count = 0
    for i in range(len(x)):
        best, top = 0, slopes[0] * x[i] + intercepts[0]
        for c in range(1, len(slopes)):
            score = slopes[c] * x[i] + intercepts[c]
            if score > top:
                best, top = c, score
        count += best == truth[i]
    return count
