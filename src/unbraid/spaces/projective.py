"""Real projective spaces, whose points are the lines through the origin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.accel.wrapper import NetworkWrapper
from unbraid.spaces.manifold import Space
from unbraid.spaces.sphere import Sphere, log_sphere_volume


class EvenDecoder(NetworkWrapper):
    """A decoder whose output is the same for z and -z: the mean of the outputs of an inner decoder for z and for -z.

    It maps codes (b, n) to outputs of the same shape as those of the inner decoder.
    """

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.inner = decoder

    def forward(self, z: Tensor) -> Tensor:
        positive, negative = self.inner(torch.cat([z, -z])).chunk(2)
        average: Tensor = 0.5 * (positive + negative)
        return average


@dataclass(frozen=True)
class Projective(Sphere):
    """The unit sphere of dimension d = latents - 1 with opposite points identified.

    The decoder must be an `EvenDecoder`. The geodesics are those of the sphere, and are closed after half a turn.

    Args:
        latents: The dimension of the ambient space, at least 2.

    Raises:
        UserError: If there are fewer than two latents.
    """

    name: ClassVar[str] = "projective"
    has_angles: ClassVar[bool] = False
    angles = Space.angles

    @property
    def log_volume(self) -> float:
        return log_sphere_volume(self.dimension) - math.log(2)

    def embed(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
        """Return the n (n + 1) / 2 products of pairs of coordinates, which are the same for z and -z."""
        row, column = torch.triu_indices(self.latents, self.latents, device=z.device)
        return z[..., row] * z[..., column]
