r"""The von Mises-Fisher distribution on the unit sphere in :math:`R^n`, by quadrature over the angle to its mean.

The density is proportional to :math:`e^{\kappa \mu^T z}`. The angle :math:`\theta` between z and the mean
:math:`\mu` has the density :math:`p(\theta) \propto \sin^{n - 2}\theta\, e^{\kappa \cos\theta}`. Sums over nodes of
:math:`\theta` give the KL from the uniform distribution. They also give the distribution function of :math:`\theta`,
whose inverse is used to sample angles. The KL and the samples are differentiable in :math:`\kappa`, need no Bessel
functions and no rejection, and work under ``vmap``.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.noise import Noise
from unbraid.spaces.inversion import invert_distribution
from unbraid.spaces.manifold import normalise

NODES = 256  # number of intervals of the angle
WIDTHS = 10.0  # the nodes of a narrow distribution reach to at least this many of its standard deviations


def angle_nodes(kappa: Float[Tensor, " b"], n: int) -> Float[Tensor, "b m"]:
    r"""Return the midpoints of equal intervals of :math:`\theta`, from 0 to the end of the density's support.

    The end is :math:`\pi`, or less if the distribution is so narrow that the weight of larger angles is negligible.
    Gradients treat the end as a constant.
    """
    end = ((WIDTHS + math.sqrt(n)) * kappa.detach().clamp(min=1e-6).rsqrt()).clamp(max=math.pi)
    midpoints = (torch.arange(NODES, dtype=kappa.dtype, device=kappa.device) + 0.5) / NODES
    return end[:, None] * midpoints


def log_weights(theta: Float[Tensor, "b m"], kappa: Float[Tensor, " b"], n: int) -> Float[Tensor, "b m"]:
    r"""Return the logarithm of :math:`\sin^{n - 2}\theta\, e^{\kappa (\cos\theta - 1)}` at the nodes."""
    return (n - 2) * theta.sin().log() - 2 * kappa[:, None] * (0.5 * theta).sin().square()


def log_ratio(versine: Float[Tensor, " b"], kappa: Float[Tensor, " b"], n: int) -> Float[Tensor, " b"]:
    r"""Return the log of the ratio of the density to the uniform density. `versine` is :math:`1 - \cos\theta`."""
    theta = angle_nodes(kappa, n)
    integral = log_weights(theta, kappa, n).logsumexp(1) + (theta[:, 1] - theta[:, 0]).log()
    uniform = 0.5 * math.log(math.pi) + math.lgamma(0.5 * (n - 1)) - math.lgamma(0.5 * n)
    return uniform - integral - kappa * versine


def kl_from_uniform(kappa: Float[Tensor, " b"], n: int) -> Float[Tensor, " b"]:
    r"""Return the KL of von Mises-Fisher distributions from the uniform distribution on the sphere, in nats.

    .. math:: \kappa\, E[\cos\theta] - \log \frac{\int \sin^{n - 2}\theta\, e^{\kappa \cos\theta}\, d\theta}
              {\int \sin^{n - 2}\theta\, d\theta}

    Args:
        kappa: The concentration of each distribution.
        n: The dimension of the ambient space, at least 2.

    >>> exact = math.log(10 / math.sinh(10)) + 10 / math.tanh(10) - 1  # the closed form for n = 3
    >>> abs(float(kl_from_uniform(torch.tensor([10.0]), 3)) - exact) < 1e-4
    True
    """
    theta = angle_nodes(kappa, n)
    versine = (log_weights(theta, kappa, n).softmax(1) * 2 * (0.5 * theta).sin().square()).sum(1)
    return log_ratio(versine, kappa, n)


def sample_angles(kappa: Float[Tensor, " b"], n: int, uniform: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
    r"""Return one angle :math:`\theta` per distribution, as a differentiable function of kappa and uniform numbers.

    The distribution function is linear between nodes, and its inverse is evaluated at the uniform numbers.
    """
    theta = angle_nodes(kappa, n)
    return invert_distribution(theta, log_weights(theta, kappa, n), uniform)


def sample(mean: Float[Tensor, "b n"], kappa: Float[Tensor, " b"], noise: Noise) -> Float[Tensor, "b n"]:
    """Return one sample per distribution, as a differentiable function of its mean and its concentration.

    Args:
        mean: Means, unit vectors.
        kappa: Concentrations.
        noise: Source of randomness.
    """
    b, n = mean.shape
    theta = sample_angles(kappa, n, noise.uniform(b))[:, None]
    direction = noise.normal(b, n)
    tangent = normalise(direction - (direction * mean).sum(1, keepdim=True) * mean)
    return normalise(theta.cos() * mean + theta.sin() * tangent)
