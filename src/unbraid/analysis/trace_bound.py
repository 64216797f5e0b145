"""Theorem 1 of "Demystifying inductive biases": why noise turns a decoder's axes onto principal axes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import expm

from unbraid.analysis.results_table import Array, refuse
from unbraid.analysis.theory import rotation


class Descent(NamedTuple):
    """A rotation and a share of the noise found by descent, with the loss at the start and at the end."""

    rotation: Array
    noise: Array
    start: float
    loss: float


def checked(covariance: Any) -> Array:
    """A symmetric matrix with positive eigenvalues, or a refusal."""
    c = np.asarray(covariance, float)
    if c.ndim != 2 or c.shape[0] != c.shape[1] or not np.allclose(c, c.T):
        refuse("A covariance must be a symmetric matrix (n, n).", f"shape {c.shape}", "Pass X^T X, for example.")
    if np.linalg.eigvalsh(c)[0] <= 0:
        refuse("A covariance must have positive eigenvalues.", "one that has not", "Leave out directions not used.")
    return c


def stochastic_loss(rotation: Any, covariance: Any, noise: Any) -> float:
    r"""What the noise of the latents costs when their axes are turned.

    .. math:: \mathrm{tr}(E U C U^T E) = \sum_j e_j^2 (U C U^T)_{jj}

    `noise` are the variances e_j^2. C is X^T X of the reconstructions, the means of the latents having unit variance.
    Reference: Zietlow et al. (2021), arXiv:2102.06822, supplement, eq. (7).
    """
    u, e = np.asarray(rotation, float), np.asarray(noise, float)
    return float(e @ np.diag(u @ np.asarray(covariance, float) @ u.T))


def best_noise(rotation: Any, covariance: Any, log_noise: float) -> Array:
    r"""For given axes the share of the noise that costs least, at the same sum of log e_j^2 (hence the same KL).

    .. math:: e_j^2 = \exp\big((c + \textstyle\sum_k \log d_k) / n\big) / d_j, \quad d_j = (U C U^T)_{jj}

    Every latent then costs the same.
    """
    u = np.asarray(rotation, float)
    strengths = np.diag(u @ checked(covariance) @ u.T)
    return np.asarray(np.exp((log_noise + np.log(strengths).sum()) / len(strengths)) / strengths)


def trace_bound(covariance: Any, log_noise: float) -> float:
    r"""The least stochastic loss over all rotations and all shares of the noise.

    .. math:: \min_{U, e} \sum_j e_j^2 (U C U^T)_{jj} = n \exp\big((c + \log\det C) / n\big),
        \quad \sum_j \log e_j^2 = c

    It is reached exactly where U C U^T is diagonal: at the principal axes. The sum of log e_j^2 stands for the KL.

    Deviation: the supplement's eq. (8) bounds the loss for fixed E, where the bound is in general not reached
    (`fixed_noise_minimum`); here the noise is free to be shared out, as it is in a VAE.
    Reference: Zietlow et al. (2021), arXiv:2102.06822, theorem 1.

    >>> trace_bound([[4.0, 0.0], [0.0, 1.0]], log_noise=0.0)
    4.0
    """
    c = checked(covariance)
    n = len(c)
    return float(n * np.exp((log_noise + np.linalg.slogdet(c)[1]) / n))


def fixed_noise_minimum(covariance: Any, noise: Any) -> float:
    r"""The least stochastic loss over rotations alone: the largest noise on the weakest axis.

    .. math:: \min_U \sum_j e_j^2 (U C U^T)_{jj} = \sum_j e_{(j)}^2 \lambda_{(n + 1 - j)}

    It is at least :math:`n \det(E^2 C)^{1/n}`, the bound of eq. (8), and equal to it only where all products agree.

    >>> fixed_noise_minimum([[4.0, 0.0], [0.0, 1.0]], [1.0, 1.0]), trace_bound([[4.0, 0.0], [0.0, 1.0]], 0.0)
    (5.0, 4.0)
    """
    values = np.linalg.eigvalsh(checked(covariance))
    return float(np.sort(np.asarray(noise, float))[::-1] @ values)


def descend(covariance: Any, log_noise: float, seed: int = 0, steps: int = 200) -> Descent:
    r"""Minimise the stochastic loss over rotation and noise together from a random rotation.

    With the best noise the loss is :math:`n \exp((c + \sum_j \log d_j) / n)`, so that the rotation minimises
    :math:`\sum_j \log d_j`. Steps follow its gradient on the rotations,
    :math:`A_{jk} = B_{jk} (1 / d_j - 1 / d_k)` with B = U C U^T, halved until the sum falls. No eigenvectors go in.
    """
    c = checked(covariance)
    turn = rotation(len(c), seed)
    first = turn
    step = 1.0
    for _ in range(steps):
        turned = turn @ c @ turn.T
        inverse = 1 / np.diag(turned)
        slope = turned * (inverse[None, :] - inverse[:, None])
        while step > 1e-12:
            trial = expm(step * slope) @ turn
            if np.log(np.diag(trial @ c @ trial.T)).sum() <= -np.log(inverse).sum():
                turn, step = trial, 2 * step
                break
            step /= 2
    noise = best_noise(turn, c, log_noise)
    started = stochastic_loss(first, c, best_noise(first, c, log_noise))
    return Descent(turn, noise, started, stochastic_loss(turn, c, noise))


def best_scale(values: Any) -> float:
    r"""The factor that minimises the KL of latents with these means, whatever their noise.

    .. math:: \arg\min_c \sum_i \big(c^2 x_i^2 - \log(c^2 y_i^2)\big) = \sqrt{n / \textstyle\sum_i x_i^2}

    Scaled so, the means have unit mean square.

    Deviation: lemma 1 of the supplement has :math:`\sqrt{\sum_i x_i^2}`, which is not where the derivative
    :math:`2 c \sum_i x_i^2 - 2 n / c` vanishes.

    >>> best_scale([2.0, 2.0])
    0.5
    """
    x = np.asarray(values, float)
    if not x.any():
        refuse("Means must not all be zero.", "zeros", "Leave out latents that are not used.")
    return float(np.sqrt(x.size / np.square(x).sum()))
