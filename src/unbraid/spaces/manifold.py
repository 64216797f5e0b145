"""What a latent space is: a closed manifold in a Euclidean space, with what diffusion on it needs."""

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

SHORT = 1e-12  # squared length below which a vector has no direction


def unit(x: Float[Tensor, "... n"]) -> Float[Tensor, "... n"]:
    """Vectors of length one; where there is no direction to keep, the first axis, with a gradient of zero."""
    square = x.square().sum(-1, keepdim=True)
    short = square < SHORT
    pole = torch.cat([torch.ones_like(x[..., :1]), torch.zeros_like(x[..., 1:])], -1)
    return torch.where(short, pole, x) / torch.where(short, 1.0, square).sqrt()


@dataclass(frozen=True)
class Space(ABC):
    """A manifold of `dimension` d in :math:`R^n`, n the `latents` of a run, with the metric it has as a surface there.

    `curvatures` are the least and the greatest scalar curvature of its points. Points are rows of ambient coordinates.
    """

    latents: int

    name: ClassVar[str] = ""
    has_angles: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Refuse a number of latents the space cannot have."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The intrinsic dimension d."""

    @property
    @abstractmethod
    def log_volume(self) -> float:
        """The log of the d-dimensional volume."""

    @property
    @abstractmethod
    def curvatures(self) -> tuple[float, float]:
        """The range of the scalar curvature."""

    @abstractmethod
    def project(self, x: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
        """The nearest point, or one of them where several are equally near; gradients are finite everywhere."""

    @abstractmethod
    def paths(self, z: Float[Tensor, " n"], s: Float[Tensor, " p"]) -> tuple[Float[Tensor, "rows p n"], list[str]]:
        """Closed curves through a point, a row each, at angles s from it (radians), and their names."""

    def curvature(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b"]:
        """The scalar curvature at each point."""
        return torch.full_like(z[..., 0], self.curvatures[0])

    def embed(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
        """Coordinates that are equal where points are: the ambient ones, unless two of those are one point."""
        return z

    def angles(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
        """As few coordinates as the space has dimensions; they jump somewhere."""
        raise UserError(f"The space {self.name} has no angles. Use its ambient coordinates.")

    def diffuse(
        self, start: Float[Tensor, "b n"], t: Float[Tensor, " b"], noise: Noise, steps: int, step: str = "sqrt"
    ) -> Float[Tensor, "b n"]:
        r"""A random walk from points of the space that stands for Brownian motion over a time t.

        .. math:: z^{(l+1)} = P(z^{(l)} + \sqrt{t / L}\, \epsilon), \quad \epsilon \sim N(0, I_n)

        With `step` "literal" the noise is multiplied by t itself, which makes the time :math:`L t^2`.
        Reference: Perez Rey et al. (2019), arXiv:1901.08991.
        """
        scale = t if step == "literal" else (t / steps).sqrt()
        z = start
        for _ in range(steps):
            z = self.project(z + scale[:, None] * noise.normal(*z.shape))
        return z

    def kl(self, z: Float[Tensor, "*b n"], log_t: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
        r"""Nats between the heat kernel from z after a time t and the uniform distribution, for small t.

        .. math:: -\frac d2 \log(2 \pi t) - \frac d2 + \log Vol + \frac{Sc(z)\, t}{4}

        Reference: Perez Rey et al. (2019), arXiv:1901.08991.
        """
        d = self.dimension
        return -0.5 * d * (LOG_2PI + log_t + 1) + self.log_volume + 0.25 * self.curvature(z) * log_t.exp()

    def kl_range(self, low: float, high: float) -> tuple[float, float]:
        """The least and the greatest value of `kl` for log t between two bounds, which may be infinite."""
        d, (flattest, roundest) = self.dimension, self.curvatures

        def at(log_t: float, curvature: float) -> float:
            rest = 0.25 * curvature * math.exp(log_t) if curvature and log_t < math.inf else 0.0
            return -0.5 * d * (LOG_2PI + log_t + 1) + self.log_volume + rest

        bottom = math.log(2 * d / flattest) if flattest > 0 else math.inf
        return at(min(max(bottom, low), high), flattest), max(at(low, roundest), at(high, roundest))
