"""Compiled loops over the residuals of all classes, with operations on whole registers.

All arrays have one row per class or one column per class, and are padded to a multiple of `LANES` numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unbraid.metrics.trees.cuts import Number
from unbraid.runtime.jit import kernel
from unbraid.runtime.vectors import (
    LANES,
    absolute,
    add,
    divide,
    exp2,
    fill,
    load,
    maximum,
    multiply,
    round_to_integers,
    store,
    subtract,
)

Array = np.ndarray[Any, np.dtype[Any]]
LOG2E = float(1 / np.log(2))


@kernel()
def _store_probabilities(raw: Array, i: Number, out: Array) -> Any:
    """Write 2^((raw - top) log2 e) of the rows from i on to `out`, and return -1 divided by their sum over classes.

    top is the largest score of a row.
    """
    k, m = raw.shape
    top, total = load(raw, i), fill(0.0)
    for c in range(1, k):
        top = maximum(top, load(raw, c * m + i))
    for c in range(k):
        power = exp2(multiply(subtract(load(raw, c * m + i), top), fill(LOG2E)))
        store(out, c * m + i, power)
        total = add(total, power)
    return divide(fill(-1.0), total)


@kernel()
def softmax_residuals(raw: Array, y: Array, a: Number, z: Number, out: Array, sizes: Array) -> None:
    """Write the residuals one-hot(y) - softmax(raw) of rows a to z - 1 to `out`, and their absolute sums to `sizes`.

    There are LANES partial sums per class, in an array of shape (k, LANES). a must be a multiple of LANES. The rows up
    to the next multiple of LANES after z are computed as well. They have no class.
    """
    k, m = raw.shape
    sizes[:] = 0.0
    for i in range(a, z, LANES):
        scale = _store_probabilities(raw, i, out)
        for c in range(k):
            residual = multiply(load(out, c * m + i), scale)
            store(out, c * m + i, residual)
            store(sizes, c * LANES, add(load(sizes, c * LANES), absolute(residual)))
    for i in range(a, min(z, len(y))):
        before = out[y[i], i]
        out[y[i], i] = before + 1
        sizes[y[i], 0] += abs(before + 1) - abs(before)


@kernel()
def pack_residuals(
    residual: Array, a: Number, z: Number, scale: Array, shift: Number, packed: Array, by_row: Array
) -> None:
    """Write one packed int64 per residual of rows a to z - 1 to `packed` (k, m), and transposed to `by_row`.

    The rows up to the next multiple of LANES after z are also written to `packed`.
    """
    k, m = residual.shape
    one = fill(np.int64(1) << shift)
    for c in range(k):
        factor = fill(scale[c])
        for i in range(a, z, LANES):
            number = round_to_integers(multiply(load(residual, c * m + i), factor))
            store(packed, c * m + i, add(one, number))
    for i in range(a, z):
        for c in range(k):
            by_row[i, c] = packed[c, i]


@kernel()
def add_to_histogram(f: Number, bin_index: Array, by_row: Array, a: Number, z: Number, root: Array) -> None:
    """Add the packed residuals of rows a to z - 1 to the histogram over the bins of column f, for all classes."""
    k = by_row.shape[1]
    for i in range(a, z):
        h, row = np.int64(bin_index[i, f]) * k, i * k
        for c in range(0, k, LANES):
            total = add(load(root, h + c), load(by_row, row + c))
            store(root, h + c, total)
