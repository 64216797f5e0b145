"""The interface of a latent space: a closed manifold in a Euclidean space, with a random walk and its KL divergence."""

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

MIN_SQUARED_LENGTH = 1e-12  # a vector whose squared length is below this has no direction


def normalise(x: Float[Tensor, "... n"]) -> Float[Tensor, "... n"]:
    """Scale vectors to length 1. Zero vectors become the first axis, with a gradient of zero."""
    square = x.square().sum(-1, keepdim=True)
    short = square < MIN_SQUARED_LENGTH
    pole = torch.cat([torch.ones_like(x[..., :1]), torch.zeros_like(x[..., 1:])], -1)
    return torch.where(short, pole, x) / torch.where(short, 1.0, square).sqrt()


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
        """The smallest and the largest scalar curvature of all points."""

    @abstractmethod
    def project(self, x: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
        """Return the nearest point of the space, or one of them if several are equally near.

        Gradients are finite everywhere.

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
            s: Positions (p,) along each curve as angles from z, in radians.

        Returns:
            Points (rows, p, n), one row per curve, and the names of the curves.
        """

    def curvature(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b"]:
        """Return the scalar curvature at each of the points (..., n) of the manifold."""
        return torch.full_like(z[..., 0], self.curvatures[0])

    def embed(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
        """Return coordinates (..., m) that are equal if and only if two points are the same.

        These are the ambient coordinates, except for spaces in which several rows of ambient coordinates are one point.
        """
        return z

    def angles(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
        """Return d angles (..., d), in radians, as coordinates of points (..., n). They are discontinuous somewhere.

        Raises:
            UserError: If the space has no such angles.
        """
        raise UserError(f"The space {self.name} has no angles. Use its ambient coordinates.")

    def diffuse(
        self, start: Float[Tensor, "b n"], t: Float[Tensor, " b"], noise: Noise, steps: int, step: str = "sqrt"
    ) -> Float[Tensor, "b n"]:
        r"""Run a random walk that approximates Brownian motion on the manifold over a time t.

        .. math:: z^{(l+1)} = P(z^{(l)} + \sqrt{t / L}\, \epsilon), \quad \epsilon \sim N(0, I_n)

        where P is `project` and L is `steps`. With `step` "literal" the noise is multiplied by t itself, which makes
        the time :math:`L t^2`.
        Reference: Perez Rey et al. (2019), arXiv:1901.08991.

        Args:
            start: Points (b, n) of the manifold.
            t: The time (b,) of each walk.
            noise: The source of random numbers.
            steps: The number of steps L.
            step: "sqrt" for the equation above, or "literal".

        Returns:
            The end points (b, n).
        """
        scale = t if step == "literal" else (t / steps).sqrt()
        z = start
        for _ in range(steps):
            z = self.project(z + scale[:, None] * noise.normal(*z.shape))
        return z

    def kl(self, z: Float[Tensor, "*b n"], log_t: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
        r"""Return the KL divergence of the heat kernel at z, after a small time t, from the uniform distribution.

        .. math:: -\frac d2 \log(2 \pi t) - \frac d2 + \log Vol + \frac{Sc(z)\, t}{4}

        where Sc is the scalar curvature.
        Reference: Perez Rey et al. (2019), arXiv:1901.08991.

        Args:
            z: Points (..., n) of the manifold.
            log_t: The logarithm of the time t, one value for each point.

        Returns:
            The divergence in nats, one value for each point.
        """
        d = self.dimension
        return -0.5 * d * (LOG_2PI + log_t + 1) + self.log_volume + 0.25 * self.curvature(z) * log_t.exp()

    def kl_range(self, low: float, high: float) -> tuple[float, float]:
        """Return the smallest and the largest value of `kl` for log t in [low, high].

        The bounds may be infinite.
        """
        d, (lowest, highest) = self.dimension, self.curvatures

        def kl(log_t: float, curvature: float) -> float:
            curved = 0.25 * curvature * math.exp(log_t) if curvature and log_t < math.inf else 0.0
            return -0.5 * d * (LOG_2PI + log_t + 1) + self.log_volume + curved

        minimum = math.log(2 * d / lowest) if lowest > 0 else math.inf
        return kl(min(max(minimum, low), high), lowest), max(kl(low, highest), kl(high, highest))
