"""Compiled loop that fits all stages of boosted trees to one column of numbers, by the squared error."""

from __future__ import annotations

from typing import Any

import numpy as np

from unbraid.metrics.trees.bins import Columns, Trees
from unbraid.metrics.trees.cuts import Number
from unbraid.metrics.trees.growth import INNER, Workspace, fill_histogram, grow_tree
from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]


@kernel()
def pack_column(residual: Array, scale: Number, shift: Number, packed: Array) -> None:
    """Write one packed int64 per residual: the count 1 in the high bits, the fixed-point residual in the low bits."""
    one = np.int64(1) << shift
    for i in range(len(residual)):
        packed[i] = one + np.int64(np.floor(residual[i] * scale + 0.5))


@kernel()
def set_leaf_means(residual: Array, where: Array, rate: Number, value: Array) -> None:
    """Set the value of each leaf to the mean residual of its rows times the learning rate."""
    count = np.zeros(INNER + 1)
    value[:] = 0.0
    for i in range(len(residual)):
        value[where[i] - INNER] += residual[i]
        count[where[i] - INNER] += 1
    for leaf in range(INNER + 1):
        value[leaf] *= rate / max(count[leaf], 1.0)


@kernel()
def fit_regression_stages(columns: Columns, y: Array, raw: Array, rate: Number, seed: Number, trees: Trees) -> None:
    """Grow one tree per stage on the residuals y - raw, and update the predictions `raw` (n,) of the training rows."""
    n, d, bins = len(y), len(columns.x), len(columns.divisible)
    packed, everything = np.empty(n, np.int64), np.arange(n).astype(np.uint32)
    space = Workspace(
        np.empty((INNER, 2, bins), np.int64), np.empty(n, np.uint32), np.empty(n, np.uint32), np.empty(n, np.uint8),
        np.arange(d).astype(np.int32), np.empty(bins, np.int64), np.empty(bins, np.bool_), np.empty(n, np.int64),
    )  # fmt: skip
    shift = 62 - int(np.ceil(np.log2(n + 1)))
    for stage in range(len(trees.value)):
        residual = y - raw
        scale = 2.0 ** min(np.floor(shift - 2 - np.log2(np.abs(residual).sum() + 1e-300)), 300.0)
        pack_column(residual, scale, shift, packed)
        fill_histogram(space.hist[0], everything, packed, residual, columns.bin_index)
        own_seed = seed + np.uint64(stage) * np.uint64(0xD1342543DE82EF95)
        value = trees.value[stage, 0]
        grow_tree(residual, packed, shift, scale, columns, space, own_seed,
             trees.feature[stage, 0], trees.threshold[stage, 0], value, trees.importance[stage, 0])  # fmt: skip
        set_leaf_means(residual, space.where, rate, value)
        for i in range(n):
            raw[i] += value[space.where[i] - INNER]
