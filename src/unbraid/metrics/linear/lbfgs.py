"""Compiled L-BFGS with a Moré-Thuente line search. Its iterates equal those of scipy's L-BFGS-B without bounds.

References: Liu and Nocedal (1989), Mathematical Programming 45; Moré and Thuente (1994), ACM TOMS 20(3). The constants
are those of L-BFGS-B (Zhu et al., 1997, ACM TOMS 23(4)) with the options that scikit-learn sets.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unbraid.metrics.linear.softmax import loss_gradient
from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]
Point = tuple[float, float, float]  # step, value and slope at a point of a line search

MEMORY = 10  # number of stored pairs (step, gradient change) from which the curvature is approximated
MAX_EVALUATIONS = 50  # maximum number of loss evaluations in one line search
GRADIENT_TOLERANCE = 1e-4  # stop if no entry of the gradient has a larger magnitude
EPSILON = 2.0**-52
DECREASE_TOLERANCE = 64 * EPSILON  # stop if the relative decrease of the loss is smaller
# A step is accepted if loss and slope decrease enough (the strong Wolfe conditions, with the constants
# SUFFICIENT_DECREASE and CURVATURE), or if the relative width of the bracket is at most MIN_BRACKET.
SUFFICIENT_DECREASE, CURVATURE, MIN_BRACKET = 1e-3, 0.9, 0.1
MAX_STEP = 1e10


@kernel(fastmath={"contract", "reassoc"})
def _dot(a: Array, b: Array) -> float:
    """Return the dot product of two vectors."""
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@kernel(fastmath={"contract"})
def _add(a: Array, scale: float, b: Array) -> None:
    """Add `scale` times b to a, in place."""
    for i in range(len(a)):
        a[i] += scale * b[i]


@kernel()
def _cubic_minimum(a: float, fa: float, da: float, b: float, fb: float, db: float) -> tuple[float, float]:
    """Return the position of the minimum of a cubic, as a fraction of the way from a to b.

    The cubic has the values fa and fb and the slopes da and db at a and b. The second return value is the square root
    in the formula of the minimum.
    """
    theta = 3 * (fa - fb) / (b - a) + da + db
    scale = max(abs(theta), max(abs(da), abs(db)))
    root = scale * np.sqrt(max(0.0, (theta / scale) ** 2 - (da / scale) * (db / scale)))
    root = root if b > a else -root
    return (root - da + theta) / (root - da + root + db), root


@kernel()
def _farther(a: float, b: float, origin: float) -> float:
    """Return whichever of a and b is farther from `origin`."""
    return a if abs(a - origin) > abs(b - origin) else b


@kernel()
def _nearer(a: float, b: float, origin: float) -> float:
    """Return whichever of a and b is nearer to `origin`."""
    return a if abs(a - origin) < abs(b - origin) else b


@kernel()
def _next_step(best: Point, other: Point, tried: Point, bracketed: bool, low: float, high: float) -> float:
    """Return the next step to try.

    It depends on the best point so far, the other end of the bracket, and the point just tried. There are four cases:
    the value increased, the slope changed its sign, the slope decreased in size, or none of these.
    """
    (x, fx, dx), (y, fy, dy), (t, f, d) = best, other, tried
    limit = high if t > x else low
    if f > fx:
        cubic = x + _cubic_minimum(x, fx, dx, t, f, d)[0] * (t - x)
        quadratic = x + dx / ((fx - f) / (t - x) + dx) / 2 * (t - x)
        return cubic if abs(cubic - x) < abs(quadratic - x) else (cubic + quadratic) / 2
    if d * dx < 0:
        cubic = t + _cubic_minimum(t, f, d, x, fx, dx)[0] * (x - t)
        return _farther(cubic, t + d / (d - dx) * (x - t), t)
    if abs(d) < abs(dx):
        fraction, root = _cubic_minimum(t, f, d, x, fx, dx)
        cubic = t + fraction * (x - t) if fraction < 0 and root != 0 else limit
        secant = t + d / (d - dx) * (x - t)
        if not bracketed:
            return min(high, max(low, _farther(cubic, secant, t)))
        inside, edge = _nearer(cubic, secant, t), t + 0.66 * (y - t)
        return min(edge, inside) if t > x else max(edge, inside)
    return t + _cubic_minimum(t, f, d, y, fy, dy)[0] * (y - t) if bracketed else limit


@kernel()
def _subtract_slope(point: Point, slope: float) -> Point:
    """Return a point of the line search after `slope` times the step is subtracted from the function."""
    return point[0], point[1] - slope * point[0], point[2] - slope


@kernel()
def _narrow_bracket(best: Point, other: Point, tried: Point) -> tuple[Point, Point]:
    """Return the two ends of an interval that contains the minimum, the better end first.

    One of the ends is `tried`.
    """
    if tried[1] > best[1]:
        return best, tried
    return tried, (best if tried[2] * best[2] < 0 else other)


@kernel()
def _line_search(
    w: Array, start: Array, g: Array, d: Array, loss: float, slope: float, step: float, problem: Any
) -> tuple[float, float, bool]:
    """Search along d from `start` for a step that lowers the loss enough.

    The weights and the gradient at this step are written to w and g. The return values are the loss, the step, and
    whether such a step was found.
    """
    best = other = (0.0, loss, slope)
    low, high, bracketed, early = 0.0, 5 * step, False, True
    width, before = MAX_STEP, 2 * MAX_STEP
    for _ in range(MAX_EVALUATIONS):
        w[:] = start
        _add(w, step, d)
        f = loss_gradient(w, g, *problem)
        tried, line = (step, f, _dot(g, d)), loss + step * SUFFICIENT_DECREASE * slope
        early = early and not (f <= line and tried[2] >= 0)
        stuck = bracketed and (step <= low or step >= high or high - low <= MIN_BRACKET * high)
        far = step == MAX_STEP and f <= line and tried[2] <= SUFFICIENT_DECREASE * slope
        if stuck or far or (f <= line and abs(tried[2]) <= -CURVATURE * slope):
            return f, step, True
        # Until a step lowers the loss enough, search on the loss minus a multiple of the step.
        removed = SUFFICIENT_DECREASE * slope if early and line < f <= best[1] else 0.0
        best, other = _subtract_slope(best, removed), _subtract_slope(other, removed)
        tried = _subtract_slope(tried, removed)
        step = _next_step(best, other, tried, bracketed, low, high)
        bracketed = bracketed or tried[1] > best[1] or tried[2] * best[2] < 0
        best, other = _narrow_bracket(best, other, tried)
        best, other = _subtract_slope(best, -removed), _subtract_slope(other, -removed)
        if bracketed:
            if abs(other[0] - best[0]) >= 0.66 * before:
                step = best[0] + 0.5 * (other[0] - best[0])
            before, width = width, abs(other[0] - best[0])
            low, high = min(best[0], other[0]), max(best[0], other[0])
        else:
            low, high = step + 1.1 * (step - best[0]), step + 4 * (step - best[0])
        step = min(MAX_STEP, max(0.0, step))
        if bracketed and (step <= low or step >= high or high - low <= MIN_BRACKET * high):
            step = best[0]
    return loss, step, False


@kernel()
def _search_direction(
    d: Array, g: Array, steps: Array, changes: Array, products: Array, first: int, count: int
) -> None:
    """Set d to the quasi-Newton direction, which is -1 times the inverse of the approximate Hessian times g.

    The Hessian is approximated from `count` pairs of a step and a gradient change. They are stored in ring buffers of
    length MEMORY, starting at index `first`.
    """
    coefficients = np.empty(MEMORY)
    d[:] = -g
    for q in range(count - 1, -1, -1):
        j = (first + q) % MEMORY
        coefficients[j] = _dot(steps[j], d) / products[j]
        _add(d, -coefficients[j], changes[j])
    if count:
        j = (first + count - 1) % MEMORY
        d *= products[j] / _dot(changes[j], changes[j])
    for q in range(count):
        j = (first + q) % MEMORY
        _add(d, coefficients[j] - _dot(changes[j], d) / products[j], steps[j])


@kernel()
def minimise(w: Array, problem: Any, iterations: int) -> int:
    """Minimise the loss over the flat weights w, in place, and return the number of iterations.

    `problem` holds the arguments x, rows, sums, penalty and zero of `loss_gradient`.
    """
    g, d, start, old = np.empty_like(w), np.empty_like(w), np.empty_like(w), np.empty_like(w)
    steps, changes, products = np.empty((MEMORY, len(w))), np.empty((MEMORY, len(w))), np.empty(MEMORY)
    first = count = iteration = 0
    loss = loss_gradient(w, g, *problem)
    while iteration < iterations and np.max(np.abs(g)) > GRADIENT_TOLERANCE:
        _search_direction(d, g, steps, changes, products, first, count)
        slope, start[:], old[:] = _dot(g, d), w, g
        found, step, after = False, 0.0, loss
        if slope < 0:
            length = 1.0 if iteration else min(1 / np.sqrt(_dot(d, d)), MAX_STEP)
            after, step, found = _line_search(w, start, g, d, loss, slope, length, problem)
        if not found:
            w[:], g[:] = start, old
            if count == 0:
                break
            first = count = 0  # discard the curvature and restart along the gradient
            continue
        iteration += 1
        fall, before, loss = loss - after, loss, after
        if fall <= DECREASE_TOLERANCE * max(abs(before), max(abs(loss), 1.0)):
            break
        product = (_dot(g, d) - slope) * step
        if product > -EPSILON * slope * step:
            j = (first + count) % MEMORY
            steps[j], changes[j], products[j] = step * d, g - old, product
            first, count = (first + 1) % MEMORY if count == MEMORY else first, min(count + 1, MEMORY)
    return iteration
