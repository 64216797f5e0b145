"""Flat tori, which are products of circles, and the ring torus in three dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError
from unbraid.noise import Noise
from unbraid.spaces.manifold import Space, normalise


@dataclass(frozen=True)
class FlatTorus(Space):
    """The product of d = latents / 2 unit circles. The latents 2i and 2i + 1 are the coordinates of circle i.

    Args:
        latents: The dimension of the ambient space, an even number.

    Raises:
        UserError: If the number of latents is odd or 0.
    """

    name: ClassVar[str] = "flat_torus"

    def check_latents(self) -> None:
        if self.latents < 2 or self.latents % 2:
            raise UserError(
                f"A flat torus needs an even number of latents, two per circle. Got {self.latents} instead."
            )

    @property
    def dimension(self) -> int:
        return self.latents // 2

    @property
    def log_volume(self) -> float:
        return self.dimension * math.log(2 * math.pi)

    @property
    def curvatures(self) -> tuple[float, float]:
        return 0.0, 0.0

    def project(self, x: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
        return normalise(x.unflatten(-1, (-1, 2))).flatten(-2)

    def angles(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
        """Return the angle (..., d) on each circle, in (-pi, pi]."""
        return torch.atan2(z[..., 1::2], z[..., ::2])

    def closed_curves(
        self, z: Float[Tensor, " n"], s: Float[Tensor, " p"]
    ) -> tuple[Float[Tensor, "rows p n"], list[str]]:
        start = self.angles(z).double()
        angles = start + torch.eye(len(start), dtype=start.dtype, device=z.device)[:, None] * s.to(start)[:, None]
        points = torch.stack([angles.cos(), angles.sin()], -1).flatten(-2)
        return points.to(z), [f"circle {i}" for i in range(len(start))]


@dataclass(frozen=True)
class Torus(Space):
    r"""The ring torus in :math:`R^3`: a tube of radius a = 0.6 around a circle of radius c = 3. It has three latents.

    The scalar curvature is :math:`2 \cos\phi / (a (c + a \cos\phi))`, where :math:`\phi` is the angle around the tube.
    It is positive on the outer half of the tube and negative on the inner half. The area is :math:`4 \pi^2 c a`.

    Args:
        latents: The dimension of the ambient space, which must be 3.

    Raises:
        UserError: If the number of latents is not 3.
    """

    name: ClassVar[str] = "torus"
    c: ClassVar[float] = 3.0
    a: ClassVar[float] = 0.6

    def check_latents(self) -> None:
        if self.latents != 3:
            raise UserError(f"The space 'torus' needs exactly 3 latents. Got {self.latents} instead.")

    @property
    def dimension(self) -> int:
        return 2

    @property
    def log_volume(self) -> float:
        return math.log(4 * math.pi**2 * self.c * self.a)

    @property
    def curvatures(self) -> tuple[float, float]:
        return -2 / (self.a * (self.c - self.a)), 2 / (self.a * (self.c + self.a))

    def _unit_vectors(self, x: Float[Tensor, "*b n"]) -> tuple[Float[Tensor, "*b 2"], Float[Tensor, "*b 2"]]:
        """Return the cosine and sine (..., 2) of the angle around the ring, and of the angle around the tube."""
        ring = normalise(x[..., :2])
        radial = (x[..., :2] * ring).sum(-1) - self.c
        return ring, normalise(torch.stack([radial, x[..., 2]], -1))

    def _ambient_coordinates(self, ring: Float[Tensor, "*b 2"], tube: Float[Tensor, "*b 2"]) -> Float[Tensor, "*b n"]:
        """Return the points with the given cosines and sines of the angles. This is the inverse of `_unit_vectors`."""
        return torch.cat([(self.c + self.a * tube[..., :1]) * ring, self.a * tube[..., 1:]], -1)

    def project(self, x: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
        return self._ambient_coordinates(*self._unit_vectors(x))

    def uniform(self, n_points: int, noise: Noise) -> Float[Tensor, "b n"]:
        """Draw points from the uniform distribution.

        The area of a narrow strip at the angle phi around the tube is proportional to c + a cos(phi). Therefore angles
        phi are drawn uniformly and accepted with a probability that is proportional to c + a cos(phi).
        """
        kept: list[Tensor] = []
        while sum(map(len, kept)) < n_points:
            ring, tube = (2 * math.pi * noise.uniform(2, 2 * n_points)).unbind(0)
            accepted = noise.uniform(2 * n_points) * (self.c + self.a) < self.c + self.a * tube.cos()
            vectors = (torch.stack([angle.cos(), angle.sin()], -1)[accepted] for angle in (ring, tube))
            kept.append(self._ambient_coordinates(*vectors))
        return torch.cat(kept)[:n_points]

    def curvature(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b"]:
        cosine = self._unit_vectors(z)[1][..., 0]
        return 2 * cosine / (self.a * (self.c + self.a * cosine))

    def angles(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
        """Return the angles (..., 2) around the ring and around the tube, in (-pi, pi]."""
        ring, tube = self._unit_vectors(z)
        return torch.stack([torch.atan2(ring[..., 1], ring[..., 0]), torch.atan2(tube[..., 1], tube[..., 0])], -1)

    def closed_curves(
        self, z: Float[Tensor, " n"], s: Float[Tensor, " p"]
    ) -> tuple[Float[Tensor, "rows p n"], list[str]]:
        """Return the curves through z around the ring and around the tube.

        The curve around the tube is always a geodesic. The curve around the ring is a geodesic only if z lies on the
        outermost or the innermost circle.
        """
        start = self.angles(z).double()
        angles = start + torch.eye(2, dtype=start.dtype, device=z.device)[:, None] * s.to(start)[:, None]
        ring, tube = torch.stack([angles.cos(), angles.sin()], -1).unbind(2)
        return self._ambient_coordinates(ring, tube).to(z), ["around ring", "around tube"]
