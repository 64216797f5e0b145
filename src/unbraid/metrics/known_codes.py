"""Representations with known strengths and weaknesses, generated from factors.

They range from perfect codes to pure noise. All functions take a random seed because they share one signature, but the
deterministic ones ignore it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int, Real

from unbraid.metrics.mcc import as_numbers

CodeGenerator = Callable[[Int[np.ndarray, "n k"], int], Float[np.ndarray, "n d"]]


def make_perfect_codes(factors: Real[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """Return one latent per factor. Each latent holds the centred values of its factor.

    The code of a missing label (NaN) is 0.

    >>> make_perfect_codes(np.array([[0, 0], [2, 3]])).tolist()
    [[-1.0, -1.5], [1.0, 1.5]]
    """
    numbers = as_numbers(factors)
    codes = np.asarray(numbers - (np.fmin.reduce(numbers) + np.fmax.reduce(numbers)) / 2)
    return np.where(np.isnan(codes), 0.0, codes)


def make_noise_codes(factors: Real[np.ndarray, "n k"], seed: int = 0, *, d: int = 10) -> Float[np.ndarray, "n d"]:
    """Return standard normal latents that are independent of the factors."""
    return np.random.default_rng([seed, d]).normal(size=(len(factors), d))


def make_noisy_codes(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """Return the perfect codes, standardised, plus normal noise with a standard deviation of 0.3."""
    return _standardise(make_perfect_codes(factors)) + 0.3 * make_noise_codes(factors, seed, d=factors.shape[1])


def make_rotated_codes(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """Return the perfect codes, standardised and mixed by an orthogonal transformation of all latents.

    The transformation is a Householder reflection. Like a rotation, it preserves all information and all distances. If
    these codes score as high as the perfect codes, the metric cannot detect axis alignment.
    """
    k = factors.shape[1]
    v = np.arange(1, k + 1) / np.linalg.norm(np.arange(1, k + 1))
    return np.asarray(_standardise(make_perfect_codes(factors)) @ (np.eye(k) - 2 * np.outer(v, v)))


def make_duplicated_codes(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n m"]:
    """Return two copies of each perfect latent. They are modular and informative, but not compact."""
    return np.repeat(make_perfect_codes(factors), 2, axis=1)


def make_merged_codes(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n d"]:
    """Return one latent that numbers the combinations of the first two factors, and perfect latents for all others."""
    width = np.ptp(factors[:, 1]) + 1
    pair = (factors[:, 0] - factors[:, 0].min()) * width + factors[:, 1] - factors[:, 1].min()
    return make_perfect_codes(np.c_[pair, factors[:, 2:]])


def make_collapsed_codes(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """Return the perfect codes with a constant last latent, so no latent represents the last factor."""
    codes = make_perfect_codes(factors)
    codes[:, -1] = 0.3
    return codes


def make_scrambled_codes(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """Return the perfect codes after a random permutation of the values of each factor.

    The codes are as informative as the perfect codes, but they are not monotonic functions of the factors.
    """
    rng = np.random.default_rng(seed)
    columns = []
    for column in make_perfect_codes(factors).T:
        values, index = np.unique(column, return_inverse=True)
        columns.append(rng.permutation(values)[index])
    return np.stack(columns, axis=1)


def make_codes_with_outliers(factors: Int[np.ndarray, "n k"], seed: int = 0) -> Float[np.ndarray, "n k"]:
    """Return the perfect codes with one distant outlier per 500 examples.

    All other examples then fall into the same equal-width bin.
    """
    codes = make_perfect_codes(factors)
    codes[::500] = 1000 * (1 + np.abs(codes).max(axis=0))
    return codes


KNOWN_CODES: dict[str, CodeGenerator] = {
    "perfect": make_perfect_codes,
    "noisy": make_noisy_codes,
    "rotated": make_rotated_codes,
    "duplicated": make_duplicated_codes,
    "merged": make_merged_codes,
    "collapsed": make_collapsed_codes,
    "scrambled": make_scrambled_codes,
    "squeezed": make_codes_with_outliers,
    "noise": make_noise_codes,
}


def _standardise(codes: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return the codes with mean 0 and standard deviation 1 in each column."""
    return np.asarray((codes - codes.mean(axis=0)) / codes.std(axis=0))
