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
    """Return the codes and a column of ones as blocks of shape (blocks, columns, ROWS).

    They are padded with rows of zeros, and with columns of zeros, so that the number of columns is a multiple of four.
    """
    n, d = codes.shape
    count, columns = -(-n // ROWS), _round_up(d + 1, 4)
    table = np.zeros((count * ROWS, columns))
    table[:n, :d], table[:n, d] = codes, 1.0
    return np.ascontiguousarray(table.reshape(count, ROWS, columns).transpose(0, 2, 1))


@kernel()
def _round_up(n: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is not below n."""
    return -(-n // multiple) * multiple


@kernel(fastmath=FAST)
def _linear_scores(weights: Array, x: Array, scores: Array) -> None:
    """Write weights (k, p) times x (p, ROWS) to `scores`. k must be even, and p a multiple of four.

    Two classes and four columns are processed at a time, so that the weights stay in registers. For matrices of this
    shape, this takes about half of the time of a matrix product of BLAS.
    """
    scores[:] = 0.0
    for c in range(0, len(weights), 2):
        s0, s1 = scores[c], scores[c + 1]
        for f in range(0, len(x), 4):
            x0, x1, x2, x3 = x[f], x[f + 1], x[f + 2], x[f + 3]
            a0, a1, a2, a3 = weights[c, f], weights[c, f + 1], weights[c, f + 2], weights[c, f + 3]
            b0, b1, b2, b3 = weights[c + 1, f], weights[c + 1, f + 1], weights[c + 1, f + 2], weights[c + 1, f + 3]
            for i in range(ROWS):
                s0[i] += a0 * x0[i] + a1 * x1[i] + a2 * x2[i] + a3 * x3[i]
                s1[i] += b0 * x0[i] + b1 * x1[i] + b2 * x2[i] + b3 * x3[i]


@kernel(fastmath=FAST | {"reassoc"})
def _add_products(scores: Array, x: Array, sums: Array) -> None:
    """Add scores (k, ROWS) times the transpose of x (p, ROWS) to `sums`. k must be even, and p a multiple of four."""
    for c in range(0, len(scores), 2):
        s0, s1 = scores[c], scores[c + 1]
        for f in range(0, len(x), 4):
            x0, x1, x2, x3 = x[f], x[f + 1], x[f + 2], x[f + 3]
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = 0.0
            for i in range(ROWS):
                u, v = s0[i], s1[i]
                a0, a1, a2, a3 = a0 + u * x0[i], a1 + u * x1[i], a2 + u * x2[i], a3 + u * x3[i]
                b0, b1, b2, b3 = b0 + v * x0[i], b1 + v * x1[i], b2 + v * x2[i], b3 + v * x3[i]
            for q, value in enumerate((a0, a1, a2, a3)):
                sums[c, f + q] += value
            for q, value in enumerate((b0, b1, b2, b3)):
                sums[c + 1, f + q] += value


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
    base2 = np.zeros((_round_up(classes, 2), x.shape[1]))  # the last class has the score 0 if `zero`
    base2[:k, :p] = w * LOG2E
    scores, expected = np.empty((len(base2), ROWS)), np.zeros(base2.shape)
    top, norm, weighted = np.empty(ROWS), np.empty(ROWS), np.empty(x.shape[1:])
    total = 0.0
    for b in range(x.shape[0]):
        _linear_scores(base2, x[b], scores)
        _row_maxima(scores[:classes], top)
        _exponentiate_scores(scores[:classes], top, norm)
        norm[min(ROWS, rows - b * ROWS) :] = 1.0
        total += _sum_log_norms(top, norm)
        inverse = 1 / norm
        for f in range(x.shape[1]):
            for i in range(ROWS):
                weighted[f, i] = x[b, f, i] * inverse[i]
        _add_products(scores, weighted, expected)
    loss = total * LN2
    square = 0.0
    for c in range(k):
        for f in range(p):
            loss -= w[c, f] * sums[c, f]
            g[c, f] = (expected[c, f] - sums[c, f]) / rows
            if f < p - 1:
                square += w[c, f] ** 2
                g[c, f] += penalty * w[c, f]
    return loss / rows + 0.5 * penalty * square
