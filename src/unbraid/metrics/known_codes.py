"""Codes with known strengths and weaknesses, made from factors: perfect codes, pure noise, and cases between them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

KnownCode = Callable[[Int[np.ndarray, "n k"], int], Float[np.ndarray, "n d"]]


def perfect(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """One code per factor, which holds the values of the factor, centred.

    >>> perfect(np.array([[0, 0], [2, 3]])).tolist()
    [[-1.0, -1.5], [1.0, 1.5]]
    """
    return np.asarray(factors - (factors.min(axis=0) + factors.max(axis=0)) / 2)


def noise(factors: Int[np.ndarray, "n k"], seed: int = 0, *, d: int = 10) -> Float[np.ndarray, "n d"]:
    """Standard normal codes that are independent of the factors."""
    return np.random.default_rng([seed, d]).normal(size=(len(factors), d))


def noisy(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """The perfect code, standardised, plus normal noise with standard deviation .3."""
    return _standardise(perfect(factors)) + 0.3 * noise(factors, seed, d=factors.shape[1])


def rotated(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """The perfect code, standardised and reflected so that every code mixes all factors.

    The reflection keeps all information and all distances, so a metric whose score does not fall cannot detect axis
    alignment.
    """
    k = factors.shape[1]
    v = np.arange(1, k + 1) / np.linalg.norm(np.arange(1, k + 1))
    return np.asarray(_standardise(perfect(factors)) @ (np.eye(k) - 2 * np.outer(v, v)))


def duplicated(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n m"]:
    """Every perfect code twice: modular and informative, but not compact."""
    return np.repeat(perfect(factors), 2, axis=1)


def merged(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n d"]:
    """The first two factors in one code, one number for each pair of values, and perfect codes of the others."""
    width = np.ptp(factors[:, 1]) + 1
    pair = (factors[:, 0] - factors[:, 0].min()) * width + factors[:, 1] - factors[:, 1].min()
    return perfect(np.c_[pair, factors[:, 2:]])


def collapsed(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """The perfect code with its last dimension exactly constant, so that no code represents the last factor."""
    codes = perfect(factors)
    codes[:, -1] = 0.3
    return codes


def scrambled(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """One code per factor with the values in random order: as informative as the perfect code, but not monotonic."""
    rng = np.random.default_rng(seed)
    columns = []
    for column in perfect(factors).T:
        values, place = np.unique(column, return_inverse=True)
        columns.append(rng.permutation(values)[place])
    return np.stack(columns, axis=1)


def squeezed(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """The perfect code with one distant outlier per 500 points, which squeezes all other points into one bin."""
    codes = perfect(factors)
    codes[::500] = 1000 * (1 + np.abs(codes).max(axis=0))
    return codes


KNOWN_CODES: dict[str, KnownCode] = {
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


def _standardise(codes: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    return np.asarray((codes - codes.mean(axis=0)) / codes.std(axis=0))
