"""Axis alignment metric (AAM)."""

from __future__ import annotations

import numpy as np

from unbraid.metrics.arrays import Codes, Factors
from unbraid.metrics.factor_information import factor_information
from unbraid.metrics.labels import Continuous, as_codes_and_labels


def aam(
    codes: Codes, factors: Factors, continuous: Continuous = None, estimator: str = "plug-in", *, bins: int = 20
) -> dict[str, float]:
    r"""Measure how much more information the best latent of each factor has than all other latents together.

    .. math:: \frac{1}{k} \sum_j \frac{\max \left( 0, I(c_{i_j}; v_j) - \sum_{i \ne i_j} I(c_i; v_j) \right)}
        {I(c_{i_j}; v_j)}, \quad i_j = \arg\max_i I(c_i; v_j)

    where :math:`I(c_i; v_j)` is the mutual information of latent i and factor j, and :math:`i_j` is the best latent of
    factor j.

    The score lies in [0, 1]. 0 means that for every factor the other latents together are at least as informative as
    its best latent. 1 means that for every factor only one latent is informative. A factor about which no latent is
    informative contributes 0. Unlike MIG, the score does not depend on how informative the best latent is.

    Continuous factors: A continuous factor is sorted into `bins` equal-width bins. With ``estimator="neighbours"``,
    the information is replaced by a normalised value in [0, 1] that is estimated from nearest neighbours. For each
    factor, only the rows that have a label for it are used.

    Limitations: The information estimate of every latent has a bias of about (bins - 1)(values - 1) / 2n, where n is
    the number of rows and `values` is the number of values of the factor. The score therefore falls as noise latents
    are added. A factor may contribute 1 even if its best latent has little information about it. If every latent has a
    copy, the score is 0.

    Deviations: disentangling-vae estimates the information from posterior distributions. Here it is computed from one
    code vector per example.

    Reference: the library disentangling-vae (Dubois et al., 2019), which introduces the score. The information is
    computed as for MIG, Chen et al. (2018), arXiv:1802.04942.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        estimator: Estimator of the information: "plug-in", "miller-madow" or "neighbours".
        bins: Number of equal-width bins into which each latent is discretised.

    Returns:
        `aam`, the score.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 latents, or if
            the estimator is unknown.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> round(aam(factors, factors)["aam"], 6)
        1.0
    """
    table, labels = as_codes_and_labels(codes, factors, continuous, min_codes=2)
    matrix = factor_information(table, labels, bins, estimator).matrix
    best = matrix.max(axis=0)
    surplus = np.maximum(0.0, 2 * best - matrix.sum(axis=0))
    shares = np.divide(surplus, best, out=np.zeros_like(best), where=best > 0)
    return {"aam": float(shares.mean())}
