"""Unit spheres of any dimension, including the circle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError
from unbraid.spaces.manifold import Space, normalise

# A point of the sphere counts as lying on an axis if the component of the axis's unit vector that is tangential to the
# sphere at this point has a squared length below this.
ON_AXIS_TOLERANCE = 1e-6


def log_sphere_volume(d: int) -> float:
    r"""Return the log of the volume :math:`2 \pi^{(d+1)/2} / \Gamma((d+1)/2)` of the unit sphere of dimension d."""
    return math.log(2) + 0.5 * (d + 1) * math.log(math.pi) - math.lgamma(0.5 * (d + 1))


def great_circles(z: Float[Tensor, " n"], s: Float[Tensor, " p"]) -> tuple[Float[Tensor, "rows p n"], list[str]]:
    """Return the great circles that start at a point of the unit sphere in the direction of each axis.

    Axes on which the point lies are left out. On a circle, the only curve is the circle itself. See
    `Space.closed_curves` for the arguments and the returned values.
    """
    tangents = torch.eye(len(z), dtype=z.dtype, device=z.device) - z[:, None] * z
    if len(z) == 2:
        directions, names = torch.stack([-z[1], z[0]])[None], ["angle"]
    else:
        axes = [i for i in range(len(z)) if float(tangents[i].square().sum()) > ON_AXIS_TOLERANCE]
        directions, names = normalise(tangents[axes]), [f"towards {i}" for i in axes]
    s = s.to(z)[:, None]
    return s.cos() * z + s.sin() * directions[:, None], names


@dataclass(frozen=True)
class Sphere(Space):
    """The unit sphere of dimension d = latents - 1. With two latents, it is the circle.

    Args:
        latents: The dimension of the ambient space, at least 2.

    Raises:
        UserError: If there are fewer than two latents.

    >>> Sphere(3).angles(torch.tensor([[0.0, 0.0, 1.0]]))
    tensor([[1.5708, 1.5708]])
    """

    name: ClassVar[str] = "sphere"

    def check_latents(self) -> None:
        if self.latents < 2:
            raise UserError(
                f"The space {self.name!r} needs at least 2 latents, one more than its dimension. "
                f"Got {self.latents} instead."
            )

    @property
    def dimension(self) -> int:
        return self.latents - 1

    @property
    def log_volume(self) -> float:
        return log_sphere_volume(self.dimension)

    @property
    def curvatures(self) -> tuple[float, float]:
        d = self.dimension
        return float(d * (d - 1)), float(d * (d - 1))

    def project(self, x: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
        return normalise(x)

    def closed_curves(
        self, z: Float[Tensor, " n"], s: Float[Tensor, " p"]
    ) -> tuple[Float[Tensor, "rows p n"], list[str]]:
        return great_circles(z, s)

    def angles(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
        """Return spherical coordinates (..., d): d - 1 angles in [0, pi], then one in (-pi, pi]."""
        rest = z.square().flip(-1).cumsum(-1).flip(-1).sqrt()
        polar = torch.atan2(rest[..., 1:-1], z[..., :-2])
        return torch.cat([polar, torch.atan2(z[..., -1:], z[..., -2:-1])], -1)
