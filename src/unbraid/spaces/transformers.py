"""Spatial transformers: families of maps of the unit square that warp images.

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
from unbraid.spaces.warp import pixel_centres, warp_image

IntegrationMethod = Literal["steps", "squaring"]


@dataclass(frozen=True)
class Transformer(ABC):
    r"""A family of maps of the plane with `dim` parameters. Zero parameters give the identity.

    Each pixel of a warped image has the value of the original image at the mapped position:
    :math:`(T_\gamma x)(p) = x(T_\gamma(p))`.
    """

    name: ClassVar[str] = ""

    @property
    @abstractmethod
    def dim(self) -> int:
        """The number of parameters."""

    @abstractmethod
    def points(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        """Apply each map to points of the unit square.

        Args:
            gamma: Parameters (b, dim) of the maps.
            grid: Points (n, 2) that all maps share.

        Returns:
            The mapped points (b, n, 2).
        """

    @abstractmethod
    def inverse(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        """Apply the inverse of each map to points of the unit square.

        Args:
            gamma: Parameters (b, dim) of the maps.
            grid: Points (n, 2) that all maps share.

        Returns:
            The mapped points (b, n, 2).
        """

    def identity(self, b: int = 1, device: torch.device | str = "cpu") -> Float[Tensor, "b dim"]:
        """Return the parameters (b, dim) of `b` identity maps."""
        return torch.zeros(b, self.dim, device=device)

    def forward(
        self, image: Float[Tensor, "b c h w"], gamma: Float[Tensor, "b dim"], padding: str = "zeros"
    ) -> Float[Tensor, "b c h w"]:
        """Warp each image by its map.

        Args:
            image: Images (b, c, h, w).
            gamma: Parameters (b, dim) of the maps.
            padding: The values outside the image: "zeros", or "border" for the nearest value.

        Returns:
            The warped images (b, c, h, w).
        """
        return _warp_with(image, lambda grid: self.points(gamma, grid), padding)

    def backward(
        self, image: Float[Tensor, "b c h w"], gamma: Float[Tensor, "b dim"], padding: str = "zeros"
    ) -> Float[Tensor, "b c h w"]:
        """Warp each image by the inverse of its map.

        Args:
            image: Images (b, c, h, w).
            gamma: Parameters (b, dim) of the maps.
            padding: The values outside the image: "zeros", or "border" for the nearest value.

        Returns:
            The warped images (b, c, h, w).
        """
        return _warp_with(image, lambda grid: self.inverse(gamma, grid), padding)


def _warp_with(image: Tensor, map_points: Callable[[Tensor], Tensor], padding: str) -> Tensor:
    """Warp images by a function that maps pixel centres (n, 2) to points (b, n, 2)."""
    h, w = image.shape[-2:]
    points = map_points(pixel_centres(h, w, image.device, image.dtype))
    return warp_image(image, points.unflatten(1, (h, w)), padding)


def to_unit_square(matrix: Float[Tensor, "*b 2 3"]) -> Float[Tensor, "*b 2 3"]:
    r"""Convert maps of :math:`[-1, 1]^2`, whose origin is the centre of the image, to maps of :math:`[0, 1]^2`.

    .. math:: p \mapsto A p + \tfrac12 (b + \mathbf 1 - A \mathbf 1)

    where :math:`\mathbf 1` is the vector (1, 1).

    Args:
        matrix: Maps [A, b] (..., 2, 3) in coordinates from -1 to 1.

    Returns:
        The same maps (..., 2, 3) in coordinates from 0 to 1.
    """
    linear, shift = matrix[..., :2], matrix[..., 2:]
    return torch.cat([linear, 0.5 * (shift + (1 - linear.sum(-1, keepdim=True)))], -1)


@dataclass(frozen=True)
class Affine(Transformer):
    """Affine maps whose parameters are added to the entries of the identity. See `affine.affine`.

    The matrices use coordinates in which the image spans [-1, 1] along x and y.
    """

    name: ClassVar[str] = "affine"

    @property
    def dim(self) -> int:
        return affine.N_PARAMETERS

    def matrix(self, gamma: Float[Tensor, "b 6"]) -> Float[Tensor, "b 2 3"]:
        """Return the matrices [A, b] in coordinates from -1 to 1."""
        return affine.affine(gamma)

    def inverse_matrix(self, gamma: Float[Tensor, "b 6"]) -> Float[Tensor, "b 2 3"]:
        """Return the inverse matrices [A^-1, -A^-1 b]."""
        return affine.inverse(self.matrix(gamma))

    def points(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        return affine.transform_points(to_unit_square(self.matrix(gamma)), grid)

    def inverse(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        return affine.transform_points(to_unit_square(self.inverse_matrix(gamma)), grid)


@dataclass(frozen=True)
class AffineDecomposed(Affine):
    """Affine maps composed of a scaling, a shear, a rotation and a translation. See `affine.affine_decomposed`."""

    name: ClassVar[str] = "affine_decomposed"

    def matrix(self, gamma: Float[Tensor, "b 6"]) -> Float[Tensor, "b 2 3"]:
        return affine.affine_decomposed(gamma)


@dataclass(frozen=True)
class AffineDiffeomorphic(Affine):
    r"""Affine maps that are flows of affine velocity fields. See `affine.affine_diffeomorphic`.

    The parameters are bounded by the function :math:`c \tanh(x / c)`. Because of these bounds, even a poorly trained
    network cannot produce a map that shrinks the image to a point, and training tolerates larger learning rates.
    Negating the parameters still gives the inverse map.

    Args:
        stretch: The bound c for stretches, which are the symmetric part of the field, and for translations. None means
            that there is no bound.
        turn: The bound c for rotations, which are the skew-symmetric part of the field. None means that there is no
            bound. If both bounds are None, the map is equation 3 in the supplement of Detlefsen & Hauberg (2019).
    """

    stretch: float | None = 1.5
    turn: float | None = 3.5

    name: ClassVar[str] = "affine_diffeomorphic"

    def matrix(self, gamma: Float[Tensor, "b 6"]) -> Float[Tensor, "b 2 3"]:
        return affine.affine_diffeomorphic(self.bounded_parameters(gamma))

    def inverse_matrix(self, gamma: Float[Tensor, "b 6"]) -> Float[Tensor, "b 2 3"]:
        return self.matrix(-gamma)

    def bounded_parameters(self, gamma: Float[Tensor, "b 6"]) -> Float[Tensor, "b 6"]:
        """Return the bounded parameters (b, 6) of the field, which are an odd function of `gamma`."""
        xx, xy, shift_x, yx, yy, shift_y = gamma.unbind(-1)
        stretches = torch.stack([xx, yy, 0.5 * (xy + yx), shift_x, shift_y], -1)
        xx, yy, symmetric, shift_x, shift_y = _bounded(stretches, self.stretch).unbind(-1)
        skew = _bounded(0.5 * (yx - xy), self.turn)
        return torch.stack([xx, symmetric - skew, shift_x, symmetric + skew, yy, shift_y], -1)


def _bounded(values: Tensor, bound: float | None) -> Tensor:
    """Return the values, bounded by c tanh(x / c) if there is a bound c."""
    return values if bound is None else bound * (values / bound).tanh()


@dataclass(frozen=True)
class Cpab(Transformer):
    """CPAB transformations: flows of continuous piecewise-affine velocity fields that keep points within the image.

    Args:
        nx: Number of rectangles along x.
        ny: Number of rectangles along y.
        steps: Number of integration steps.
        method: "steps" integrates the path of every point (see `cpab.integrate`). "squaring" computes displacements on
            a grid by repeated composition, which is equivalent to at least `steps` steps (see
            `cpab.scaling_and_squaring`). It is faster and less accurate.
        resolution: Number of grid cells per side, for "squaring".

    Raises:
        UserError: If an argument is out of range.
    """

    nx: int = 4
    ny: int = 4
    steps: int = 50
    method: IntegrationMethod = "steps"
    resolution: int = 64

    name: ClassVar[str] = "cpab"

    def __post_init__(self) -> None:
        cpab.Tessellation(self.nx, self.ny)
        if self.method not in get_args(IntegrationMethod):
            methods = ", ".join(get_args(IntegrationMethod))
            raise UserError(f"The method must be one of {methods}. Got {self.method!r} instead.")
        for field in ("steps", "resolution"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"The {field!r} of a flow must be an integer >= 1. Got {value!r} instead.")

    @property
    def cells(self) -> cpab.Tessellation:
        """The tessellation on which the velocity fields are defined, with `zero_boundary`."""
        return cpab.Tessellation(self.nx, self.ny)

    @property
    def dim(self) -> int:
        return self.cells.dim

    def points(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        if self.method == "steps":
            return cpab.integrate(self.cells, gamma, grid, self.steps)
        side, m = self.resolution + 1, (self.steps - 1).bit_length()
        u = cpab.scaling_and_squaring(self.cells, gamma, (side, side), m)
        return grid + cpab.interpolate_displacement(u, grid.expand(len(gamma), -1, -1))

    def inverse(self, gamma: Float[Tensor, "b dim"], grid: Float[Tensor, "n 2"]) -> Float[Tensor, "b n 2"]:
        return self.points(-gamma, grid)


TRANSFORMERS: dict[str, type[Transformer]] = {
    kind.name: kind for kind in (Affine, AffineDecomposed, AffineDiffeomorphic, Cpab)
}
"""The classes of all transformers by name. All arguments have defaults."""
