"""Modularity: whether each latent is informative about one factor only."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from unbraid.metrics.arrays import Codes, Factors
from unbraid.metrics.factor_information import factor_information
from unbraid.metrics.labels import Continuous, as_codes_and_labels


def modularity(
    codes: Codes, factors: Factors, continuous: Continuous = None, estimator: str = "plug-in", *, bins: int = 20
) -> dict[str, float]:
    r"""Measure the degree to which each latent is informative about one factor only.

    .. math:: \frac{1}{d} \sum_i \left( 1 - \frac{\sum_j I_{ij}^2 - \max_j I_{ij}^2}{(k - 1) \max_j I_{ij}^2} \right),
        \quad I_{ij} = I(c_i; v_j)

    where :math:`I(c_i; v_j)` is the mutual information of latent i and factor j.

    The score lies in [0, 1]. 0 means that every latent is equally informative about all factors. 1 means that each
    latent is informative about a single factor. A latent without any information, such as a constant latent, scores 0
    and is included in the mean.

    Continuous factors: A continuous factor is sorted into `bins` equal-width bins, as the latents are. `estimator` says
    how the information is estimated; see :ref:`Continuous factors and missing labels <continuous-factors>` in the guide
    to scores. With ``estimator="neighbours"``, :math:`I_{ij}` is a normalised value in [0, 1] instead of the
    information in nats.

    Limitations: Two latents may represent the same factor and a factor may be represented by no latent, so a high score
    is no evidence of a complete representation, and duplicated latents are not penalised. The bias of the information
    estimate differs between factors, so pure noise appears modular and scores 0.67 to 0.99 on the usual datasets.
    Report this score together with MIG.

    Reference: Ridgeway and Mozer (2018), arXiv:1802.05312. The 20 equal-width bins follow Locatello et al. (2019),
    arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        factors: Array of shape (n, k), one row per example and one column per factor. Discrete factors are
            integers. NaN is a missing label.
        continuous: Whether each factor is continuous. By default all factors are discrete.
        estimator: Estimator of the information: "plug-in", "miller-madow" or "neighbours".
        bins: Number of equal-width bins into which each latent is discretised.

    Returns:
        `modularity_score`, the score.

    Raises:
        UserError: If an array is not a finite 2-d array of numbers, if the arrays do not match, if factors are not
            integers and not declared continuous, if a factor is constant, if there are fewer than 2 factors, or if
            the estimator is unknown.

    Example:
        >>> factors = np.indices((3, 4)).reshape(2, -1).T
        >>> round(modularity(factors, factors)["modularity_score"], 6)
        1.0
    """
    table, labels = as_codes_and_labels(codes, factors, continuous, min_factors=2)
    return {"modularity_score": mean_modularity(factor_information(table, labels, bins, estimator).matrix)}


def mean_modularity(matrix: Float[np.ndarray, "d k"]) -> float:
    """Return the modularity of a matrix that relates latents to factors, averaged over latents.

    >>> mean_modularity(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))
    0.3333333333333333
    """
    squares = matrix**2
    largest = squares.max(axis=1)
    informative = largest > 0
    others = (squares.sum(axis=1) - largest)[informative] / largest[informative] / (squares.shape[1] - 1)
    return float(np.sum(1 - others) / len(squares))
