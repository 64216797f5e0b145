"""Mutual information gap between the two best factors of each latent (MIG-sup)."""

from __future__ import annotations

import numpy as np

from unbraid.metrics.arrays import Codes, Factors, check_at_least
from unbraid.metrics.factor_information import factor_information
from unbraid.metrics.labels import Continuous, as_codes_and_labels


def mig_sup(
    codes: Codes,
    factors: Factors,
    continuous: Continuous = None,
    estimator: str = "plug-in",
    *,
    bins: int = 20,
    prune: int | float = 0,
) -> dict[str, float]:
    r"""Measure the gap in information that each latent has about its best and its second-best factor.

    .. math:: \frac{1}{|A|} \sum_{i \in A} \left( N_{i j_1} - N_{i j_2} \right), \quad
        N_{ij} = \frac{I(c_i; v_j)}{H(v_j)}

    where :math:`j_1` and :math:`j_2` are the factors with the largest and the second largest :math:`N_{ij}` of latent
    :math:`i`, I is the mutual information, H is the entropy, and :math:`A` is the set of active latents. A latent is
    active if it varies and its standard deviation is at least `prune`.

    The score lies in [0, 1]. 0 means that no latent is active, or that every active latent is either equally
    informative about its two best factors or informative about no factor. 1 means that each active latent determines
    one factor and is informative about no other factor.

    MIG-sup complements MIG, which takes the gap between latents and does not penalise a latent that is informative
    about two factors. The maximum score is below 1 for factors with more than `bins` values.

    Continuous factors: A continuous factor is sorted into `bins` equal-width bins, as the latents are. `estimator` says
    how the information is estimated; see :ref:`Continuous factors and missing labels <continuous-factors>` in the guide
    to scores.

    Limitations: The score does not require that every factor is represented. One perfect latent beside constant latents
    scores 1, and so do duplicated latents. A latent that holds pure noise is active and scores about 0, so unused
    latents that hold noise lower the mean, whereas exactly constant latents do not. If `prune` is above 0, the score
    depends on the scale of the codes, because `prune` is an absolute value.

    Deviations: Information is computed from one code vector per example, sorted into `bins` equal-width bins.
    Implementations average over different sets of latents. The formula of the paper and Carbonneau et al. (2022),
    arXiv:2012.09276, average over all latents. The authors' code averages over latents with a variance above 0.01
    (``prune=0.1``). By default, this function averages over all latents that vary.

    Reference: Li et al. (2020), arXiv:2002.10549.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        estimator: Estimator of the information: "plug-in", "miller-madow" or "neighbours".
        bins: Number of equal-width bins into which each latent is discretised.
        prune: Minimum standard deviation of an active latent, in units of the codes.

    Returns:
        `mig_sup`, the score.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 factors, or if
            the estimator is unknown.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> round(mig_sup(factors, factors)["mig_sup"], 6)
        1.0
    """
    check_at_least(0, prune=prune)
    table, labels = as_codes_and_labels(codes, factors, continuous, min_factors=2)
    active = (table.std(axis=0) >= prune) & (np.ptp(table, axis=0) > 0)
    if not active.any():
        return {"mig_sup": 0.0}
    matrix, entropies, _ = factor_information(table[:, active], labels, bins, estimator)
    ordered = np.sort(matrix / entropies, axis=1)
    return {"mig_sup": float(np.mean(ordered[:, -1] - ordered[:, -2]))}
