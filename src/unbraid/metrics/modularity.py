"""Modularity."""

from __future__ import annotations

import numpy as np

from unbraid.metrics.arrays import Codes, Factors, labelled
from unbraid.metrics.information import discretise, mutual_information


def modularity(codes: Codes, factors: Factors, *, bins: int = 20) -> dict[str, float]:
    r"""How nearly each code tells of one factor only.

    .. math:: \frac{1}{d} \sum_i \left( 1 - \frac{\sum_j I_{ij}^2 - \max_j I_{ij}^2}{(k - 1) \max_j I_{ij}^2} \right),
        \quad I_{ij} = I(c_i; v_j)

    0: every code tells equally of all factors. 1: each code tells of one factor. Two codes may tell of the same factor,
    and a factor may be told by none: modularity alone is no evidence of a complete code.

    A code with no information at all (a constant) scores 0 and stays in the mean. Needs at least 2 factors; a factor of
    one value is refused.

    Beware: the bias of the information estimate differs from factor to factor, so that a code of pure noise is modular:
    .67 to .99 on the usual datasets (`noise`). Copies of a code are not punished (`duplicated`). Read it beside MIG.

    Reference: Ridgeway and Mozer (2018), arXiv:1802.05312; 20 equal-width bins as in arXiv:1811.12359.

    >>> factors = np.indices((3, 4)).reshape(2, -1).T
    >>> round(modularity(factors, factors)["modularity_score"], 6)
    1.0
    """
    table, values = labelled(codes, factors, min_factors=2)
    squares = mutual_information(discretise(table, bins), values) ** 2
    largest = squares.max(axis=1)
    told = largest > 0
    others = (squares.sum(axis=1) - largest)[told] / largest[told] / (values.shape[1] - 1)
    return {"modularity_score": float(np.sum(1 - others) / len(squares))}
