"""Codes with known scores, and one way to call every metric on them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from unbraid.metrics import METRICS

Array = np.ndarray[Any, np.dtype[Any]]
ARRAYS = ("codes", "factors", "test_codes", "test_factors")

CODE_SIZES = {
    "dsprites": (3, 6, 40, 32, 32),
    "smallnorb": (5, 9, 18, 6),
    "cars3d": (4, 24, 183),
    "shapes3d": (10, 10, 10, 8, 4, 15),
    "mpi3d": (6, 6, 2, 3, 3, 40, 40),
}


def array_parameters(name: str) -> set[str]:
    """Return the names of the array parameters of a metric."""
    return set(inspect.signature(METRICS[name]).parameters) & set(ARRAYS)


def score(name: str, codes: object, factors: object, **options: Any) -> dict[str, float]:
    """Compute a metric with one table as training and test points, and by default with the options of its law."""
    from laws import LAWS

    arrays = {"codes": codes, "factors": factors, "test_codes": codes, "test_factors": factors}
    used = {key: arrays[key] for key in array_parameters(name)}
    return METRICS[name](**used, **{**LAWS[name].options, **options})


def factor_grid(*sizes: int) -> Array:
    """Return every combination of factor values. The last factor varies fastest."""
    return np.indices(sizes).reshape(len(sizes), -1).T


def random_factors(sizes: tuple[int, ...], rows: int, seed: int) -> Array:
    """Return rows of independent, uniform factor values."""
    return np.random.default_rng(seed).integers(sizes, size=(rows, len(sizes)))


def noise(rows: int, d: int, seed: int = 0) -> Array:
    """Return standard normal codes."""
    return np.random.default_rng(seed).normal(size=(rows, d))


def reflected(codes: Array) -> Array:
    """Return standardised codes times a Householder matrix that mixes all of them."""
    z = (codes - codes.mean(axis=0)) / codes.std(axis=0)
    v = np.arange(1, z.shape[1] + 1) / np.linalg.norm(np.arange(1, z.shape[1] + 1))
    return np.asarray(z @ (np.eye(z.shape[1]) - 2 * np.outer(v, v)))


MAPS: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "rows": lambda c, v: (c[(order := np.random.default_rng(1).permutation(len(c)))], v[order]),
    "codes": lambda c, v: (np.roll(c, 1, axis=1), v),
    "factors": lambda c, v: (c, np.roll(v, 1, axis=1)),
    "affine": lambda c, v: (c * np.resize([3.0, 0.7, 11.0], c.shape[1]) + np.resize([5.0, -2.0, 0.1], c.shape[1]), v),
}

GRID = factor_grid(5, 4, 6)
NOISY = GRID + 0.4 * noise(len(GRID), 3)
CASES: dict[str, Array] = {
    "perfect": GRID.astype(float),
    "noisy": NOISY,
    "reflected": reflected(GRID),
    "noise": noise(len(GRID), 3),
    "collapsed": NOISY * [1, 1, 0] + [0, 0, 0.3],
    "all constant": np.full(GRID.shape, 0.3),
    "duplicates": NOISY[:, [0, 0, 1]],
}
