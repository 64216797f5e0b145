"""DCIMIG: one score for modularity, compactness and informativeness."""

from __future__ import annotations

import numpy as np

from unbraid.metrics.arrays import Codes, Factors
from unbraid.metrics.factor_information import factor_information
from unbraid.metrics.labels import Continuous, as_codes_and_labels


def dcimig(
    codes: Codes, factors: Factors, continuous: Continuous = None, estimator: str = "plug-in", *, bins: int = 20
) -> dict[str, float]:
    r"""Measure how much more the best latent of each factor tells about this factor than about any other factor.

    .. math:: \frac{\sum_j \max_{i \in M_j} g_i}{\sum_j H(v_j)}, \quad g_i = I(c_i; v_{j_1}) - I(c_i; v_{j_2}), \quad
        M_j = \{ i : j_1(i) = j \}

    where I is the mutual information and H is the entropy, both in nats. :math:`j_1` and :math:`j_2` are the factors
    about which latent :math:`i` has the most and the second most information. :math:`M_j` is the set of latents whose
    best factor :math:`j_1` is factor j. If this set is empty, factor j contributes 0 to the sum.

    The score lies in [0, 1]. 0 means that every latent is either equally informative about its two best factors or
    informative about no factor. 1 means that for each factor there is one latent that determines it and is informative
    about no other factor.

    Factors are weighted by their entropy, whereas MIG weights them equally. As with MIG, the maximum score is below 1
    for factors with more than `bins` values. A constant latent contributes nothing.

    Continuous factors: A continuous factor is sorted into `bins` equal-width bins, as the latents are. `estimator` says
    how the information is estimated; see :ref:`Continuous factors and missing labels <continuous-factors>` in the guide
    to scores. With ``estimator="neighbours"``, :math:`I` is a normalised value in [0, 1] instead of the information in
    nats, :math:`H(v_j)` is 1, and all factors therefore have the same weight.

    Limitations: Only the best latent of a factor contributes, so duplicated latents and additional noise latents do not
    lower the score. Use MIG or DCI to measure completeness. A latent that is equally informative about two factors
    contributes 0, however informative it is. Pure noise scores slightly above 0, because the bias of the information
    estimate, about (bins - 1)(values - 1) / 2n, depends on the number of values of a factor.

    Deviations: Information is computed from one code vector per example, sorted into `bins` equal-width bins. The
    formula is that of DCIMIG in the paper. Carbonneau et al. (2022), arXiv:2012.09276, use the same formula with 10
    bins.

    Reference: Sepliarskaia et al. (2019), arXiv:1910.05587.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        estimator: Estimator of the information: "plug-in", "miller-madow" or "neighbours".
        bins: Number of equal-width bins into which each latent is discretised.

    Returns:
        `dcimig`, the score.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 factors, or if
            the estimator is unknown.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> round(dcimig(factors, factors)["dcimig"], 6)
        1.0
    """
    table, labels = as_codes_and_labels(codes, factors, continuous, min_factors=2)
    information, entropies, _ = factor_information(table, labels, bins, estimator)
    ordered = np.sort(information, axis=1)
    gaps = ordered[:, -1] - ordered[:, -2]
    best = np.zeros(len(entropies))
    np.maximum.at(best, information.argmax(axis=1), gaps)
    return {"dcimig": float(best.sum() / entropies.sum())}
