r"""The Riemannian normal distribution on hyperbolic space of dimension d and curvature -c.

The density at a point z, with respect to the volume of the space, is :math:`e^{-r^2 / 2 \sigma^2} / Z(\sigma)`, where r
is the distance of z from the mean. All directions from the mean are equally likely, and r has the density

.. math:: p(r) \propto e^{-r^2 / 2 \sigma^2} \Big( \frac{\sinh \sqrt c\, r}{\sqrt c} \Big)^{d - 1}

For c = 0 the distribution is a normal distribution with the covariance :math:`\sigma^2 I`. The constant Z is computed
by quadrature over r, and r is sampled by inverting its distribution function. Both are differentiable in
:math:`\sigma`, need no rejection, work under ``vmap``, and are computed in float64. The quadrature has no cancellation,
in contrast to the closed form of Z, which is an alternating sum.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.noise import Noise
from unbraid.spaces.inversion import invert_distribution
from unbraid.spaces.manifold import normalise
from unbraid.spaces.poincare import log_sinhc

NODES = 256  # number of nodes of the quadrature, and of intervals of the distribution function
WIDTHS = 7.0  # radii reach to this many standard deviations beyond the bounds of the mode


def radius_range(scale: Float[Tensor, " b"], d: int, c: float | Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the ends of the interval of radii outside which the density is negligible.

    The mode solves :math:`r^2 / \sigma^2 = (d - 1)\, x \coth x` with :math:`x = \sqrt c\, r`. Because
    :math:`\max(1, x) \le x \coth x \le 1 + x`, it lies between two bounds. The interval extends `WIDTHS` times
    :math:`\sigma` beyond these bounds. This is enough, because the tails of the density are lighter than those of a
    normal distribution with the standard deviation :math:`\sigma`: its logarithm is at least as curved. Gradients treat
    the ends as constants.
    """
    s = scale.detach()
    linear, square = (d - 1) * s.square() * c**0.5, (d - 1) * s.square()
    low = torch.maximum(linear, square.sqrt()) - WIDTHS * s
    return low.clamp(min=0), 0.5 * linear + (0.25 * linear.square() + square).sqrt() + WIDTHS * s


def log_weights(r: Float[Tensor, "b m"], scale: Float[Tensor, " b"], d: int, c: float | Tensor) -> Float[Tensor, "b m"]:
    r"""Return the logarithm of :math:`e^{-r^2 / 2 \sigma^2} (\sinh(\sqrt c\, r) / \sqrt c)^{d - 1}`."""
    return -0.5 * (r / scale[:, None]).square() + (d - 1) * (r.log() + log_sinhc(c * r.square()))


def quadrature(scale: Float[Tensor, " b"], d: int, c: float | Tensor) -> tuple[Tensor, Tensor]:
    r"""Return nodes (b, m) of the radius, and the logarithms of their weights.

    The sum of the weights is the integral of the density of r before normalisation.

    The nodes are :math:`t - \sin(2 \pi t) / 2 \pi`, scaled to the interval of radii, for m equally spaced t. They are
    dense at both ends, which makes the midpoint rule accurate there.
    """
    low, high = (end[:, None] for end in radius_range(scale, d, c))
    t = (torch.arange(NODES, dtype=scale.dtype, device=scale.device) + 0.5) / NODES
    r = low + (high - low) * (t - (2 * math.pi * t).sin() / (2 * math.pi))
    width = (high - low).log() + (2 * (math.pi * t).sin().square() / NODES).log()
    return r, log_weights(r, scale, d, c) + width


def log_normaliser(scale: Float[Tensor, " b"], d: int, c: float | Tensor) -> Float[Tensor, " b"]:
    r"""Return :math:`\log Z(\sigma)` in float64.

    Args:
        scale: The scale :math:`\sigma` of each distribution.
        d: The dimension of the space.
        c: The absolute value of the curvature, at least 0.

    >>> euclidean = log_normaliser(torch.tensor([2.0]), 3, 0.0)
    >>> abs(float(euclidean) - 1.5 * math.log(2 * math.pi * 4)) < 1e-9
    True
    """
    area = math.log(2) + 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d)  # log area of the unit sphere
    return quadrature(scale.double(), d, c)[1].logsumexp(1) + area


def mean_squared_radius(scale: Float[Tensor, " b"], d: int, c: float | Tensor) -> Float[Tensor, " b"]:
    """Return the mean of the squared distance from the mean point, in float64."""
    r, weights = quadrature(scale.double(), d, c)
    return (weights.softmax(1) * r.square()).sum(1)


def log_density(v: Float[Tensor, "b d"], scale: Float[Tensor, " #b"], c: float | Tensor) -> Float[Tensor, " b"]:
    """Return the log density at the ends of geodesics that start at the mean, in float64.

    Args:
        v: One vector per distribution, whose direction and length are those of the geodesic.
        scale: One scale per distribution, or a single scale for all of them.
        c: The absolute value of the curvature, at least 0.
    """
    return -0.5 * v.double().square().sum(1) / scale.double().square() - log_normaliser(scale, v.shape[1], c)


def sample_radii(
    scale: Float[Tensor, " b"], d: int, c: float | Tensor, uniform: Float[Tensor, " b"]
) -> Float[Tensor, " b"]:
    """Return one distance from the mean per distribution, as a differentiable function of the scale."""
    wide = scale.double()
    low, high = (end[:, None] for end in radius_range(wide, d, c))
    midpoints = (torch.arange(NODES, dtype=wide.dtype, device=wide.device) + 0.5) / NODES
    r = low + (high - low) * midpoints
    return invert_distribution(r, log_weights(r, wide, d, c), uniform.double()).to(scale)


def sample(scale: Float[Tensor, " b"], d: int, c: float | Tensor, noise: Noise) -> Float[Tensor, "b d"]:
    """Return one vector per distribution. The geodesic from the mean with its direction and length ends at a sample.

    Args:
        scale: The scale of each distribution.
        d: The dimension of the space.
        c: The absolute value of the curvature, at least 0.
        noise: Source of randomness.
    """
    r = sample_radii(scale, d, c, noise.uniform(len(scale)))
    return r[:, None] * normalise(noise.normal(len(scale), d))
