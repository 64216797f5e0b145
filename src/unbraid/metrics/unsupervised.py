"""Measures of the dependence between latents. They need no labels."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from unbraid.metrics.arrays import Codes, as_codes
from unbraid.metrics.information import discretise, mutual_information


def unsupervised(codes: Codes, *, bins: int = 20) -> dict[str, float]:
    r"""Measure the dependence between latents by total correlation, Wasserstein distance and mutual information.

    .. math:: TC = -\tfrac12 \log \det R, \quad
        W = 2 \, \mathrm{tr}\, \Sigma - 2 \, \mathrm{tr}\, (D^{1/2} \Sigma D^{1/2})^{1/2}, \quad
        MI = \frac{1}{d (d - 1)} \sum_{i \ne j} I(c_i; c_j)

    where :math:`\Sigma` is the covariance (ddof 1), :math:`D` is its diagonal and :math:`R` is the correlation matrix.
    No factors are needed. TC and W describe a Gaussian that is fitted to the codes. W is its squared 2-Wasserstein
    distance from the Gaussian with the same variances and independent latents, in squared units of the codes. MI is in
    nats and is computed from `bins` equal-width bins, with a bias of about (bins - 1)^2 / 2n.

    All scores are at least 0 and have no upper bound. Low values are better. 0 means that the latents are independent
    (MI) or uncorrelated (TC and W). The value 1 has no special meaning.

    Limitations: Independence is not disentanglement. Two kinds of bad codes score close to 0: rotated codes with unit
    variances, and codes without information about the factors, such as pure noise. TC and W detect only linear
    dependence.

    Deviations: All deviations concern cases in which disentanglement_lib (the library of Locatello et al.) returns nan,
    inf or complex numbers. Exactly constant latents are excluded from TC and W, and TC and W are 0 if fewer than two
    latents remain. In MI, constant latents remain and contribute 0. Exactly dependent latents would have an infinite
    TC. The eigenvalues of R are therefore clipped at rounding precision (2.2e-16 times d), and each redundant latent
    adds about 17 nats.

    Reference: Locatello et al. (2019), arXiv:1811.12359.

    Args:
        codes: Array of shape (n, d), one row per example and one column per latent.
        bins: Number of equal-width bins into which each latent is discretised.

    Returns:
        `gaussian_total_correlation` (TC), `gaussian_wasserstein_correlation` (W),
        `gaussian_wasserstein_correlation_norm` (W divided by the trace of the covariance) and `mutual_info_score` (MI).

    Raises:
        UserError: If the codes are not a finite 2-d array of numbers, or if there are fewer than 2 latents.

    Example:
        >>> scores = unsupervised([[1, 1], [-1, 1], [1, -1], [-1, -1]])
        >>> [round(score, 6) for score in scores.values()]
        [0.0, 0.0, 0.0, 0.0]
    """
    table = as_codes(codes, columns=2)
    varying = table[:, np.ptp(table, axis=0) > 0]
    covariance = np.cov(varying.T) if varying.shape[1] > 1 else np.eye(1)
    distance = wasserstein(covariance)
    return {
        "gaussian_total_correlation": total_correlation(covariance),
        "gaussian_wasserstein_correlation": distance,
        "gaussian_wasserstein_correlation_norm": distance / float(np.trace(covariance)),
        "mutual_info_score": _mean_pairwise_information(table, bins),
    }


def total_correlation(covariance: Float[np.ndarray, "d d"]) -> float:
    """Return the total correlation of a Gaussian in nats. It is finite even if the covariance is singular.

    >>> round(total_correlation(np.array([[1.0, 0.6], [0.6, 1.0]])), 6)  # -log(1 - 0.6^2) / 2
    0.223144
    """
    scale = np.sqrt(np.diag(covariance))
    eigenvalues = np.linalg.eigvalsh(covariance / np.outer(scale, scale))
    floor = np.finfo(np.float64).eps * len(covariance)
    return max(0.0, float(-0.5 * np.log(np.maximum(eigenvalues, floor)).sum()))


def wasserstein(covariance: Float[np.ndarray, "d d"]) -> float:
    """Return the squared 2-Wasserstein distance of a Gaussian from the uncorrelated Gaussian with the same variances.

    >>> round(wasserstein(np.array([[1.0, 0.6], [0.6, 1.0]])), 6)  # 4 - 2 sqrt(1.6) - 2 sqrt(0.4)
    0.205267
    """
    scale = np.sqrt(np.diag(covariance))
    eigenvalues = np.linalg.eigvalsh(covariance * np.outer(scale, scale))
    root = np.sqrt(np.maximum(eigenvalues, 0)).sum()
    return max(0.0, float(2 * np.trace(covariance) - 2 * root))


def _mean_pairwise_information(codes: Float[np.ndarray, "n d"], bins: int) -> float:
    """Return the mean mutual information over all pairs of different latents, in nats."""
    labels = discretise(codes, bins)
    information = mutual_information(labels, labels)
    d = len(information)
    return float((information.sum() - np.trace(information)) / (d * (d - 1)))
