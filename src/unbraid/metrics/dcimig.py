"""DCIMIG: one score for modularity, compactness and informativeness."""

from __future__ import annotations

import numpy as np

from unbraid.metrics.arrays import Codes, Factors, as_codes_and_factors
from unbraid.metrics.information import discretise, entropy, mutual_information


def dcimig(codes: Codes, factors: Factors, *, bins: int = 20) -> dict[str, float]:
    r"""Measure the fraction of the information in all factors that one pure latent per factor contains.

    .. math:: \frac{\sum_j \max_{i \in M_j} g_i}{\sum_j H(v_j)}, \quad g_i = I(c_i; v_{j_1}) - I(c_i; v_{j_2}), \quad
        M_j = \{ i : j_1(i) = j \}

    where :math:`j_1` and :math:`j_2` are the factors about which latent :math:`i` has the most and the second most
    information, in nats. If a factor is the best factor :math:`j_1` of no latent, it contributes 0 to the sum.

    The score lies in [0, 1]. 0 means that every latent is equally informative about two factors, or about none. 1 means
    that for each factor there is one latent that determines it and is informative about no other factor.

    Factors are weighted by their entropy, whereas MIG weights them equally. As with MIG, the maximum score is below 1
    for factors with more than `bins` values. A constant latent contributes nothing.

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
        factors: Integer array of shape (n, k), one row per example and one column per factor.
        bins: Number of equal-width bins into which each latent is discretised.

    Returns:
        `dcimig`, the score.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers, if a factor is constant, or if there are fewer than 2 factors.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> round(dcimig(factors, factors)["dcimig"], 6)
        1.0
    """
    table, values = as_codes_and_factors(codes, factors, min_factors=2)
    information = mutual_information(discretise(table, bins), values)
    ordered = np.sort(information, axis=1)
    gaps = ordered[:, -1] - ordered[:, -2]
    best = np.zeros(values.shape[1])
    np.maximum.at(best, information.argmax(axis=1), gaps)
    return {"dcimig": float(best.sum() / entropy(values).sum())}
