"""Spheres, the circle among them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError
from unbraid.spaces.manifold import Space, unit

NEAR = 1e-6  # squared length of an axis's tangent part below which a point lies on that axis


def log_sphere(d: int) -> float:
    r"""The log of the volume of the unit sphere, :math:`2 \pi^{(d+1)/2} / \Gamma((d+1)/2)`."""
    return math.log(2) + 0.5 * (d + 1) * math.log(math.pi) - math.lgamma(0.5 * (d + 1))


def great_circles(z: Float[Tensor, " n"], s: Float[Tensor, " p"]) -> tuple[Float[Tensor, "rows p n"], list[str]]:
    """Great circles from a point of a unit sphere towards each axis it does not lie on; one on a circle."""
    tangents = torch.eye(len(z), dtype=z.dtype, device=z.device) - z[:, None] * z
    if len(z) == 2:
        turn, names = torch.stack([-z[1], z[0]])[None], ["angle"]
    else:
        kept = [i for i in range(len(z)) if float(tangents[i].square().sum()) > NEAR]
        turn, names = unit(tangents[kept]), [f"towards {i}" for i in kept]
    s = s.to(z)[:, None]
    return s.cos() * z + s.sin() * turn[:, None], names


@dataclass(frozen=True)
class Sphere(Space):
    """The unit sphere of dimension d = latents - 1; with two latents, the circle."""

    name: ClassVar[str] = "sphere"

    def check(self) -> None:
        if self.latents < 2:
            raise UserError(
                f"The space {self.name} of dimension d needs d + 1 latents, at least 2. Got {self.latents} instead."
            )

    @property
    def dimension(self) -> int:
        return self.latents - 1

    @property
    def log_volume(self) -> float:
        return log_sphere(self.dimension)

    @property
    def curvatures(self) -> tuple[float, float]:
        d = self.dimension
        return float(d * (d - 1)), float(d * (d - 1))

    def project(self, x: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
        return unit(x)

    def paths(self, z: Float[Tensor, " n"], s: Float[Tensor, " p"]) -> tuple[Float[Tensor, "rows p n"], list[str]]:
        return great_circles(z, s)

    def angles(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
        """Spherical coordinates: d - 1 angles in [0, pi] from one axis after another, and one in (-pi, pi]."""
        rest = z.square().flip(-1).cumsum(-1).flip(-1).sqrt()
        down = torch.atan2(rest[..., 1:-1], z[..., :-2])
        return torch.cat([down, torch.atan2(z[..., -1:], z[..., -2:-1])], -1)
