"""Real projective spaces: lines through the origin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.spaces.manifold import Space
from unbraid.spaces.sphere import Sphere, log_sphere


class Even(nn.Module):
    """A decoder that cannot tell z from -z: the average of its outputs for both."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.inner = decoder

    def forward(self, z: Tensor) -> Tensor:
        there, back = self.inner(torch.cat([z, -z])).chunk(2)
        average: Tensor = 0.5 * (there + back)
        return average


@dataclass(frozen=True)
class Projective(Sphere):
    """The unit sphere of dimension d = latents - 1 with opposite points made one; the decoder must be `Even`.

    Geodesics are the sphere's; they are closed after half a turn.
    """

    name: ClassVar[str] = "projective"
    has_angles: ClassVar[bool] = False
    angles = Space.angles

    @property
    def log_volume(self) -> float:
        return log_sphere(self.dimension) - math.log(2)

    def embed(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
        """The products of any two coordinates, n (n + 1) / 2 of them: the same for z and -z."""
        row, column = torch.triu_indices(self.latents, self.latents, device=z.device)
        return z[..., row] * z[..., column]
