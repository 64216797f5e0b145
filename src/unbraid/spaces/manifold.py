"""The base class of latent spaces that are closed manifolds in a Euclidean space.

It provides the random walk and the KL divergence of the diffusion VAE.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.distributions import LOG_2PI
from unbraid.errors import UserError
from unbraid.noise import Noise

MIN_SQUARED_LENGTH = 1e-12  # vectors whose squared length is below this are treated as zero


def normalise(x: Float[Tensor, "... n"]) -> Float[Tensor, "... n"]:
    """Scale vectors to length 1. A zero vector becomes the first unit vector, with a gradient of zero."""
    square = x.square().sum(-1, keepdim=True)
    is_zero = square < MIN_SQUARED_LENGTH
    first_axis = torch.cat([torch.ones_like(x[..., :1]), torch.zeros_like(x[..., 1:])], -1)
    return torch.where(is_zero, first_axis, x) / torch.where(is_zero, 1.0, square).sqrt()


@dataclass(frozen=True)
class Space(ABC):
    """A closed manifold of dimension d in :math:`R^n`, with the metric that :math:`R^n` induces on it.

    Points are rows of n ambient coordinates.

    Args:
        latents: The dimension n of the ambient space.

    Raises:
        UserError: If the space does not exist for this number of latents.
    """

    latents: int

    name: ClassVar[str] = ""
    has_angles: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check_latents()

    @abstractmethod
    def check_latents(self) -> None:
        """Raise a UserError if the space does not exist for this number of latents."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The intrinsic dimension d."""

    @property
    @abstractmethod
    def log_volume(self) -> float:
        """The logarithm of the d-dimensional volume."""

    @property
    @abstractmethod
    def curvatures(self) -> tuple[float, float]:
        """The minimum and the maximum of the scalar curvature over the manifold."""

    @abstractmethod
    def project(self, x: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
        """Return the point of the manifold that is nearest to each given point.

        If several points are equally near, one of them is returned. Gradients are finite everywhere.

        Args:
            x: Points (..., n) of the ambient space.

        Returns:
            Points (..., n) of the manifold.
        """

    @abstractmethod
    def closed_curves(
        self, z: Float[Tensor, " n"], s: Float[Tensor, " p"]
    ) -> tuple[Float[Tensor, "rows p n"], list[str]]:
        """Return closed curves through a point, for traversals.

        Args:
            z: A point (n,) of the manifold.
            s: Positions (p,) along each curve, given as angles from z in radians.

        Returns:
            Points (rows, p, n), one row per curve, and the names of the curves.
        """

    def curvature(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b"]:
        """Return the scalar curvature (...) at points (..., n) of the manifold."""
        return torch.full_like(z[..., 0], self.curvatures[0])

    def embed(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
        """Return coordinates (..., m) that are equal for two points if and only if the points are the same.

        These are the ambient coordinates, except in spaces where several rows of ambient coordinates represent the same
        point.
        """
        return z

    def angles(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
        """Return d angles (..., d), in radians, as coordinates of points (..., n).

        The angles are not continuous on the whole manifold.

        Raises:
            UserError: If the space has no such angles.
        """
        raise UserError(
            f"Points of the space {self.name!r} cannot be described by angles. Use their ambient coordinates instead."
        )

    def diffuse(
        self, start: Float[Tensor, "b n"], t: Float[Tensor, " b"], noise: Noise, steps: int, step: str = "sqrt"
    ) -> Float[Tensor, "b n"]:
        r"""Run a random walk that approximates Brownian motion on the manifold for a time t.

        .. math:: z^{(l+1)} = P(z^{(l)} + \sqrt{t / L}\, \epsilon), \quad \epsilon \sim N(0, I_n)

        where P is `project` and L is `steps`. If `step` is "literal", the noise is multiplied by t instead of
        :math:`\sqrt{t / L}`. The walk then covers the time :math:`L t^2`.
        Reference: Perez Rey et al. (2019), arXiv:1901.08991.

        Args:
            start: Points (b, n) of the manifold.
            t: The time (b,) of each walk.
            noise: The source of random numbers.
            steps: The number of steps L.
            step: The factor of the noise: "sqrt" for :math:`\sqrt{t / L}`, or "literal" for t.

        Returns:
            The end points (b, n).
        """
        scale = t if step == "literal" else (t / steps).sqrt()
        z = start
        for _ in range(steps):
            z = self.project(z + scale[:, None] * noise.normal(*z.shape))
        return z

    def uniform(self, n_points: int, noise: Noise) -> Float[Tensor, "b n"]:
        """Draw points from the uniform distribution on the manifold, which is the prior of the diffusion VAE.

        This implementation projects normally distributed points to the manifold. The result is uniform if every
        isometry of the manifold is a rotation or reflection of the ambient space, and if for any two points there is an
        isometry that maps one to the other.

        Args:
            n_points: The number of points b.
            noise: The source of random numbers.

        Returns:
            Points (b, n).
        """
        return self.project(noise.normal(n_points, self.latents))

    def kl(self, z: Float[Tensor, "*b n"], log_t: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
        r"""Return the KL divergence of the heat kernel from the uniform distribution, approximated for small t.

        The heat kernel is the distribution of Brownian motion that started at z, after a time t.

        .. math:: -\frac d2 \log(2 \pi t) - \frac d2 + \log Vol + \frac{Sc(z)\, t}{4}

        where d is the dimension of the manifold, Vol is its volume, and Sc is the scalar curvature.
        Reference: Perez Rey et al. (2019), arXiv:1901.08991.

        Args:
            z: Points (..., n) of the manifold.
            log_t: The logarithm (...) of the time t of each point.

        Returns:
            The divergence (...) in nats.
        """
        d = self.dimension
        return -0.5 * d * (LOG_2PI + log_t + 1) + self.log_volume + 0.25 * self.curvature(z) * log_t.exp()

    def kl_range(self, low: float, high: float) -> tuple[float, float]:
        """Return the minimum and the maximum of `kl` over the manifold and over log t in [low, high].

        `low` may be minus infinity, and `high` may be infinity. The divergence grows without bound for small t. For
        large t, it grows without bound where the curvature is positive, and falls without bound elsewhere.
        """
        d, (min_curvature, max_curvature) = self.dimension, self.curvatures

        def kl(log_t: float, curvature: float) -> float:
            if log_t == math.inf and curvature > 0:
                return math.inf
            curvature_term = 0.25 * curvature * math.exp(log_t) if curvature and log_t < math.inf else 0.0
            return -0.5 * d * (LOG_2PI + log_t + 1) + self.log_volume + curvature_term

        # As a function of log t, the divergence is convex if the curvature is positive, and otherwise decreasing.
        lowest = math.log(2 * d / min_curvature) if min_curvature > 0 else math.inf
        minimum = kl(min(max(lowest, low), high), min_curvature)
        return minimum, max(kl(low, max_curvature), kl(high, max_curvature))
