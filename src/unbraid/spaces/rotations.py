"""The space of rotations of three-dimensional space, SO(3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError
from unbraid.spaces.manifold import MIN_SQUARED_LENGTH, Space, normalise

SQUARINGS = 14  # number of times a matrix is squared until its largest eigenvalue dominates
# Regularisation relative to the norm of the matrix. It keeps the gradient finite if the nearest rotation is not unique.
REGULARISATION = 1e-4


def matrix_product(a: Float[Tensor, "*b i j"], b: Float[Tensor, "*b j k"]) -> Float[Tensor, "*b i k"]:
    """Return the matrix product, in full precision on every device."""
    total: Tensor = (a[..., :, :, None] * b[..., None, :, :]).sum(-2)
    return total


def _matrix(entries: list[Tensor], side: int) -> Float[Tensor, "*b n n"]:
    """Build square matrices from their entries, given row by row."""
    matrix: Tensor = torch.stack(entries, -1).unflatten(-1, (side, side))
    return matrix


def cross_product_matrix(w: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b 3 3"]:
    """Return the matrices that map v to the cross product of w and v."""
    x, y, z = w.unbind(-1)
    zero = torch.zeros_like(x)
    return _matrix([zero, -z, y, z, zero, -x, -y, x, zero], 3)


def quaternion_to_matrix(q: Float[Tensor, "*b 4"]) -> Float[Tensor, "*b 3 3"]:
    """Return the rotation matrices of unit quaternions (w, x, y, z)."""
    w, x, y, z = q.unbind(-1)
    entries = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return _matrix(entries, 3)


def quaternion_form(m: Float[Tensor, "*b 3 3"]) -> Float[Tensor, "*b 4 4"]:
    """Return the symmetric matrix K for which q'Kq is the inner product of m and the rotation matrix of q.

    Here q is any unit quaternion, and the inner product is the sum of the products of corresponding entries.

    Reference: Horn (1987), "Closed-form solution of absolute orientation using unit quaternions".
    """
    (a, b, c), (d, e, f), (g, h, i) = (row.unbind(-1) for row in m.unbind(-2))
    rows = [
        a + e + i, h - f, c - g, d - b,
        h - f, a - e - i, b + d, c + g,
        c - g, b + d, e - a - i, f + h,
        d - b, c + g, f + h, i - a - e,
    ]  # fmt: skip
    return _matrix(rows, 4)


def nearest_rotation(m: Float[Tensor, "*b 3 3"]) -> Float[Tensor, "*b 3 3"]:
    """Return the rotation nearest to each matrix, without a gradient. For a zero matrix, this is the identity.

    The quaternion of the nearest rotation is the eigenvector of `quaternion_form` with the largest eigenvalue. The
    matrix is squared repeatedly until this eigenvalue dominates. Unlike a singular value decomposition, this method
    never waits for the device.
    """
    k = quaternion_form(m.detach())
    size = k.square().sum((-2, -1), keepdim=True)
    power = k / torch.where(size < MIN_SQUARED_LENGTH, 1.0, size).sqrt() + torch.eye(4, dtype=m.dtype, device=m.device)
    for _ in range(SQUARINGS):
        power = matrix_product(power, power)
        power = power / power.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    largest = power.diagonal(dim1=-2, dim2=-1).argmax(-1)[..., None, None].expand(*power.shape[:-1], 1)
    return quaternion_to_matrix(normalise(power.gather(-1, largest).squeeze(-1)))


def rotation_change(m: Float[Tensor, "*b 3 3"], r: Float[Tensor, "*b 3 3"]) -> Float[Tensor, "*b 3"]:
    r"""Return a rotation vector that is zero, but has the gradient of the rotation R that is nearest to m.

    .. math:: (tr(S) I - S)^{-1}\, vex(R'm - m'R), \quad S = R'm

    Here R' is the transpose of R, and vex(W) is the vector w for which W is `cross_product_matrix(w)`. To first order,
    this is the rotation by which R changes if m changes. Its value is zero, because R'm is symmetric if R is the
    nearest rotation. Gradients treat S and R as constants.

    Args:
        m: The matrices (..., 3, 3).
        r: The rotations R (..., 3, 3) that are nearest to them.
    """
    a = matrix_product(r.mT, m)
    skew_part = a - a.mT
    vex = torch.stack([skew_part[..., 2, 1], skew_part[..., 0, 2], skew_part[..., 1, 0]], -1)
    s = 0.5 * (a + a.mT).detach()
    size = s.square().sum((-2, -1), keepdim=True).sqrt()
    trace = s.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    eye = torch.eye(3, dtype=m.dtype, device=m.device)
    x, y, z = ((trace + REGULARISATION * size + 1e-6) * eye - s).unbind(-2)
    adjugate = torch.stack([torch.linalg.cross(y, z), torch.linalg.cross(z, x), torch.linalg.cross(x, y)], -1)
    determinant = (x * adjugate[..., 0]).sum(-1, keepdim=True).clamp(min=1e-30)
    return (adjugate * vex[..., None, :]).sum(-1) / determinant


@dataclass(frozen=True)
class Rotations(Space):
    r"""The rotations SO(3) as 3 x 3 matrices, flattened row by row to nine latents, with the metric of :math:`R^9`.

    A full turn about an axis has length :math:`2 \pi \sqrt 2`, so this space is a projective 3-space of radius
    :math:`2 \sqrt 2`. Its volume is :math:`16 \sqrt 2\, \pi^2` and its scalar curvature is 3 / 4.

    Args:
        latents: The dimension of the ambient space, which must be 9.

    Raises:
        UserError: If the number of latents is not 9.
    """

    name: ClassVar[str] = "rotations"
    has_angles: ClassVar[bool] = False

    def check_latents(self) -> None:
        if self.latents != 9:
            raise UserError(f"Rotations are 3 x 3 matrices and need exactly 9 latents. Got {self.latents} instead.")

    @property
    def dimension(self) -> int:
        return 3

    @property
    def log_volume(self) -> float:
        return math.log(16 * math.sqrt(2) * math.pi**2)

    @property
    def curvatures(self) -> tuple[float, float]:
        return 0.75, 0.75

    def project(self, x: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
        m = x.unflatten(-1, (3, 3))
        r = nearest_rotation(m)
        change = matrix_product(r, cross_product_matrix(rotation_change(m, r)))
        return (r + (change - change.detach())).flatten(-2)

    def closed_curves(
        self, z: Float[Tensor, " n"], s: Float[Tensor, " p"]
    ) -> tuple[Float[Tensor, "rows p n"], list[str]]:
        """Return rotations about each of the three axes, followed by the rotation z. See `Space.closed_curves`."""
        axes = torch.eye(3, dtype=z.dtype, device=z.device)[:, None].expand(3, len(s), 3)
        half = (0.5 * s.to(z))[None, :, None].expand(3, -1, 1)
        rotations = quaternion_to_matrix(torch.cat([half.cos(), half.sin() * axes], -1))
        return matrix_product(z.unflatten(-1, (3, 3)).expand_as(rotations), rotations).flatten(-2), [
            "axis x",
            "axis y",
            "axis z",
        ]
