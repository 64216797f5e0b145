"""DCIMIG: one score for modularity, compactness and informativeness."""

from __future__ import annotations

import numpy as np

from unbraid.metrics.arrays import Codes, Factors, labelled
from unbraid.metrics.information import discretise, entropy, mutual_information


def dcimig(codes: Codes, factors: Factors, *, bins: int = 20) -> dict[str, float]:
    r"""How much of all factors is told by one pure code each.

    .. math:: \frac{\sum_j \max_{i \in M_j} g_i}{\sum_j H(v_j)}, \quad g_i = I(c_i; v_{j_1}) - I(c_i; v_{j_2}), \quad
        M_j = \{ i : j_1(i) = j \}

    with :math:`j_1, j_2` the factors of which code :math:`i` tells most and second most, in nats. A factor of which no
    code tells most adds 0 to the sum.

    0: every code tells equally of two factors, or of none. 1: one code a factor, pure and complete.
    Factors weigh by their entropy, where MIG weighs them alike. The ceiling is below 1 for factors of more than `bins`
    values, as with MIG. Needs at least 2 factors; a factor of one value is refused. A constant code adds nothing.

    Beware: only the best code of a factor counts, so duplicated codes and added noise cost nothing: read completeness
    elsewhere (MIG, DCI). A code that tells two factors equally is worth 0 whatever it tells. Noise scores about its
    bias: the gap of two estimates that differ by (bins - 1)(difference of their values) / 2n.

    Deviations: information is counted on `bins` equal-width bins of point codes. Taken from the formula of the paper's
    DCIMIG; Carbonneau et al. (2022), arXiv:2012.09276, compute the same with 10 bins.

    Reference: Sepliarskaia et al. (2019), arXiv:1910.05587.

    >>> factors = np.indices((3, 4)).reshape(2, -1).T
    >>> round(dcimig(factors, factors)["dcimig"], 6)
    1.0
    """
    table, values = labelled(codes, factors, min_factors=2)
    information = mutual_information(discretise(table, bins), values)
    ordered = np.sort(information, axis=1)
    gaps = ordered[:, -1] - ordered[:, -2]
    best = np.zeros(values.shape[1])
    np.maximum.at(best, information.argmax(axis=1), gaps)
    return {"dcimig": float(best.sum() / entropy(values).sum())}
