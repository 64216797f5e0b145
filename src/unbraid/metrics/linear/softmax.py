"""Compiled mean log-loss of a softmax of linear scores, and its gradient.

Rows are processed in blocks that fit in the cache.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.polynomial import Chebyshev, Polynomial

from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]

ROWS = 128  # rows per block. The scores of 40 classes take 40 kB, so a block stays in the second-level cache.
# Number of logarithms per block. The argument of each is the product of the softmax denominators of 16 rows. The
# product overflows only above 1e19 classes.
LANES = 8
LN2, LOG2E = math.log(2.0), 1 / math.log(2.0)
ROUNDER = 1.5 * 2.0**52  # adding this number to a float rounds it to an integer, which is then in the lowest bits
FAST = {"contract", "nnan", "nsz"}  # without "reassoc", which would optimise away the rounding by ROUNDER


def _exp2_coefficients(degree: int) -> tuple[float, ...]:
    """Return the coefficients, highest first, of a polynomial that interpolates 2^u on [-1/2, 1/2]."""
    fitted = Chebyshev.interpolate(np.exp2, degree, domain=[-0.5, 0.5])
    return tuple(float(a) for a in fitted.convert(kind=Polynomial).coef[::-1])


EXP2_COEFFICIENTS = _exp2_coefficients(9)  # relative error 2e-14


def _reinterpret_bits(source: Any, target: Any) -> Callable[[Any], Any]:
    """Return a compiled function that reads 64 bits of type `source` as type `target`, and that LLVM can vectorise."""

    def cast_bits(typing: Any, value: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], context.get_value_type(target))

        return target(source), inspect.unwrap(generate)

    return cast(Callable[[Any], Any], intrinsic(inspect.unwrap(cast_bits)))


_float_to_bits, _bits_to_float = (
    _reinterpret_bits(types.float64, types.int64),
    _reinterpret_bits(types.int64, types.float64),
)


def as_blocks(codes: Array) -> Array:
    """Return the codes and a column of ones as blocks of shape (blocks, d + 1, ROWS), padded with rows of zeros."""
    n, d = codes.shape
    count = -(-n // ROWS)
    table = np.zeros((count * ROWS, d + 1))
    table[:n, :d], table[:n, d] = codes, 1.0
    return np.ascontiguousarray(table.reshape(count, ROWS, d + 1).transpose(0, 2, 1))


@kernel(fastmath=FAST)
def _exponentiate_scores(scores: Array, top: Array, norm: Array) -> None:
    """Replace `scores` (k, ROWS) by 2^(scores - top), and write their sums over the k classes to `norm`."""
    norm[:] = 0.0
    for c in range(scores.shape[0]):
        for i in range(ROWS):
            v = max(scores[c, i] - top[i], -1000.0)
            rounded = v + ROUNDER
            u = v - (rounded - ROUNDER)
            power = EXP2_COEFFICIENTS[0]
            for a in EXP2_COEFFICIENTS[1:]:
                power = power * u + a
            e = _bits_to_float(_float_to_bits(power) + (_float_to_bits(rounded) << 52))
            scores[c, i] = e
            norm[i] += e


@kernel(fastmath=FAST)
def _row_maxima(scores: Array, top: Array) -> None:
    """Write the largest of the k scores of each row to `top`.

    Four classes are processed at a time, because this reduces loads and stores.
    """
    k = scores.shape[0]
    top[:] = scores[0]
    for c in range(1, k - 3, 4):
        for i in range(ROWS):
            pair, other = max(scores[c, i], scores[c + 1, i]), max(scores[c + 2, i], scores[c + 3, i])
            top[i] = max(top[i], max(pair, other))
    for c in range(k - (k - 1) % 4, k):
        for i in range(ROWS):
            top[i] = max(top[i], scores[c, i])


@kernel(fastmath={"contract", "reassoc"})
def _sum_log_norms(top: Array, norm: Array) -> float:
    """Return the sum over rows of top + log2(norm), with one logarithm per ROWS / LANES rows."""
    total, products = 0.0, np.ones(LANES)
    for i in range(ROWS):
        total += top[i]
    for i in range(0, ROWS, LANES):
        for lane in range(LANES):
            products[lane] *= norm[i + lane]
    for lane in range(LANES):
        total += math.log2(products[lane])
    return total


@kernel()
def loss_gradient(flat: Array, gradient: Array, x: Array, rows: int, sums: Array, penalty: float, zero: bool) -> float:
    """Return the mean log-loss plus the penalty of the weights in `flat`, and write the gradient to `gradient`.

    `flat` and `gradient` are flattened matrices of shape (k, d + 1). The last column holds the intercepts.

    Args:
        flat: Weights of k classes.
        gradient: Output array for the gradient.
        x: Codes as returned by `as_blocks`.
        rows: Number of rows without padding.
        sums: Sums of x over the rows of each class. Loss and gradient depend on the labels only through these sums.
        penalty: Coefficient of the L2 penalty. The penalty is half the sum of the squared weights, without the
            intercepts.
        zero: Whether there is one more class, whose score is always 0.
    """
    (k, p), classes = sums.shape, sums.shape[0] + zero
    w, g = flat.reshape(k, p), gradient.reshape(k, p)
    base2, scores, part = w * LOG2E, np.zeros((classes, ROWS)), np.empty((k, p))
    top, norm, weighted = np.empty(ROWS), np.empty(ROWS), np.empty((p, ROWS))
    total = 0.0
    g[:] = 0.0
    for b in range(x.shape[0]):
        np.dot(base2, x[b], scores[:k])
        scores[k:] = 0.0
        _row_maxima(scores, top)
        _exponentiate_scores(scores, top, norm)
        norm[min(ROWS, rows - b * ROWS) :] = 1.0
        total += _sum_log_norms(top, norm)
        inverse = 1 / norm
        for f in range(p):
            for i in range(ROWS):
                weighted[f, i] = x[b, f, i] * inverse[i]
        np.dot(scores[:k], weighted.T, part)
        g += part
    loss = total * LN2
    square = 0.0
    for c in range(k):
        for f in range(p):
            loss -= w[c, f] * sums[c, f]
            g[c, f] = (g[c, f] - sums[c, f]) / rows
            if f < p - 1:
                square += w[c, f] ** 2
                g[c, f] += penalty * w[c, f]
    return loss / rows + 0.5 * penalty * square
