"""Mutual information gap."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from unbraid.metrics.arrays import Codes, Factors, as_codes_and_factors
from unbraid.metrics.information import discretise, entropy, mutual_information


def mig(codes: Codes, factors: Factors, *, bins: int = 20) -> dict[str, float]:
    r"""The gap in information about each factor between the most and the second most informative code.

    .. math:: \frac{1}{k} \sum_j \frac{1}{H(v_j)} \left( I(c_{i_1}; v_j) - I(c_{i_2}; v_j) \right)

    where :math:`i_1` and :math:`i_2` are the codes with the most and the second most information about factor
    :math:`j`.

    The score lies in [0, 1]. 0 means that for every factor two codes are equally informative, or that no code is
    informative. 1 means that exactly one code determines each factor.

    Limitations: The ceiling is below 1 for a factor with more than `bins` values: the perfect code of 32 values reaches
    .85, of 40 values .81 and of 183 values .58. Two equal copies of a perfect code score 0 (`duplicated`). So does a
    perfect code with a few distant outliers, which squeeze all other points into one bin (`squeezed`). A code that
    merges several factors is not penalised.

    Deviations: Information is computed from `bins` equal-width bins of point codes and not from the posterior.

    Reference: Chen et al. (2018), arXiv:1802.04942. The 20 equal-width bins follow Locatello et al. (2019),
    arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), one row per point and one column per code dimension.
        factors: Integer array of shape (n, k), one row per point and one column per factor.
        bins: Number of equal-width bins into which each code is discretised.

    Returns:
        `discrete_mig`, the score.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers, if a factor is constant, or if there are fewer than 2 codes.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> round(mig(factors, factors)["discrete_mig"], 6)
        1.0
    """
    return {"discrete_mig": float(gap_per_factor(codes, factors, bins=bins).mean())}


def gap_per_factor(codes: Codes, factors: Factors, *, bins: int = 20) -> Float[np.ndarray, " k"]:
    """Return the normalised gap of each factor; their mean is the MIG."""
    table, values = as_codes_and_factors(codes, factors, min_codes=2)
    information = np.sort(mutual_information(discretise(table, bins), values), axis=0)
    gaps: Float[np.ndarray, " k"] = (information[-1] - information[-2]) / entropy(values)
    return gaps
