"""Spatial transformers by name: maps of the unit square with their inverses, and images warped by them.

Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError
from unbraid.spaces import affine, cpab
from unbraid.spaces.warp import pixel_centres, warp

Method = Literal["steps", "squaring"]


@dataclass(frozen=True)
class Transformer(ABC):
    r"""Maps of the plane with `dim` parameters each; zeros are the identity.

    An image is warped by looking up where the map takes each pixel, :math:`(T_\gamma x)(p) = x(T_\gamma(p))`.
    """

    name: ClassVar[str] = ""

    @property
    @abstractmethod
    def dim(self) -> int:
        """The number of parameters."""

    @abstractmethod
    def points(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        """Where each map takes points of the unit square."""

    @abstractmethod
    def inverse(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        """Where each map's inverse takes them."""

    def identity(self, b: int = 1, device: torch.device | str = "cpu") -> Float[Tensor, "b dim"]:
        """Parameters of maps that move nothing."""
        return torch.zeros(b, self.dim, device=device)

    def forward(
        self, image: Float[Tensor, "b c h w"], gamma: Float[Tensor, "b dim"], padding: str = "zeros"
    ) -> Float[Tensor, "b c h w"]:
        """Images under their maps."""
        return _warped(image, lambda grid: self.points(gamma, grid), padding)

    def backward(
        self, image: Float[Tensor, "b c h w"], gamma: Float[Tensor, "b dim"], padding: str = "zeros"
    ) -> Float[Tensor, "b c h w"]:
        """Images under the inverses of their maps."""
        return _warped(image, lambda grid: self.inverse(gamma, grid), padding)


def _warped(image: Tensor, move: Callable[[Tensor], Tensor], padding: str) -> Tensor:
    """Images looked up where each pixel is moved to."""
    h, w = image.shape[-2:]
    points = move(pixel_centres(h, w, image.device, image.dtype))
    return warp(image, points.unflatten(1, (h, w)), padding)


def centred(matrix: Float[Tensor, "*b 2 3"]) -> Float[Tensor, "*b 2 3"]:
    r"""A map of :math:`[-1, 1]^2`, whose origin is the image's centre, as one of :math:`[0, 1]^2`.

    .. math:: p \mapsto A p + \tfrac12 (b + 1 - A 1)
    """
    linear, shift = matrix[..., :2], matrix[..., 2:]
    return torch.cat([linear, 0.5 * (shift + (1 - linear.sum(-1, keepdim=True)))], -1)


@dataclass(frozen=True)
class Affine(Transformer):
    """Six entries of a matrix; see `affine.affine`. Coordinates are -1 and 1 at the edges of the image."""

    name: ClassVar[str] = "affine"

    @property
    def dim(self) -> int:
        return affine.DIM

    def matrix(self, gamma: Float[Tensor, "b 6"]) -> Float[Tensor, "b 2 3"]:
        """[A, b] in coordinates from -1 to 1."""
        return affine.affine(gamma)

    def inverse_matrix(self, gamma: Float[Tensor, "b 6"]) -> Float[Tensor, "b 2 3"]:
        """[A^-1, -A^-1 b]."""
        return affine.inverse(self.matrix(gamma))

    def points(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        return affine.transform(centred(self.matrix(gamma)), grid)

    def inverse(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        return affine.transform(centred(self.inverse_matrix(gamma)), grid)


@dataclass(frozen=True)
class AffineDecomposed(Affine):
    """Rotation, shear, scales and translation; see `affine.affine_decomposed`."""

    name: ClassVar[str] = "affine_decomposed"

    def matrix(self, gamma: Float[Tensor, "b 6"]) -> Float[Tensor, "b 2 3"]:
        return affine.affine_decomposed(gamma)


@dataclass(frozen=True)
class AffineDiffeomorphic(Affine):
    r"""The flow of a linear field; see `affine.affine_diffeomorphic`.

    Stretches (the symmetric part of the field) and shifts pass :math:`c \tanh(x / c)` with c = `stretch`, turns (its
    skew part) with c = `turn`, so that a network far off its way asks for no map that shrinks an image to a point:
    training survives larger steps. Minus the parameters are still the inverse map.
    """

    stretch: float = 1.5
    turn: float = 3.5

    name: ClassVar[str] = "affine_diffeomorphic"

    def matrix(self, gamma: Float[Tensor, "b 6"]) -> Float[Tensor, "b 2 3"]:
        return affine.affine_diffeomorphic(self.bounded(gamma))

    def inverse_matrix(self, gamma: Float[Tensor, "b 6"]) -> Float[Tensor, "b 2 3"]:
        return self.matrix(-gamma)

    def bounded(self, gamma: Float[Tensor, "b 6"]) -> Float[Tensor, "b 6"]:
        """The parameters of the field, odd in those given."""
        across, upper, right, lower, down, below = gamma.unbind(-1)
        stretches = torch.stack([across, down, 0.5 * (upper + lower), right, below], -1)
        across, down, shear, right, below = (self.stretch * (stretches / self.stretch).tanh()).unbind(-1)
        skew = self.turn * (0.5 * (lower - upper) / self.turn).tanh()
        return torch.stack([across, shear - skew, right, shear + skew, down, below], -1)


@dataclass(frozen=True)
class Cpab(Transformer):
    """Flows of piecewise-affine fields on `nx` by `ny` rectangles that stay within the image; see `cpab.integrate`.

    `method` "steps" takes every point along in `steps` steps; "squaring" composes displacements of a grid of
    `resolution` squares a side with themselves until they are of `steps` steps or more, which is faster and coarser.
    """

    nx: int = 4
    ny: int = 4
    steps: int = 50
    method: Method = "steps"
    resolution: int = 64

    name: ClassVar[str] = "cpab"

    def __post_init__(self) -> None:
        cpab.Tessellation(self.nx, self.ny)
        if self.method not in get_args(Method):
            raise UserError(f"The method must be one of {', '.join(get_args(Method))}. Got {self.method!r} instead.")
        for field in ("steps", "resolution"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"The {field!r} of a flow must be a whole number, at least 1. Got {value!r} instead.")

    @property
    def cells(self) -> cpab.Tessellation:
        """The triangles, with nothing flowing through the image's edge."""
        return cpab.Tessellation(self.nx, self.ny)

    @property
    def dim(self) -> int:
        return self.cells.dim

    def points(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        if self.method == "steps":
            return cpab.integrate(self.cells, gamma, grid, self.steps)
        side, m = self.resolution + 1, (self.steps - 1).bit_length()
        u = cpab.scaling_and_squaring(self.cells, gamma, (side, side), m)
        return grid + cpab.displacement(u, grid.expand(len(gamma), -1, -1))

    def inverse(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        return self.points(-gamma, grid)


TRANSFORMERS: dict[str, type[Transformer]] = {
    kind.name: kind for kind in (Affine, AffineDecomposed, AffineDiffeomorphic, Cpab)
}
"""Every transformer by its name; each can be made without arguments."""
