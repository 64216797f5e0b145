"""L-BFGS with a Moré-Thuente line search, compiled; its iterates are those of scipy's L-BFGS-B without bounds.

References: Liu and Nocedal (1989), Mathematical Programming 45; Moré and Thuente (1994), ACM TOMS 20(3). Constants are
those of L-BFGS-B (Zhu et al., 1997, ACM TOMS 23(4)) as scikit-learn calls it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unbraid.metrics.linear.softmax import loss_gradient
from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]
Point = tuple[float, float, float]  # of a line search: step, value, slope

MEMORY = 10  # pairs of steps and changes of the gradient that stand for the curvature
SEARCHES = 50  # evaluations in one line search
GRADIENT = 1e-4  # stop where no entry of the gradient is larger
EPSILON = 2.0**-52
DECREASE = 64 * EPSILON  # stop where the loss falls by less than this
SUFFICIENT, CURVATURE, NARROW = 1e-3, 0.9, 0.1  # a step is taken where loss and slope fall enough, or the bracket shuts
LONGEST = 1e10


@kernel(fastmath={"contract", "reassoc"})
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@kernel(fastmath={"contract"})
def _add(a: Array, scale: float, b: Array) -> None:
    """Add scale times b to a."""
    for i in range(len(a)):
        a[i] += scale * b[i]


@kernel()
def _cubic(a: float, fa: float, da: float, b: float, fb: float, db: float) -> tuple[float, float]:
    """Where the cubic through two values and slopes is lowest, as a fraction of the way from a to b; and its root."""
    theta = 3 * (fa - fb) / (b - a) + da + db
    scale = max(abs(theta), max(abs(da), abs(db)))
    root = scale * np.sqrt(max(0.0, (theta / scale) ** 2 - (da / scale) * (db / scale)))
    root = root if b > a else -root
    return (root - da + theta) / (root - da + root + db), root


@kernel()
def _farther(a: float, b: float, origin: float) -> float:
    return a if abs(a - origin) > abs(b - origin) else b


@kernel()
def _nearer(a: float, b: float, origin: float) -> float:
    return a if abs(a - origin) < abs(b - origin) else b


@kernel()
def _trial(best: Point, other: Point, here: Point, shut: bool, low: float, high: float) -> float:
    """The next step to try, from the best point so far, the other end of the bracket, and the point just tried.

    Four cases: the value rose; the slope changed sign; the slope shrank; neither.
    """
    (x, fx, dx), (y, fy, dy), (t, f, d) = best, other, here
    limit = high if t > x else low
    if f > fx:
        cubic = x + _cubic(x, fx, dx, t, f, d)[0] * (t - x)
        quadratic = x + dx / ((fx - f) / (t - x) + dx) / 2 * (t - x)
        return cubic if abs(cubic - x) < abs(quadratic - x) else (cubic + quadratic) / 2
    if d * dx < 0:
        cubic = t + _cubic(t, f, d, x, fx, dx)[0] * (x - t)
        return _farther(cubic, t + d / (d - dx) * (x - t), t)
    if abs(d) < abs(dx):
        share, root = _cubic(t, f, d, x, fx, dx)
        cubic = t + share * (x - t) if share < 0 and root != 0 else limit
        secant = t + d / (d - dx) * (x - t)
        if not shut:
            return min(high, max(low, _farther(cubic, secant, t)))
        inside, edge = _nearer(cubic, secant, t), t + 0.66 * (y - t)
        return min(edge, inside) if t > x else max(edge, inside)
    return t + _cubic(t, f, d, y, fy, dy)[0] * (y - t) if shut else limit


@kernel()
def _tilted(point: Point, tilt: float) -> Point:
    """The same point of the function less `tilt` times the step."""
    return point[0], point[1] - tilt * point[0], point[2] - tilt


@kernel()
def _narrowed(best: Point, other: Point, here: Point) -> tuple[Point, Point]:
    """The interval that holds the minimum after the point `here` has become one of its ends, the better end first."""
    if here[1] > best[1]:
        return best, here
    return here, (best if here[2] * best[2] < 0 else other)


@kernel()
def _search(
    w: Array, start: Array, g: Array, d: Array, loss: float, slope: float, step: float, problem: Any
) -> tuple[float, float, bool]:
    """Go from `start` along d to a step of sufficient decrease; w and g are left there. Returns loss, step, success."""
    best = other = (0.0, loss, slope)
    low, high, shut, early = 0.0, 5 * step, False, True
    width, before = LONGEST, 2 * LONGEST
    for _ in range(SEARCHES):
        w[:] = start
        _add(w, step, d)
        f = loss_gradient(w, g, *problem)
        here, line = (step, f, _dot(g, d)), loss + step * SUFFICIENT * slope
        early = early and not (f <= line and here[2] >= 0)
        stuck = shut and (step <= low or step >= high or high - low <= NARROW * high)
        far = step == LONGEST and f <= line and here[2] <= SUFFICIENT * slope
        if stuck or far or (f <= line and abs(here[2]) <= -CURVATURE * slope):
            return f, step, True
        tilt = SUFFICIENT * slope if early and line < f <= best[1] else 0.0  # until a step is low enough
        best, other, here = _tilted(best, tilt), _tilted(other, tilt), _tilted(here, tilt)
        step = _trial(best, other, here, shut, low, high)
        shut = shut or here[1] > best[1] or here[2] * best[2] < 0
        best, other = _narrowed(best, other, here)
        best, other = _tilted(best, -tilt), _tilted(other, -tilt)
        if shut:
            if abs(other[0] - best[0]) >= 0.66 * before:
                step = best[0] + 0.5 * (other[0] - best[0])
            before, width = width, abs(other[0] - best[0])
            low, high = min(best[0], other[0]), max(best[0], other[0])
        else:
            low, high = step + 1.1 * (step - best[0]), step + 4 * (step - best[0])
        step = min(LONGEST, max(0.0, step))
        if shut and (step <= low or step >= high or high - low <= NARROW * high):
            step = best[0]
    return loss, step, False


@kernel()
def _direction(d: Array, g: Array, steps: Array, changes: Array, products: Array, first: int, count: int) -> None:
    """Set d to minus the inverse curvature times g, told by `count` pairs from `first` on in a ring of MEMORY."""
    share = np.empty(MEMORY)
    d[:] = -g
    for q in range(count - 1, -1, -1):
        j = (first + q) % MEMORY
        share[j] = _dot(steps[j], d) / products[j]
        _add(d, -share[j], changes[j])
    if count:
        j = (first + count - 1) % MEMORY
        d *= products[j] / _dot(changes[j], changes[j])
    for q in range(count):
        j = (first + q) % MEMORY
        _add(d, share[j] - _dot(changes[j], d) / products[j], steps[j])


@kernel()
def minimise(w: Array, problem: Any, iterations: int) -> int:
    """Lower the loss of `problem` from the flat weights w, in place; returns the number of iterations."""
    g, d, start, old = np.empty_like(w), np.empty_like(w), np.empty_like(w), np.empty_like(w)
    steps, changes, products = np.empty((MEMORY, len(w))), np.empty((MEMORY, len(w))), np.empty(MEMORY)
    first = count = iteration = 0
    loss = loss_gradient(w, g, *problem)
    while iteration < iterations and np.max(np.abs(g)) > GRADIENT:
        _direction(d, g, steps, changes, products, first, count)
        slope, start[:], old[:] = _dot(g, d), w, g
        found, step, after = False, 0.0, loss
        if slope < 0:
            length = 1.0 if iteration else min(1 / np.sqrt(_dot(d, d)), LONGEST)
            after, step, found = _search(w, start, g, d, loss, slope, length, problem)
        if not found:
            w[:], g[:] = start, old
            if count == 0:
                break
            first = count = 0  # forget the curvature and go down the gradient
            continue
        iteration += 1
        fall, before, loss = loss - after, loss, after
        if fall <= DECREASE * max(abs(before), max(abs(loss), 1.0)):
            break
        product = (_dot(g, d) - slope) * step
        if product > -EPSILON * slope * step:
            j = (first + count) % MEMORY
            steps[j], changes[j], products[j] = step * d, g - old, product
            first, count = (first + 1) % MEMORY if count == MEMORY else first, min(count + 1, MEMORY)
    return iteration


@kernel()
def path(w: Array, x: Array, rows: int, sums: Array, Cs: Array, zero: bool, iterations: int) -> Array:
    """Weights for each C in turn, every one starting from the one before, the first from w."""
    weights = np.empty((len(Cs), len(w)))
    for i in range(len(Cs)):
        weights[i] = weights[i - 1] if i else w
        minimise(weights[i], (x, rows, sums, 1 / (Cs[i] * rows), zero), iterations)
    return weights
