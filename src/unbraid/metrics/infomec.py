"""InfoM, InfoE and InfoC: modularity, explicitness and compactness measured by information."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from unbraid.metrics.arrays import Codes, Factors, check_at_least
from unbraid.metrics.factor_information import factor_information, neighbour_shares
from unbraid.metrics.information import entropy
from unbraid.metrics.labels import Column, Continuous, Labels, as_codes_and_labels
from unbraid.metrics.regression import explained_variance


def infomec(
    codes: Codes,
    factors: Factors,
    continuous: Continuous = None,
    *,
    bins: int = 20,
    neighbours: int = 0,
    prune: int | float = 0.05,
    iterations: int = 1000,
    seed: int = 0,
) -> dict[str, float]:
    r"""Measure modularity (InfoM) and compactness (InfoC) by mutual information, and linear explicitness (InfoE).

    .. math:: InfoM = \mathrm{mean}_i \, \frac{\max_j N_{ij} / \sum_j N_{ij} - 1/k}{1 - 1/k}, \quad
        InfoC = \mathrm{mean}_j \, \frac{\max_i N_{ij} / \sum_i N_{ij} - 1/d}{1 - 1/d}, \quad
        InfoE = \mathrm{mean}_j \, \frac{H(v_j) - \min_w E[-\log p_w(v_j | c)]}{H(v_j)}, \quad
        N_{ij} = \frac{I(c_i; v_j)}{H(v_j)}

    where I is the mutual information, H is the entropy, k is the number of factors, and :math:`p_w` is a multinomial
    logistic regression on all latents with the weights w. In InfoM and InfoC, i runs over the d active latents. A
    latent is active if its range is larger than `prune` times the largest range. Constant latents are never active.

    All scores lie in [0, 1]. For InfoM, 0 means that each latent is equally informative about all factors, and 1 means
    that each latent is informative about one factor only. For InfoC, 0 means that all latents are equally informative
    about each factor, and 1 means that only one latent is informative about each factor. For InfoE, 0 means that a
    linear model predicts no better than the frequencies of the values, and 1 means that it predicts every factor with
    certainty.

    A latent without information contributes 0 to InfoM, and a factor about which no latent is informative contributes 0
    to InfoC. If there is only one factor, every informative latent contributes 1 to InfoM. If only one latent is
    active, every factor about which it is informative contributes 1 to InfoC. If no latent is active, InfoM and InfoC
    are 0. If all latents are constant, InfoE is 0 too.

    Information is computed from `bins` equal-width bins. If `neighbours` is above 0, it is estimated from nearest
    neighbours with scikit-learn, which adds small random noise to the codes. The paper uses this estimator, with 10
    neighbours, for continuous codes. If the codes are quantised, set `bins` to more than the
    number of distinct values of a latent, because otherwise a bin contains several of these values. The regression of
    InfoE stops when no entry of the gradient exceeds 1e-4.

    Continuous factors: A continuous factor is sorted into `bins` equal-width bins, as the latents are. If `neighbours`
    is above 0, :math:`N_{ij} = 1 - e^{-2 I}` (Kraskov et al., 2004), because the information of two continuous
    variables has no upper bound. The InfoE of a continuous factor is the coefficient of determination of a linear
    regression. For jointly Gaussian variables, it equals :math:`1 - e^{-2 I}`, where I is the information of all
    latents together. For each factor, only the rows that have a label for it are used.

    Limitations: Pruning compares ranges, so rescaling one latent may change InfoM and InfoC, and an outlier in one
    latent may prune all other latents. The bias of the information estimate differs between factors, so pure noise has
    an InfoM above 0. Duplicated and constant latents do not lower InfoM, and rotating a representation does not lower
    InfoE, so report all three scores. InfoE is measured on the rows to which the regression was fitted, as in the
    authors' code. If there are few rows per value, noise therefore scores high.

    Deviations: Information is computed from bins by default. Classes are not weighted. Therefore the cross-entropy of a
    model that ignores the codes is exactly the entropy of the factor. The authors' code balances the classes,
    which is equivalent if factors are drawn uniformly. The authors' code also stops after 100 iterations
    (``iterations=100``), which lowers InfoE by about 0.1 for a factor with 40 values that is represented linearly. For
    quantised codes, the authors' regression receives one binary input per value of each latent, so their InfoE does not
    depend on the order of the values. Here it always receives the latents themselves.

    Reference: Hsu et al. (2023), arXiv:2305.18378.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        bins: Number of equal-width bins into which each latent is discretised.
        neighbours: Number of neighbours of the nearest-neighbour estimator, or 0 to use bins.
        prune: Fraction of the largest range that the range of an active latent must exceed.
        iterations: Maximum number of iterations of the logistic regressions.
        seed: Random seed for the noise that the nearest-neighbour estimator adds to the codes.

    Returns:
        `InfoM`, `InfoE` and `InfoC`.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, or if an option is out of range.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> {key: round(value, 2) for key, value in infomec(factors, factors).items()}
        {'InfoM': 1.0, 'InfoE': 1.0, 'InfoC': 1.0}
    """
    check_at_least(0, neighbours=neighbours, prune=prune)
    check_at_least(1, iterations=iterations)
    table, labels = as_codes_and_labels(codes, factors, continuous)
    span = np.ptp(table, axis=0)
    active = (span > prune * span.max()) & (span > 0)
    normalised = np.zeros((0, len(labels.continuous)))
    if active.any() and neighbours:
        normalised = neighbour_shares(table[:, active], labels, neighbours=neighbours, seed=seed)
    elif active.any():
        matrix, entropies, _ = factor_information(table[:, active], labels, bins)
        normalised = matrix / entropies
    return {
        "InfoM": concentration(normalised),
        "InfoE": linear_explicitness(table[:, span > 0], labels, iterations),
        "InfoC": concentration(normalised.T),
    }


def concentration(information: Float[np.ndarray, "d k"]) -> float:
    """Return how strongly the entries of each row concentrate on one column, averaged over rows.

    The score of a row with k entries is the ratio of its largest entry to its sum, rescaled from [1/k, 1] to [0, 1]. A
    row with equal entries scores 0, and so does a row of zeros. A row with a single positive entry scores 1. If there
    are no rows, the result is 0.

    >>> concentration(np.array([[1.0, 0.0, 0.0], [2.0, 2.0, 2.0]]))
    0.5
    """
    rows, width = information.shape
    informative = information[information.sum(axis=1) > 0]
    if not len(informative):
        return 0.0
    if width == 1:
        return float(len(informative) / rows)
    largest = informative.max(axis=1) / informative.sum(axis=1)
    return float(np.sum((largest - 1 / width) / (1 - 1 / width)) / rows)


def linear_explicitness(codes: Float[np.ndarray, "n d"], labels: Labels, iterations: int) -> float:
    """Return the fraction of a factor's entropy that a logistic regression on the codes removes, averaged over factors.

    For a continuous factor it is the fraction of the variance that a linear regression explains.

    >>> from unbraid.metrics.labels import as_labels
    >>> linear_explicitness(np.zeros((4, 0)), as_labels([[0], [1], [0], [1]]), 100)
    0.0
    """
    if not codes.shape[1]:
        return 0.0
    # Scale to a range of 1 first, because the variance of a latent with a tiny range would underflow to 0.
    scaled = (codes - codes.min(axis=0)) / np.ptp(codes, axis=0)
    standard = (scaled - scaled.mean(axis=0)) / scaled.std(axis=0)
    return float(np.mean([_explained_fraction(standard[c.rows], c, iterations) for c in labels.columns()]))


def _explained_fraction(codes: Float[np.ndarray, "n d"], column: Column, iterations: int) -> float:
    """Return the fraction of the entropy, or of the variance, of one factor that a linear model explains."""
    if column.continuous:
        from unbraid.metrics.linear import ridge_regression

        return explained_variance(ridge_regression(codes, column.values).predict(codes), column.values)
    remaining = _cross_entropy(codes, column.values, iterations) / entropy(column.values[:, None])[0]
    return max(0.0, float(1 - remaining))


def _cross_entropy(codes: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], iterations: int) -> float:
    """Fit an unpenalised logistic regression, and return its mean negative log-likelihood on the same rows, in nats."""
    from unbraid.metrics.linear import logistic_regression

    class_index = np.unique(labels, return_inverse=True)[1]
    scores = logistic_regression(codes, class_index, C=np.inf, iterations=iterations).scores(codes)
    # Use scores instead of probabilities, because a probability may round to 0, whose logarithm is infinite.
    return float(np.mean(np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(class_index)), class_index]))
