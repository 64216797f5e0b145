"""Mutual information gap over factors."""

from __future__ import annotations

import numpy as np

from unbraid.metrics.arrays import Codes, Factors, at_least, labelled
from unbraid.metrics.information import discretise, entropy, mutual_information


def mig_sup(codes: Codes, factors: Factors, *, bins: int = 20, prune: int | float = 0) -> dict[str, float]:
    r"""How much more each code tells of its best factor than of its second best.

    .. math:: \frac{1}{|A|} \sum_{i \in A} \left( N_{i j_1} - N_{i j_2} \right), \quad
        N_{ij} = \frac{I(c_i; v_j)}{H(v_j)}

    with :math:`j_1, j_2` the factors with the largest and second largest :math:`N_{ij}` of code :math:`i`, and
    :math:`A` the active codes: those that vary, with a standard deviation of at least `prune`.

    0: every code tells two factors equally, or none, or no code is active. 1: each code tells one factor, completely.
    It supplements MIG, which takes the gap over codes: a code that tells of two factors costs nothing there. The
    ceiling is below 1 for factors of more than `bins` values. Needs at least 2 factors of 2 values.

    Beware: it does not ask that every factor is told: one perfect code beside constants scores 1, and so do
    duplicated codes. A code of pure noise is active and scores about 0, so surplus latents that merely jitter pull the
    mean down, whereas exactly constant ones do not; `prune` is absolute and makes the score depend on scale.

    Deviations: information is counted on `bins` equal-width bins of point codes. Sources differ over which codes to
    average: the formula of the paper names all, its authors' code takes codes of variance above .01 (``prune=0.1``),
    Carbonneau et al. (2022), arXiv:2012.09276, all. Here: by default all that vary.

    Reference: Li et al. (2020), arXiv:2002.10549.

    >>> factors = np.indices((3, 4)).reshape(2, -1).T
    >>> round(mig_sup(factors, factors)["mig_sup"], 6)
    1.0
    """
    at_least(0, prune=prune)
    table, values = labelled(codes, factors, min_factors=2)
    active = (table.std(axis=0) >= prune) & (np.ptp(table, axis=0) > 0)
    if not active.any():
        return {"mig_sup": 0.0}
    shares = mutual_information(discretise(table[:, active], bins), values) / entropy(values)
    ordered = np.sort(shares, axis=1)
    return {"mig_sup": float(np.mean(ordered[:, -1] - ordered[:, -2]))}
