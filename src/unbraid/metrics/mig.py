"""Mutual information gap (MIG)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from unbraid.metrics.arrays import Codes, Factors
from unbraid.metrics.factor_information import factor_information
from unbraid.metrics.labels import Continuous, as_codes_and_labels


def mig(
    codes: Codes, factors: Factors, continuous: Continuous = None, estimator: str = "plug-in", *, bins: int = 20
) -> dict[str, float]:
    r"""Measure the gap in information about each factor between the most and the second most informative latent.

    .. math:: \frac{1}{k} \sum_j \frac{1}{H(v_j)} \left( I(c_{i_1}; v_j) - I(c_{i_2}; v_j) \right)

    where I is the mutual information, H is the entropy, and :math:`i_1` and :math:`i_2` are the latents with the most
    and the second most information about factor :math:`j`.

    The score lies in [0, 1]. 0 means that for every factor the two best latents are equally informative, or no latent
    is informative. 1 means that for each factor one latent determines it and all other latents contain no information
    about it.

    Continuous factors: A continuous factor is sorted into `bins` equal-width bins, as the latents are. `estimator` says
    how the information is estimated; see :ref:`Continuous factors and missing labels <continuous-factors>` in the guide
    to scores.

    Limitations: The maximum score of a factor is below 1 if it has more than `bins` values. A perfect representation
    scores 0.85 for a factor with 32 values, 0.81 for 40 values and 0.58 for 183 values. Two copies of each perfect
    latent score 0. A perfect representation with a few distant outliers also scores 0, because all other examples then
    fall into one bin. A latent that contains several factors is not penalised.

    Deviations: Information is computed from one code vector per example, sorted into `bins` equal-width bins, and not
    from the posterior distribution.

    Reference: Chen et al. (2018), arXiv:1802.04942. The 20 equal-width bins follow Locatello et al. (2019),
    arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        estimator: Estimator of the information: "plug-in", "miller-madow" or "neighbours".
        bins: Number of equal-width bins into which each latent is discretised.

    Returns:
        `discrete_mig`, the score.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 latents, or if
            the estimator is unknown.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> round(mig(factors, factors)["discrete_mig"], 6)
        1.0
    """
    return {"discrete_mig": float(gap_per_factor(codes, factors, continuous, estimator, bins=bins).mean())}


def gap_per_factor(
    codes: Codes, factors: Factors, continuous: Continuous = None, estimator: str = "plug-in", *, bins: int = 20
) -> Float[np.ndarray, " k"]:
    """Return the normalised gap of each factor. The mean of the gaps is the MIG."""
    table, labels = as_codes_and_labels(codes, factors, continuous, min_codes=2)
    matrix, entropies, _ = factor_information(table, labels, bins, estimator)
    ordered = np.sort(matrix, axis=0)
    gaps: Float[np.ndarray, " k"] = (ordered[-1] - ordered[-2]) / entropies
    return gaps
