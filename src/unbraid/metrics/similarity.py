"""Similarity of the codes of two models: linear CKA, Procrustes distance and linear maps."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Real

from unbraid.metrics.arrays import Codes, as_codes, input_error

DEBIASED_ROWS = 4  # minimum number of rows n, because the unbiased estimator divides by n (n - 3)


def linear_cka(a: Codes, b: Codes) -> float:
    r"""Measure the similarity of the codes of two models by linear centred kernel alignment (CKA).

    .. math:: \frac{\|A'B\|_F^2}{\|A'A\|_F \, \|B'B\|_F}

    where A and B are the codes with the mean of each column subtracted, and A' is the transpose of A.

    The score lies in [0, 1]. 0 means that no latent of one model correlates with a latent of the other. 1 means that
    the codes are equal up to a rotation or reflection, a shift and one common scale. The score is NaN if all codes of a
    model are constant.

    Limitations: The score does not say whether single latents agree, because a rotation does not change it. Latents
    with a large variance dominate it. Codes that are unrelated score about d / n and not 0, see `debiased_cka`.

    Reference: Kornblith et al. (2019), arXiv:1905.00414, section 3.

    Args:
        a: Codes of the first model, (n, d), one row per example.
        b: Codes of the second model for the same examples, (n, e).

    Returns:
        The score.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, or if the numbers of rows differ.

    Example:
        >>> codes = np.indices((4, 5)).reshape(2, -1).T
        >>> round(linear_cka(codes, 3 - 2 * codes[:, ::-1]), 6)
        1.0
    """
    x, y = _unit_codes(a, b)
    norms = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(np.linalg.norm(x.T @ y) ** 2 / norms) if norms > 0 else math.nan


def debiased_cka(a: Codes, b: Codes) -> float:
    r"""Measure the similarity of the codes of two models by linear CKA with unbiased estimates of its three terms.

    .. math:: \frac{h(A, B)}{\sqrt{h(A, A) \, h(B, B)}}, \quad h(A, B) = \|A'B\|_F^2
        - \frac{n}{n - 2} \sum_t \|a_t\|^2 \|b_t\|^2 + \frac{\sum_t \|a_t\|^2 \sum_t \|b_t\|^2}{(n - 1)(n - 2)}

    where A and B are the codes with the mean of each column subtracted, and :math:`a_t` is row t of A. h is n (n - 3)
    times the unbiased estimator of the Hilbert-Schmidt independence criterion for linear kernels.

    The score is at most 1. The expected value of h is 0 for unrelated codes, so the score varies around 0 and can be
    negative. 1 and NaN have the same meaning as in `linear_cka`.

    Reference: Song et al. (2012), "Feature selection via dependence maximization", JMLR 13, eq. 5, for the estimator;
    Nguyen et al. (2021), arXiv:2010.15327, for its use in CKA.

    Args:
        a: Codes of the first model, (n, d), one row per example, with n >= 4.
        b: Codes of the second model for the same examples, (n, e).

    Returns:
        The score.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, or if the numbers of rows differ or are below 4.

    Example:
        >>> codes = np.indices((4, 5)).reshape(2, -1).T
        >>> round(debiased_cka(codes, 3 - 2 * codes[:, ::-1]), 6)
        1.0
    """
    x, y = _unit_codes(a, b)
    if len(x) < DEBIASED_ROWS:
        raise input_error(f"Codes must have at least {DEBIASED_ROWS} rows.", f"{len(x)} rows", "Pass more examples.")
    own = _unbiased_dependence(x, x) * _unbiased_dependence(y, y)
    return _unbiased_dependence(x, y) / math.sqrt(own) if own > 0 else math.nan


def procrustes_distance(a: Codes, b: Codes) -> float:
    r"""Measure the distance between the codes of two models after the best rotation or reflection.

    .. math:: \min_{Q'Q = I} \|A - B Q\|_F = \sqrt{2 - 2 \|A'B\|_*}

    where A and B are the codes with the mean of each column subtracted and then scaled so that
    :math:`\|A\|_F = \|B\|_F = 1`, and :math:`\|\cdot\|_*` is the sum of the singular values. If one model has fewer
    latents, columns of zeros are added to its codes.

    The distance lies in [0, :math:`\sqrt 2`]. 0 means that the codes are equal up to a rotation or reflection, a shift
    and one common scale. :math:`\sqrt 2` means that no latent of one model correlates with a latent of the other. The
    distance satisfies the triangle inequality. It is NaN if all codes of a model are constant.

    Limitations: The same as those of `linear_cka`.

    Deviations: Ding et al. report the square of this distance.

    Reference: Schoenemann (1966), "A generalized solution of the orthogonal Procrustes problem", Psychometrika 31;
    Ding et al. (2021), arXiv:2108.01661.

    Args:
        a: Codes of the first model, (n, d), one row per example.
        b: Codes of the second model for the same examples, (n, e).

    Returns:
        The distance.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, or if the numbers of rows differ.

    Example:
        >>> codes = np.indices((4, 5)).reshape(2, -1).T
        >>> round(procrustes_distance(codes, 3 - 2 * codes[:, ::-1]), 6)
        0.0
    """
    x, y = _unit_codes(a, b)
    if not x.any() or not y.any():
        return math.nan
    return math.sqrt(max(0.0, 2 - 2 * float(np.linalg.svd(x.T @ y, compute_uv=False).sum())))


class LinearMap(NamedTuple):
    """A linear map with an offset, from codes (n, d) to codes (n, e).

    Attributes:
        weights: The matrix of the map.
        offset: The output of the map for codes that are all zero.
    """

    weights: Float[np.ndarray, "d e"]
    offset: Float[np.ndarray, " e"]

    def __call__(self, codes: Real[np.ndarray, "n d"]) -> Float[np.ndarray, "n e"]:
        """Apply the map to each row."""
        return np.asarray(codes @ self.weights + self.offset)


def fit_linear_map(a: Codes, b: Codes) -> LinearMap:
    r"""Fit the linear map that predicts the codes of one model from those of another by least squares.

    .. math:: \min_{W, c} \sum_t \|b_t - a_t W - c\|^2

    :math:`a_t` and :math:`b_t` are row t of `a` and of `b`. If several maps fit equally well, for example because a
    latent is constant, the one with the smallest weights is returned.

    Args:
        a: Codes of the first model, (n, d), one row per example.
        b: Codes of the second model for the same examples, (n, e).

    Returns:
        The map.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, or if the numbers of rows differ.

    Example:
        >>> codes = np.indices((4, 5)).reshape(2, -1).T
        >>> fit_linear_map(codes, 2 * codes + 1).offset.round(6).tolist()
        [1.0, 1.0]
    """
    x, y = _matching_codes(a, b)
    shift, target = x.mean(axis=0), y.mean(axis=0)
    weights = np.linalg.lstsq(x - shift, y - target, rcond=None)[0]
    return LinearMap(weights, target - shift @ weights)


def linear_r2(a: Codes, b: Codes, test_a: Codes, test_b: Codes) -> float:
    r"""Measure how well a linear map predicts the codes of one model from those of another.

    .. math:: 1 - \frac{\sum_t \|b_t - f(a_t)\|^2}{\sum_t \|b_t - \bar b\|^2}

    The linear map f is fitted to `a` and `b`. The sums run over the rows of `test_a` and `test_b`, and :math:`\bar b`
    is the mean of `test_b`.

    The score is at most 1. 1 means that the codes b are a linear function of the codes a. A score near 0 means that the
    codes a do not help to predict the codes b. The score is NaN if all test codes b are constant. The score is not
    symmetric. If the first model encodes more than the second, the codes of the first model predict those of the second
    better than the reverse.

    Reference: Kornblith et al. (2019), arXiv:1905.00414, section 3 ("linear regression"), where both sums run over the
    rows to which the map is fitted.

    Args:
        a: Codes of the first model, (n, d), one row per example.
        b: Codes of the second model for the same examples, (n, e).
        test_a: Codes of the first model for other examples, (m, d).
        test_b: Codes of the second model for these examples, (m, e).

    Returns:
        The score.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, or if the numbers of rows differ.

    Example:
        >>> codes = np.indices((4, 5)).reshape(2, -1).T
        >>> round(linear_r2(codes, 2 * codes + 1, codes, 2 * codes + 1), 6)
        1.0
    """
    x, y = _matching_codes(test_a, test_b)
    if not np.ptp(y, axis=0).any():
        return math.nan
    error = ((y - fit_linear_map(a, b)(x)) ** 2).sum()
    return float(1 - error / ((y - y.mean(axis=0)) ** 2).sum())


def _matching_codes(a: Codes, b: Codes) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n e"]]:
    """Return both arrays as float64. Raise an error if they are invalid or their numbers of rows differ."""
    x, y = as_codes(a, "The first codes"), as_codes(b, "The second codes")
    if len(x) != len(y):
        lengths = f"{len(x)} and {len(y)} rows"
        raise input_error("Codes of two models must have the same rows.", lengths, "Encode the same examples.")
    return x, y


def _unit_codes(a: Codes, b: Codes) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n e"]]:
    """Return both arrays with column means 0 and Frobenius norm 1. Codes that do not vary become exactly 0."""
    x, y = _matching_codes(a, b)
    return _centre_and_scale(x), _centre_and_scale(y)


def _centre_and_scale(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return the codes with column means 0 and Frobenius norm 1.

    Halving the values and dividing by the largest range first prevents overflow of the squares.
    """
    low, high = x.min(axis=0) / 2, x.max(axis=0) / 2
    largest = (high - low).max()
    if not largest > 0:
        return np.zeros_like(x)
    scaled = (x / 2 - low) / largest
    centred = np.where(high > low, scaled - scaled.mean(axis=0), 0.0)
    return np.asarray(centred / np.linalg.norm(centred))


def _unbiased_dependence(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n e"]) -> float:
    """Return h of `debiased_cka` for centred codes."""
    n, kx, ky = len(x), (x**2).sum(axis=1), (y**2).sum(axis=1)
    cross = float(np.linalg.norm(x.T @ y) ** 2)
    return cross - n / (n - 2) * float(kx @ ky) + float(kx.sum() * ky.sum()) / ((n - 1) * (n - 2))
