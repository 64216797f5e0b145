"""Codes with known virtues and vices, made from factors: a perfect one, pure noise, and what fools whom."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

Planted = Callable[[Int[np.ndarray, "n k"], int], Float[np.ndarray, "n d"]]


def perfect(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """One code a factor: its values, centred.

    >>> perfect(np.array([[0, 0], [2, 3]])).tolist()
    [[-1.0, -1.5], [1.0, 1.5]]
    """
    return np.asarray(factors - (factors.min(axis=0) + factors.max(axis=0)) / 2)


def noise(factors: Int[np.ndarray, "n k"], seed: int = 0, *, d: int = 10) -> Float[np.ndarray, "n d"]:
    """Standard normal codes that know nothing of the factors."""
    return np.random.default_rng([seed, d]).normal(size=(len(factors), d))


def noisy(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """The perfect code in units of its standard deviation, with noise of .3 added."""
    return _standard(perfect(factors)) + 0.3 * noise(factors, seed, d=factors.shape[1])


def rotated(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """The perfect code in units of its standard deviation, reflected so that every code mixes all factors.

    No information is lost and distances stay: whatever does not fall here does not see axes.
    """
    k = factors.shape[1]
    v = np.arange(1, k + 1) / np.linalg.norm(np.arange(1, k + 1))
    return np.asarray(_standard(perfect(factors)) @ (np.eye(k) - 2 * np.outer(v, v)))


def duplicated(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n m"]:
    """Every perfect code twice: complete and modular, but not compact."""
    return np.repeat(perfect(factors), 2, axis=1)


def merged(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n d"]:
    """The first two factors in one code (one number for each pair of values), the others perfect: not modular."""
    width = np.ptp(factors[:, 1]) + 1
    pair = (factors[:, 0] - factors[:, 0].min()) * width + factors[:, 1] - factors[:, 1].min()
    return perfect(np.c_[pair, factors[:, 2:]])


def collapsed(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """The perfect code with its last dimension exactly constant: one factor is told by nobody."""
    codes = perfect(factors)
    codes[:, -1] = 0.3
    return codes


def scrambled(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """One code a factor, with the values in a random order: as complete as the perfect code, and not monotonic."""
    rng = np.random.default_rng(seed)
    columns = []
    for column in perfect(factors).T:
        values, place = np.unique(column, return_inverse=True)
        columns.append(rng.permutation(values)[place])
    return np.stack(columns, axis=1)


def squeezed(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """The perfect code with one far outlier in 500 points, which squeezes all other points into one bin."""
    codes = perfect(factors)
    codes[::500] = 1000 * (1 + np.abs(codes).max(axis=0))
    return codes


PLANTED: dict[str, Planted] = {
    "perfect": perfect,
    "noisy": noisy,
    "rotated": rotated,
    "duplicated": duplicated,
    "merged": merged,
    "collapsed": collapsed,
    "scrambled": scrambled,
    "squeezed": squeezed,
    "noise": noise,
}


def _standard(codes: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    return np.asarray((codes - codes.mean(axis=0)) / codes.std(axis=0))
