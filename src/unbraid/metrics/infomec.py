"""InfoM, InfoE and InfoC: modularity, explicitness and compactness measured by information."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, as_codes_and_factors, check_at_least
from unbraid.metrics.information import discretise, entropy, mutual_information


def infomec(
    codes: Codes,
    factors: Factors,
    *,
    bins: int = 20,
    neighbours: int = 0,
    prune: int | float = 0.05,
    iterations: int = 1000,
    seed: int = 0,
) -> dict[str, float]:
    r"""Modularity (InfoM), explicitness (InfoE) and compactness (InfoC) measured by information.

    .. math:: InfoM = \mathrm{mean}_i \, \frac{\max_j N_{ij} / \sum_j N_{ij} - 1/k}{1 - 1/k}, \quad
        InfoC = \mathrm{mean}_j \, \frac{\max_i N_{ij} / \sum_i N_{ij} - 1/d}{1 - 1/d}, \quad
        InfoE = \mathrm{mean}_j \, \frac{H(v_j) - \min_w E[-\log p_w(v_j | c)]}{H(v_j)}, \quad
        N_{ij} = \frac{I(c_i; v_j)}{H(v_j)}

    where :math:`p_w` are the multinomial logistic regressions on all codes. In InfoM and InfoC, i runs over the d
    active codes: those whose range is larger than `prune` times the largest range. Constant codes are never active.

    All scores lie in [0, 1]. InfoM: 0 means that each code is equally informative about all factors, 1 that it is
    informative about one. InfoC: 0 means that all codes are equally informative about each factor, 1 that one code is.
    InfoE: 0 means that a linear model predicts no better than the frequencies of the values, 1 that it knows every
    factor.

    A code without information and a factor about which no code is informative count 0. With one factor, every
    informative code counts 1 in InfoM; with one active code, every represented factor counts 1 in InfoC. Without active
    codes all scores are 0.

    Information is computed from `bins` equal-width bins. If `neighbours` is above 0, it is estimated from nearest
    neighbours with ``mutual_info_classif`` of scikit-learn, whose jitter is drawn with `seed`. The paper uses this
    estimator, with 10 neighbours, for continuous codes. Quantised codes need more bins than they have levels. The
    regression of InfoE stops at a gradient of 1e-4.

    Limitations: Pruning compares ranges, so rescaling one code may change InfoM and InfoC, and an outlier may prune all
    other codes. The bias of the estimate differs between factors, so pure noise has an InfoM above 0. Duplicated codes
    keep InfoM at 1, a rotated code keeps InfoE at 1, and constant codes do not lower InfoM: report all three scores.
    InfoE is measured on the rows to which it was fitted, as in the reference; with few rows per value noise scores
    high.

    Deviations: Bins are the default. Classes have no weights, so that the model without codes has exactly the entropy;
    the reference code balances classes, which is equivalent for uniformly drawn factors. The reference code also stops
    after 100 iterations, which lowers InfoE of a linear code of 40 values by about .1 (``iterations=100``).

    Reference: Hsu et al. (2023), arXiv:2305.18378.

    Args:
        codes: Array of shape (n, d), one row per point and one column per code dimension.
        factors: Integer array of shape (n, k), one row per point and one column per factor.
        bins: Number of equal-width bins into which each code is discretised.
        neighbours: Number of neighbours of the nearest-neighbour estimator, or 0 to use bins.
        prune: Smallest range of an active code, as a fraction of the largest range.
        iterations: Largest number of iterations of the logistic regressions.
        seed: Seed of the jitter of the nearest-neighbour estimator.

    Returns:
        `InfoM`, `InfoE` and `InfoC`.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers, if a factor is constant, or if an option is out of range.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> {key: round(value, 2) for key, value in infomec(factors, factors).items()}
        {'InfoM': 1.0, 'InfoE': 1.0, 'InfoC': 1.0}
    """
    check_at_least(0, neighbours=neighbours, prune=prune)
    check_at_least(1, iterations=iterations)
    table, values = as_codes_and_factors(codes, factors)
    span = np.ptp(table, axis=0)
    active = (span > prune * span.max()) & (span > 0)
    shares = np.zeros((0, values.shape[1]))
    if active.any():
        used = table[:, active]
        if neighbours:
            information = _neighbour_information(used, values, neighbours, seed)
        else:
            information = mutual_information(discretise(used, bins), values)
        shares = information / entropy(values)
    explicit = linear_explicitness(table[:, span > 0], values, iterations)
    return {"InfoM": concentration(shares), "InfoE": explicit, "InfoC": concentration(shares.T)}


def concentration(shares: Float[np.ndarray, "d k"]) -> float:
    """Return the mean over rows of the largest entry divided by the sum, scaled so that equal entries give 0.

    A row of zeros counts 0. A row with a single positive entry counts 1. A matrix without rows scores 0.

    >>> concentration(np.array([[1.0, 0.0, 0.0], [2.0, 2.0, 2.0]]))
    0.5
    """
    rows, width = shares.shape
    informative = shares[shares.sum(axis=1) > 0]
    if not len(informative):
        return 0.0
    if width == 1:
        return float(len(informative) / rows)
    largest = informative.max(axis=1) / informative.sum(axis=1)
    return float(np.sum((largest - 1 / width) / (1 - 1 / width)) / rows)


def linear_explicitness(codes: Float[np.ndarray, "n d"], factors: Int[np.ndarray, "n k"], iterations: int) -> float:
    """Return the mean over factors of the share of their entropy that a logistic regression on the codes removes.

    >>> linear_explicitness(np.zeros((4, 0)), np.array([[0], [1], [0], [1]]), 100)
    0.0
    """
    if not codes.shape[1]:
        return 0.0
    scaled = (codes - codes.min(axis=0)) / np.ptp(codes, axis=0)  # a very small range would square to 0
    standard = (scaled - scaled.mean(axis=0)) / scaled.std(axis=0)
    remaining = np.array([_cross_entropy(standard, column, iterations) for column in factors.T])
    return float(np.mean(np.maximum(0.0, 1 - remaining / entropy(factors))))


def _cross_entropy(codes: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], iterations: int) -> float:
    """Return the mean negative log-likelihood, in nats, of an unpenalised logistic regression on its training rows."""
    from unbraid.metrics.linear import logistic_regression

    places = np.unique(labels, return_inverse=True)[1]
    scores = logistic_regression(codes, places, C=np.inf, iterations=iterations).scores(codes)
    # Computed from scores, because a probability may round to 0 and its logarithm to infinity.
    return float(np.mean(np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(places)), places]))


def _neighbour_information(
    codes: Float[np.ndarray, "n d"], factors: Int[np.ndarray, "n k"], neighbours: int, seed: int
) -> Float[np.ndarray, "d k"]:
    from sklearn.feature_selection import mutual_info_classif

    options = {"discrete_features": False, "n_neighbors": neighbours, "random_state": seed}
    return np.stack([mutual_info_classif(codes, column, **options) for column in factors.T], axis=1)
