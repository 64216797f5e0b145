"""Joint entropy minus mutual information gap."""

from __future__ import annotations

import numpy as np

from unbraid.metrics.arrays import Codes, Factors, at_least, labelled
from unbraid.metrics.information import discretise, entropy, mutual_information


def jemmig(codes: Codes, factors: Factors, *, bins: int = 20) -> dict[str, float]:
    r"""How little the best code of each factor holds beside it, and how much more it tells than the second best.

    .. math:: \frac{1}{k} \sum_j \left( 1 - \frac{J_j}{H(v_j) + \log \text{bins}} \right), \quad
        J_j = H(c_{i_1}, v_j) - I(c_{i_1}; v_j) + I(c_{i_2}; v_j)

    with :math:`i_1, i_2` the codes that tell most and second most of factor :math:`j`. `jemmig_nats` is the mean of
    :math:`J_j` in nats, as the metric was first defined: 0 is best there, and it has no fixed upper end.

    `jemmig` 0: the best code is uniform noise over all bins. 1: one code a factor, complete and holding nothing else.
    The joint entropy is H(c) + H(v) - I, so that unlike MIG a code pays for what it tells of other factors. Between
    codes that tell equally much the one of larger entropy counts. Needs at least 2 codes and 2 bins; a factor of one
    value is refused.

    Beware: a collapsed code does not score 0. A constant has no entropy, so constant codes score
    log(bins) / (H(v) + log(bins)): .81 for a factor of 2 values, .49 for one of 24. Every code
    twice scores the same. Only noise that fills all bins evenly scores 0: normal noise
    leaves bins nearly empty and scores .1 to .2. More bins raise the scores of codes that do not fill them.

    Deviations: information is counted on `bins` equal-width bins of point codes, where the paper bins the posterior.
    Normalised by the upper bound H(v) + log(bins), as there and in Carbonneau et al. (2022), arXiv:2012.09276.

    Reference: Do and Tran (2020), arXiv:1908.09961.

    >>> factors = np.indices((3, 4)).reshape(2, -1).T
    >>> {key: round(value, 6) for key, value in jemmig(factors, factors).items()}
    {'jemmig': 1.0, 'jemmig_nats': 0.0}
    """
    at_least(2, bins=bins)
    table, values = labelled(codes, factors, min_codes=2)
    labels = discretise(table, bins)
    information, uncertain = mutual_information(labels, values), entropy(values)
    second, first = np.sort(information, axis=0)[-2:]
    tied = information >= first - 1e-12  # equal up to rounding: the choice must not depend on the order of codes
    joint = np.where(tied, entropy(labels)[:, None], 0.0).max(axis=0) + uncertain - first
    cost = np.maximum(0.0, joint - first + second)
    return {"jemmig": float(np.mean(1 - cost / (uncertain + np.log(bins)))), "jemmig_nats": float(cost.mean())}
