"""Scores of dependence between codes, without labels."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from unbraid.metrics.arrays import Codes, as_codes
from unbraid.metrics.information import discretise, mutual_information


def unsupervised(codes: Codes, *, bins: int = 20) -> dict[str, float]:
    r"""How far the codes are from independent, as a fitted Gaussian and as pairs.

    .. math:: TC = -\tfrac12 \log \det R, \quad
        W = 2 \, \mathrm{tr}\, \Sigma - 2 \, \mathrm{tr}\, (D^{1/2} \Sigma D^{1/2})^{1/2}, \quad
        MI = \frac{1}{d (d - 1)} \sum_{i \ne j} I(c_i; c_j)

    with :math:`\Sigma` the covariance (ddof 1), :math:`D` its diagonal and :math:`R` the correlations. W is the squared
    2-Wasserstein distance of the Gaussian from its independent version, in squared units of the codes, and
    ``_norm`` divides it by the trace of the covariance. MI is in nats on `bins` equal-width bins, with a bias of about
    (bins - 1)^2 / 2n. 0: independent (to second order for TC and W). There is no upper end.

    Beware: independence is not disentanglement. A rotated code of unit variance and pure noise both score next to 0
    (`rotated`, `noise`), and so does a code that tells of nothing. TC and W see linear dependence only.

    Deviations, all where the reference code returns nan, inf or complex numbers. Exactly constant codes are dropped
    from TC and W (they stay in MI, with 0), and fewer than two others score 0. Exactly dependent codes have infinite
    TC: eigenvalues of R are floored at rounding (2.2e-16 d), so that each redundant code adds about 17 nats.

    Reference: Locatello et al. (2019), arXiv:1811.12359.

    >>> scores = unsupervised([[1, 1], [-1, 1], [1, -1], [-1, -1]])
    >>> [round(score, 6) for score in scores.values()]
    [0.0, 0.0, 0.0, 0.0]
    """
    table = as_codes(codes, columns=2)
    live = table[:, np.ptp(table, axis=0) > 0]
    covariance = np.cov(live.T) if live.shape[1] > 1 else np.eye(1)
    distance = wasserstein(covariance)
    return {
        "gaussian_total_correlation": total_correlation(covariance),
        "gaussian_wasserstein_correlation": distance,
        "gaussian_wasserstein_correlation_norm": distance / float(np.trace(covariance)),
        "mutual_info_score": _pairwise(table, bins),
    }


def total_correlation(covariance: Float[np.ndarray, "d d"]) -> float:
    """Total correlation of a Gaussian in nats, finite also where the covariance is singular.

    >>> round(total_correlation(np.array([[1.0, 0.6], [0.6, 1.0]])), 6)  # -log(1 - 0.6^2) / 2
    0.223144
    """
    scale = np.sqrt(np.diag(covariance))
    eigenvalues = np.linalg.eigvalsh(covariance / np.outer(scale, scale))
    floor = np.finfo(np.float64).eps * len(covariance)
    return max(0.0, float(-0.5 * np.log(np.maximum(eigenvalues, floor)).sum()))


def wasserstein(covariance: Float[np.ndarray, "d d"]) -> float:
    """Squared 2-Wasserstein distance between a Gaussian and the one with the same variances and no correlation.

    >>> round(wasserstein(np.array([[1.0, 0.6], [0.6, 1.0]])), 6)  # 4 - 2 sqrt(1.6) - 2 sqrt(0.4)
    0.205267
    """
    scale = np.sqrt(np.diag(covariance))
    eigenvalues = np.linalg.eigvalsh(covariance * np.outer(scale, scale))
    root = np.sqrt(np.maximum(eigenvalues, 0)).sum()
    return max(0.0, float(2 * np.trace(covariance) - 2 * root))


def _pairwise(codes: Float[np.ndarray, "n d"], bins: int) -> float:
    """Mean mutual information of two different codes."""
    labels = discretise(codes, bins)
    information = mutual_information(labels, labels)
    d = len(information)
    return float((information.sum() - np.trace(information)) / (d * (d - 1)))
