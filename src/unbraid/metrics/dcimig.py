"""DCIMIG: one score for modularity, compactness and informativeness."""

from __future__ import annotations

import numpy as np

from unbraid.metrics.arrays import Codes, Factors, as_codes_and_factors
from unbraid.metrics.information import discretise, entropy, mutual_information


def dcimig(codes: Codes, factors: Factors, *, bins: int = 20) -> dict[str, float]:
    r"""The share of the information in all factors that one pure code per factor contains.

    .. math:: \frac{\sum_j \max_{i \in M_j} g_i}{\sum_j H(v_j)}, \quad g_i = I(c_i; v_{j_1}) - I(c_i; v_{j_2}), \quad
        M_j = \{ i : j_1(i) = j \}

    where :math:`j_1` and :math:`j_2` are the factors about which code :math:`i` has the most and the second most
    information, in nats. A factor that is :math:`j_1` of no code adds 0 to the sum.

    The score lies in [0, 1]. 0 means that every code is equally informative about two factors, or about none. 1 means
    that for each factor one code determines it and is informative about no other factor.

    Factors are weighted by their entropy, whereas MIG weights them equally. As with MIG, the ceiling is below 1 for
    factors with more than `bins` values. A constant code adds nothing.

    Limitations: Only the best code of a factor counts, so duplicated codes and added noise cost nothing; use MIG or DCI
    to measure completeness. A code that is equally informative about two factors adds 0, however informative it is.
    Noise scores about its bias: the gap between two estimates that differ by (bins - 1)(difference of their values) /
    2n.

    Deviations: Information is computed from `bins` equal-width bins of point codes. The formula is that of DCIMIG in
    the paper; Carbonneau et al. (2022), arXiv:2012.09276, compute the same with 10 bins.

    Reference: Sepliarskaia et al. (2019), arXiv:1910.05587.

    Args:
        codes: Array of shape (n, d), one row per point and one column per code dimension.
        factors: Integer array of shape (n, k), one row per point and one column per factor.
        bins: Number of equal-width bins into which each code is discretised.

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
