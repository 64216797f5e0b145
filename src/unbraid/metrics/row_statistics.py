"""Compiled statistics of selected rows of a table. They are computed without copying the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]


@kernel()
def row_variances(codes: Array, rows: Array) -> Array:
    """Return, for each t, the variance (ddof 1) of each latent over rows[t]. It is exactly 0 for equal values."""
    (m, batch), d = rows.shape, codes.shape[1]
    result = np.empty((m, d))
    first, second = np.empty(d), np.empty(d)
    for t in range(m):
        origin = codes[rows[t, 0]]  # subtracting one of the rows avoids cancellation if codes are far from 0
        first[:] = 0.0
        second[:] = 0.0
        for b in range(1, batch):
            row = codes[rows[t, b]]
            for i in range(d):
                difference = row[i] - origin[i]
                first[i] += difference
                second[i] += difference * difference
        for i in range(d):
            result[t, i] = max(0.0, second[i] - first[i] * first[i] / batch) / (batch - 1)
    return result


@kernel()
def mean_differences(codes: Array, rows: Array, others: Array) -> Array:
    """Return, for each t, the mean over b of abs(codes[rows[t, b]] - codes[others[t, b]])."""
    (m, batch), d = rows.shape, codes.shape[1]
    result = np.zeros((m, d))
    for t in range(m):
        for b in range(batch):
            one, two = codes[rows[t, b]], codes[others[t, b]]
            for i in range(d):
                result[t, i] += abs(one[i] - two[i])
    result /= batch
    return result


@kernel()
def pair_hausdorff(codes: Array) -> Array:
    """Return the squared Hausdorff distance of each pair of latents (see `factorised_support`).

    Entry (i, j) with i < j is the largest squared distance of a point (codes[a, i], codes[b, j]) from its nearest row
    of codes[:, [i, j]]. All other entries are 0.
    """
    n, d = codes.shape
    result = np.zeros((d, d))
    squares = np.empty((d, n, n))
    for i in range(d):
        for a in range(n):
            squares[i, a] = (codes[a, i] - codes[:, i]) ** 2
    for i in range(d):
        for j in range(i + 1, d):
            for a in range(n):
                for b in range(n):
                    nearest = np.inf
                    for m in range(n):
                        nearest = min(nearest, squares[i, a, m] + squares[j, b, m])
                        if nearest <= result[i, j]:  # the largest distance cannot grow
                            break
                    result[i, j] = max(result[i, j], nearest)
    return result
