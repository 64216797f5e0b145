"""Joint entropy minus mutual information gap (JEMMIG)."""

from __future__ import annotations

import numpy as np

from unbraid.metrics.arrays import Codes, Factors, check_at_least
from unbraid.metrics.factor_information import check_estimator, factor_information, neighbour_information
from unbraid.metrics.labels import Continuous, as_codes_and_labels


def jemmig(
    codes: Codes, factors: Factors, continuous: Continuous = None, estimator: str = "plug-in", *, bins: int = 20
) -> dict[str, float]:
    r"""Measure the purity of the most informative latent of each factor and its lead over the second most informative.

    .. math:: \frac{1}{k} \sum_j \left( 1 - \frac{J_j}{H(v_j) + \log \text{bins}} \right), \quad
        J_j = H(c_{i_1}, v_j) - I(c_{i_1}; v_j) + I(c_{i_2}; v_j)

    where H is the entropy, I is the mutual information, and :math:`i_1` and :math:`i_2` are the latents with the most
    and the second most information about factor :math:`j`.

    The score lies in [0, 1]. 0 means that the best latent of each factor is noise that is distributed uniformly over
    all bins. 1 means that for each factor one latent determines it and contains no other information.

    The joint entropy equals H(c) + H(v) - I(c; v). A latent is therefore penalised for information about other factors,
    unlike in MIG. If several latents are equally informative, the one with the largest entropy is used.

    Continuous factors: A continuous factor is sorted into `bins` equal-width bins, as the latents are. `estimator` says
    how the information is estimated; see :ref:`Continuous factors and missing labels <continuous-factors>` in the guide
    to scores. With ``estimator="neighbours"``, the entropies are still those of the bins. The information of two
    continuous variables has no upper bound, so it is limited to these entropies.

    Limitations: A collapsed representation does not score 0. A constant has no entropy, so constant latents score
    log(bins) / (H(v) + log(bins)), which is 0.81 for a factor with 2 values and 0.49 for a factor with 24 values. Two
    copies of each perfect latent have the same score as constant latents. Only noise that fills all bins evenly scores
    0. Normal noise leaves some bins nearly empty and scores 0.1 to 0.2. Increasing `bins` raises the scores of latents
    that do not fill all bins.

    Deviations: Information is computed from one code vector per example, sorted into `bins` equal-width bins, whereas
    the paper discretises the posterior distribution. The upper bound H(v) + log(bins), by which :math:`J_j` is divided,
    is that of the paper and of Carbonneau et al. (2022), arXiv:2012.09276.

    Reference: Do and Tran (2020), arXiv:1908.09961.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        estimator: Estimator of the information: "plug-in", "miller-madow" or "neighbours".
        bins: Number of equal-width bins into which each latent is discretised, at least 2.

    Returns:
        `jemmig`, the score, and `jemmig_nats`, the mean of :math:`J_j` in nats. `jemmig_nats` is the original
        definition of the metric. Its best value is 0, and it has no fixed upper bound.

    Raises:
        UserError: If codes are not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 latents, if
            `bins` is below 2, or if the estimator is unknown.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> {key: round(value, 6) for key, value in jemmig(factors, factors).items()}
        {'jemmig': 1.0, 'jemmig_nats': 0.0}
    """
    check_at_least(2, bins=bins)
    check_estimator(estimator)
    table, labels = as_codes_and_labels(codes, factors, continuous, min_codes=2)
    from_bins = "plug-in" if estimator == "neighbours" else estimator
    information, factor_entropy, code_entropy = factor_information(table, labels, bins, from_bins)
    if estimator == "neighbours":
        information = np.minimum(neighbour_information(table, labels), np.minimum(code_entropy, factor_entropy))
    second, first = np.sort(information, axis=0)[-2:]
    tied = information >= first - 1e-12  # compare up to rounding, because the order of latents must not matter
    joint = np.where(tied, code_entropy, 0.0).max(axis=0) + factor_entropy - first
    cost = np.maximum(0.0, joint - first + second)
    scores = 1 - cost / (factor_entropy + np.log(bins))
    return {"jemmig": float(np.mean(scores)), "jemmig_nats": float(cost.mean())}
