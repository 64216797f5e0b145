"""Theorem 1 of Zietlow et al. (2021): why noise aligns the axes of a decoder with the principal axes of the data."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import expm

from unbraid.analysis.results_table import Array, reject
from unbraid.analysis.theory import rotation


class Descent(NamedTuple):
    """The result of `descend`.

    Attributes:
        rotation: The final rotation, (n, n).
        noise: The best noise variances for the final rotation, (n,).
        start: The loss at the random initial rotation.
        loss: The loss at the final rotation.
    """

    rotation: Array
    noise: Array
    start: float
    loss: float


def check_covariance(covariance: Any) -> Array:
    """Return a covariance as an array. Raise a UserError if it is not symmetric with positive eigenvalues."""
    c = np.asarray(covariance, float)
    if c.ndim != 2 or c.shape[0] != c.shape[1] or not np.allclose(c, c.T):
        reject("A covariance must be a symmetric matrix (n, n).", f"shape {c.shape}", "Pass X^T X, for example.")
    if np.linalg.eigvalsh(c)[0] <= 0:
        reject("A covariance must have positive eigenvalues.", "one that is <= 0", "Leave out unused directions.")
    return c


def stochastic_loss(rotation: Any, covariance: Any, noise: Any) -> float:
    r"""Compute the loss that the noise of the latents causes if the latent axes are rotated.

    .. math:: \mathrm{tr}(E U C U^T E) = \sum_j e_j^2 (U C U^T)_{jj}

    Reference: Zietlow et al. (2021), arXiv:2102.06822, supplement, eq. (7).

    Args:
        rotation: U, (n, n).
        covariance: C, (n, n). If the means of the latents have unit variance, this is the covariance of the
            reconstructions.
        noise: The variances e_j^2 of the latents, (n,). E is the diagonal matrix of the e_j.

    Returns:
        The loss.
    """
    u, e = np.asarray(rotation, float), np.asarray(noise, float)
    return float(e @ np.diag(u @ np.asarray(covariance, float) @ u.T))


def best_noise(rotation: Any, covariance: Any, log_noise: float) -> Array:
    r"""Return the noise variances with the smallest loss, for given axes and a given sum of log e_j^2.

    The sum c of log e_j^2 is the argument `log_noise`. It is fixed, as a substitute for a fixed KL.

    .. math:: e_j^2 = \exp\big((c + \textstyle\sum_k \log d_k) / n\big) / d_j, \quad d_j = (U C U^T)_{jj}

    Here U is the rotation, C the covariance and n the number of latents. With these variances, every latent contributes
    equally to the loss.
    """
    u = np.asarray(rotation, float)
    strengths = np.diag(u @ check_covariance(covariance) @ u.T)
    return np.asarray(np.exp((log_noise + np.log(strengths).sum()) / len(strengths)) / strengths)


def trace_bound(covariance: Any, log_noise: float) -> float:
    r"""Return the minimum of the stochastic loss over all rotations and all distributions of the noise over latents.

    .. math:: \min_{U, e} \sum_j e_j^2 (U C U^T)_{jj} = n \exp\big((c + \log\det C) / n\big),
        \quad \sum_j \log e_j^2 = c

    Here U is a rotation of the n latents and e_j^2 the noise variance of latent j. The minimum is attained if and only
    if U C U^T is diagonal, that is, at the principal axes. The sum c of log e_j^2 is fixed, as a substitute for a fixed
    KL.

    Deviation from the paper: Eq. (8) of the supplement bounds the loss for fixed noise variances. That bound is in
    general not attained (see `fixed_noise_minimum`). Here the noise can be distributed freely over the latents, as in a
    VAE.

    Reference: Zietlow et al. (2021), arXiv:2102.06822, theorem 1.

    Args:
        covariance: C, (n, n), symmetric with positive eigenvalues.
        log_noise: The sum c of log e_j^2.

    Returns:
        The minimum.

    Raises:
        UserError: If the covariance is not symmetric with positive eigenvalues.

    >>> trace_bound([[4.0, 0.0], [0.0, 1.0]], log_noise=0.0)
    4.0
    """
    c = check_covariance(covariance)
    n = len(c)
    return float(n * np.exp((log_noise + np.linalg.slogdet(c)[1]) / n))


def fixed_noise_minimum(covariance: Any, noise: Any) -> float:
    r"""Return the minimum of the stochastic loss over rotations for fixed noise.

    At the minimum, the latent with the largest noise is on the axis with the smallest eigenvalue.

    .. math:: \min_U \sum_j e_j^2 (U C U^T)_{jj} = \sum_j e_{(j)}^2 \lambda_{(n + 1 - j)}

    Here :math:`\lambda` are the eigenvalues of C, and the index (j) denotes the j-th smallest value. The
    minimum is at least :math:`n \det(E^2 C)^{1/n}`, the bound of eq. (8) of the supplement, where E is the diagonal
    matrix of the e_j. The minimum equals this bound only if all products in the sum are equal.

    >>> fixed_noise_minimum([[4.0, 0.0], [0.0, 1.0]], [1.0, 1.0]), trace_bound([[4.0, 0.0], [0.0, 1.0]], 0.0)
    (5.0, 4.0)
    """
    values = np.linalg.eigvalsh(check_covariance(covariance))
    return float(np.sort(np.asarray(noise, float))[::-1] @ values)


def descend(covariance: Any, log_noise: float, seed: int = 0, steps: int = 200) -> Descent:
    r"""Minimise the stochastic loss over rotation and noise by gradient descent from a random rotation.

    With the best noise (see `best_noise`), the loss is :math:`n \exp((c + \sum_j \log d_j) / n)`, where
    :math:`d_j = (U C U^T)_{jj}`. The best rotation U therefore minimises :math:`\sum_j \log d_j`. Each
    step goes against the gradient of this sum on the group of rotations, which is
    :math:`A_{jk} = B_{jk} (1 / d_j - 1 / d_k)` with B = U C U^T. The step size is halved until the sum does not
    increase. Eigenvectors are not used, so the result can be checked against them.
    """
    c = check_covariance(covariance)
    current = rotation(len(c), seed)
    initial = current
    step = 1.0
    for _ in range(steps):
        rotated = current @ c @ current.T
        inverse = 1 / np.diag(rotated)
        slope = rotated * (inverse[None, :] - inverse[:, None])
        while step > 1e-12:
            trial = expm(step * slope) @ current
            if np.log(np.diag(trial @ c @ trial.T)).sum() <= -np.log(inverse).sum():
                current, step = trial, 2 * step
                break
            step /= 2
    noise = best_noise(current, c, log_noise)
    start = stochastic_loss(initial, c, best_noise(initial, c, log_noise))
    return Descent(current, noise, start, stochastic_loss(current, c, noise))


def best_scale(values: Any) -> float:
    r"""Return the number c by which latent means must be multiplied to minimise the KL, for any noise.

    .. math:: \arg\min_c \sum_i \big(c^2 x_i^2 - \log(c^2 y_i^2)\big) = \sqrt{n / \textstyle\sum_i x_i^2}

    The :math:`x_i` are the n means. The result does not depend on the noise :math:`y_i`. The scaled means have a mean
    square of 1.

    Deviation from the paper: Lemma 1 of the supplement has :math:`\sqrt{\sum_i x_i^2}`, at which the derivative
    :math:`2 c \sum_i x_i^2 - 2 n / c` is not zero.

    >>> best_scale([2.0, 2.0])
    0.5
    """
    x = np.asarray(values, float)
    if not x.any():
        reject("Means must not all be zero.", "only zeros", "Leave out unused latents.")
    return float(np.sqrt(x.size / np.square(x).sum()))
