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

from unbraid.runtime.jit import kernel
from unbraid.runtime.vectors import (
    add,
    aligned,
    divide,
    exp2,
    fill,
    lanes,
    load,
    maximum,
    multiply,
    multiply_add,
    round_up,
    store,
    subtract,
)

Array = np.ndarray[Any, np.dtype[Any]]

ROWS = 64  # rows per block. The scores of 40 classes take 20 kB, so a block stays in the first-level cache.
LN2, LOG2E = math.log(2.0), 1 / math.log(2.0)
NEVER = -1e30  # score of the classes that pad the weights; their probability is 0
ONE, MANTISSA = 1023 << 52, (1 << 52) - 1  # the bits of 1.0, and the mask of the bits of the fraction of a float


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


def as_blocks(codes: Array, dtype: type) -> Array:
    """Return the codes and a column of ones as blocks of shape (blocks, columns, ROWS) and of the given type.

    All products use this type. The blocks are padded with rows of zeros, and with columns of zeros, so that the number
    of columns is a multiple of four.
    """
    n, d = codes.shape
    count, columns = -(-n // ROWS), round_up(d + 1, 4)
    table = np.zeros((count * ROWS, columns), dtype)
    table[:n, :d], table[:n, d] = codes, 1.0
    blocks = aligned(table.size, dtype(0)).reshape(count, columns, ROWS)
    blocks[:] = table.reshape(count, ROWS, columns).transpose(0, 2, 1)
    return blocks


@kernel()
def _padded_weights(w: Array, zero: bool, number: Any) -> Array:
    """Return the weights (k, p) for base-2 logarithms, with rows for the class of score 0 and for padding.

    The number of rows is a multiple of four. The weights have the type of `number`, which must be 0.
    """
    (k, p), classes = w.shape, len(w) + zero
    padded = aligned(round_up(classes, 4) * p, number).reshape(-1, p)
    padded[:k] = w * LOG2E
    padded[classes:, p - 1] = NEVER
    return padded


@kernel()
def _store_four(scores: Array, at: int, a: Any, b: Any, c: Any, d: Any, top: Any) -> Any:
    """Write vectors of the scores of four successive classes, and return the maximum of these vectors and of `top`.

    The scores of the first class are written to index `at` of the flattened array.
    """
    store(scores, at, a)
    store(scores, at + ROWS, b)
    store(scores, at + 2 * ROWS, c)
    store(scores, at + 3 * ROWS, d)
    return maximum(top, maximum(maximum(a, b), maximum(c, d)))


@kernel()
def _linear_scores(weights: Array, x: Array, i: int, scores: Array) -> Any:
    """Write the product of the weights (k, p) and two vectors of rows of x, from row i on, to `scores` (k, ROWS).

    The largest score of each of these rows is returned. k must be a multiple of four. Four classes are processed at a
    time, so that their scores stay in registers.
    """
    j, p = i + lanes(x), weights.shape[1]
    number = x.dtype.type
    top_a = top_b = fill(number(-np.inf))
    for c in range(0, len(weights), 4):
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = fill(number(0))
        for f in range(p):
            a, b = load(x, f * ROWS + i), load(x, f * ROWS + j)
            u, v = fill(weights[c, f]), fill(weights[c + 1, f])
            a0, b0, a1, b1 = (
                multiply_add(u, a, a0),
                multiply_add(u, b, b0),
                multiply_add(v, a, a1),
                multiply_add(v, b, b1),
            )
            u, v = fill(weights[c + 2, f]), fill(weights[c + 3, f])
            a2, b2, a3, b3 = (
                multiply_add(u, a, a2),
                multiply_add(u, b, b2),
                multiply_add(v, a, a3),
                multiply_add(v, b, b3),
            )
        top_a = _store_four(scores, c * ROWS + i, a0, a1, a2, a3, top_a)
        top_b = _store_four(scores, c * ROWS + j, b0, b1, b2, b3, top_b)
    return top_a, top_b


@kernel()
def _exponentiate(scores: Array, i: int, top: Any, norm: Array) -> None:
    """Replace a vector of `scores` (k, ROWS) by 2^(scores - top), and write the sum over the k classes to `norm`."""
    total = fill(scores.dtype.type(0))
    for c in range(len(scores)):
        power = exp2(subtract(load(scores, c * ROWS + i), top))
        store(scores, c * ROWS + i, power)
        total = add(total, power)
    store(norm, i, total)


@kernel()
def _softmax_terms(weights: Array, x: Array, powers: Array, top: Array, norm: Array) -> None:
    """Write the largest score of each row to `top`, 2^(scores - top) to `powers`, and their sums to `norm`."""
    n = lanes(x)
    for i in range(0, ROWS, 2 * n):
        first, second = _linear_scores(weights, x, i, powers)
        store(top, i, first)
        store(top, i + n, second)
        _exponentiate(powers, i, first, norm)
        _exponentiate(powers, i + n, second, norm)


@kernel()
def _divide_rows(x: Array, norm: Array, quotients: Array) -> None:
    """Write x (p, ROWS), divided by the norm of each row, to `quotients`."""
    for i in range(0, ROWS, lanes(x)):
        inverse = divide(fill(x.dtype.type(1)), load(norm, i))
        for f in range(len(x)):
            store(quotients, f * ROWS + i, multiply(load(x, f * ROWS + i), inverse))


@kernel()
def _add_products(powers: Array, x: Array, sums: Array) -> None:
    """Add powers (k, ROWS) times the transpose of x (p, ROWS) to `sums` (k, p, n).

    k must be even, and p a multiple of four. The sum over the rows is distributed over the n entries of a vector.
    """
    k, p, n = powers.shape[0], x.shape[0], lanes(x)
    for c in range(0, k, 2):
        for f in range(0, p, 4):
            s, t = (c * p + f) * n, (c * p + p + f) * n
            a0, a1, a2, a3 = load(sums, s), load(sums, s + n), load(sums, s + 2 * n), load(sums, s + 3 * n)
            b0, b1, b2, b3 = load(sums, t), load(sums, t + n), load(sums, t + 2 * n), load(sums, t + 3 * n)
            for i in range(0, ROWS, n):
                u, v, r = load(powers, c * ROWS + i), load(powers, c * ROWS + ROWS + i), f * ROWS + i
                x0, x1, x2, x3 = load(x, r), load(x, r + ROWS), load(x, r + 2 * ROWS), load(x, r + 3 * ROWS)
                a0, a1 = multiply_add(u, x0, a0), multiply_add(u, x1, a1)
                a2, a3 = multiply_add(u, x2, a2), multiply_add(u, x3, a3)
                b0, b1 = multiply_add(v, x0, b0), multiply_add(v, x1, b1)
                b2, b3 = multiply_add(v, x2, b2), multiply_add(v, x3, b3)
            for q, a, b in ((0, a0, b0), (n, a1, b1), (2 * n, a2, b2), (3 * n, a3, b3)):
                store(sums, s + q, a)
                store(sums, t + q, b)


@kernel()
def _multiply_into(products: Array, norm: Array) -> int:
    """Multiply `products` (8,) by the norms, and return the sum of the exponents by which they were divided again.

    Each entry stays in [1, 2), so the products cannot overflow.
    """
    exponents = 0
    for i in range(0, ROWS, len(products)):
        for lane in range(len(products)):
            bits = _float_to_bits(products[lane] * norm[i + lane])
            exponents += (bits >> 52) - 1023
            products[lane] = _bits_to_float((bits & MANTISSA) | ONE)
    return exponents


@kernel()
def _sum(numbers: Array) -> float:
    """Return the sum of numbers, computed in float64."""
    total = 0.0
    for i in range(len(numbers)):
        total += numbers[i]
    return total


@kernel()
def loss_gradient(
    flat: Array, gradient: Array, blocks: Array, rows: int, sums: Array, penalty: float, zero: bool
) -> float:
    """Return the mean log-loss plus the penalty of the weights in `flat`, and write the gradient to `gradient`.

    `flat` and `gradient` are flattened matrices of shape (k, d + 1). The last column holds the intercepts. They are
    float64, whatever the type of the blocks.

    Args:
        flat: Weights of k classes.
        gradient: Output array for the gradient.
        blocks: Codes as returned by `as_blocks`.
        rows: Number of rows without padding.
        sums: Sums of x over the rows of each class. Loss and gradient depend on the labels only through these sums.
        penalty: Coefficient of the L2 penalty. The penalty is half the sum of the squared weights, without the
            intercepts.
        zero: Whether there is one more class, whose score is always 0.
    """
    (k, p), columns = sums.shape, blocks.shape[1]
    w, g = flat.reshape(k, p), gradient.reshape(k, p)
    n, number = lanes(blocks), blocks.dtype.type(0)
    weights = _padded_weights(w, zero, number)
    powers = aligned(len(weights) * ROWS, number).reshape(-1, ROWS)
    expected = aligned(len(weights) * columns * n, number).reshape(-1, columns, n)
    weighted, top, norm = (
        aligned(columns * ROWS, number).reshape(-1, ROWS),
        aligned(ROWS, number),
        aligned(ROWS, number),
    )
    products, exponents, total = np.ones(8), 0, 0.0
    for b in range(len(blocks)):
        x = blocks[b]
        _softmax_terms(weights, x, powers, top, norm)
        total += _sum(top)
        norm[min(ROWS, rows - b * ROWS) :] = 1.0
        exponents += _multiply_into(products, norm)
        _divide_rows(x, norm, weighted)
        _add_products(powers, weighted, expected)
    loss: float = (total + exponents + np.sum(np.log2(products))) * LN2
    square = 0.0
    for c in range(k):
        for f in range(p):
            loss -= w[c, f] * sums[c, f]
            g[c, f] = (_sum(expected[c, f]) - sums[c, f]) / rows
            if f < p - 1:
                square += w[c, f] ** 2
                g[c, f] += penalty * w[c, f]
    return loss / rows + 0.5 * penalty * square
