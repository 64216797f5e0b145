"""Real projective spaces: lines through the origin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.spaces.base import Space, unit
from unbraid.spaces.sphere import great_circles, log_sphere


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
class Projective(Space):
    """The unit sphere of dimension d = latents - 1 with opposite points made one; the decoder must be `Even`."""

    name: ClassVar[str] = "projective"
    has_angles: ClassVar[bool] = False

    def check(self) -> None:
        if self.latents < 2:
            raise ValueError(
                f"A projective space of dimension d needs d + 1 latents, at least 2. Got {self.latents} instead."
            )

    @property
    def dimension(self) -> int:
        return self.latents - 1

    @property
    def log_volume(self) -> float:
        return log_sphere(self.dimension) - math.log(2)

    @property
    def curvatures(self) -> tuple[float, float]:
        d = self.dimension
        return float(d * (d - 1)), float(d * (d - 1))

    def project(self, x: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
        return unit(x)

    def embed(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b m"]:
        """The products of any two coordinates, n (n + 1) / 2 of them: the same for z and -z."""
        row, column = torch.triu_indices(self.latents, self.latents, device=z.device)
        return z[..., row] * z[..., column]

    def paths(self, z: Float[Tensor, " n"], s: Float[Tensor, " p"]) -> tuple[Float[Tensor, "rows p n"], list[str]]:
        """Great circles; they are closed after half a turn."""
        return great_circles(z, s)
