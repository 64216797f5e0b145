"""Mutual information gap over factors."""

from __future__ import annotations

import numpy as np

from unbraid.metrics.arrays import Codes, Factors, as_codes_and_factors, check_at_least
from unbraid.metrics.information import discretise, entropy, mutual_information


def mig_sup(codes: Codes, factors: Factors, *, bins: int = 20, prune: int | float = 0) -> dict[str, float]:
    r"""The gap in information that each code has about its best and its second-best factor.

    .. math:: \frac{1}{|A|} \sum_{i \in A} \left( N_{i j_1} - N_{i j_2} \right), \quad
        N_{ij} = \frac{I(c_i; v_j)}{H(v_j)}

    where :math:`j_1` and :math:`j_2` are the factors with the largest and the second largest :math:`N_{ij}` of code
    :math:`i`, and :math:`A` are the active codes: those that vary and have a standard deviation of at least `prune`.

    The score lies in [0, 1]. 0 means that every code is equally informative about two factors, that no code is
    informative, or that no code is active. 1 means that each code determines exactly one factor.

    MIG-sup complements MIG, which takes the gap over codes and does not penalise a code that is informative about two
    factors. The ceiling is below 1 for factors with more than `bins` values.

    Limitations: The score does not require that every factor is represented: one perfect code beside constant codes
    scores 1, and so do duplicated codes. A code of pure noise is active and scores about 0, so unused latents that
    carry noise lower the mean, whereas exactly constant latents do not. `prune` is an absolute value and makes the
    score depend on the scale of the codes.

    Deviations: Information is computed from `bins` equal-width bins of point codes. Sources differ in the codes over
    which they average: the formula of the paper names all codes, the code of its authors takes codes with a variance
    above .01 (``prune=0.1``), and Carbonneau et al. (2022), arXiv:2012.09276, take all. The default here is all codes
    that vary.

    Reference: Li et al. (2020), arXiv:2002.10549.

    Args:
        codes: Array of shape (n, d), one row per point and one column per code dimension.
        factors: Integer array of shape (n, k), one row per point and one column per factor.
        bins: Number of equal-width bins into which each code is discretised.
        prune: Smallest standard deviation of an active code, in units of the codes.

    Returns:
        `mig_sup`, the score.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers, if a factor is constant, or if there are fewer than 2 factors.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> round(mig_sup(factors, factors)["mig_sup"], 6)
        1.0
    """
    check_at_least(0, prune=prune)
    table, values = as_codes_and_factors(codes, factors, min_factors=2)
    active = (table.std(axis=0) >= prune) & (np.ptp(table, axis=0) > 0)
    if not active.any():
        return {"mig_sup": 0.0}
    shares = mutual_information(discretise(table[:, active], bins), values) / entropy(values)
    ordered = np.sort(shares, axis=1)
    return {"mig_sup": float(np.mean(ordered[:, -1] - ordered[:, -2]))}
