r"""Affine maps of the plane as 2 x 3 matrices :math:`[A, b]`, in three parametrisations with six parameters each.

In all of them, zero parameters give the identity. Reference: Detlefsen & Hauberg (2019), arXiv:1906.11881, supplement,
equations 1 to 3.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.spaces.expm import expm

N_PARAMETERS = 6


def affine(gamma: Float[Tensor, "*b 6"]) -> Float[Tensor, "*b 2 3"]:
    r"""Return affine maps whose entries are those of the identity plus the parameters.

    .. math:: [A, b] = [I, 0] + \begin{bmatrix} \gamma_1 & \gamma_2 & \gamma_3 \\
        \gamma_4 & \gamma_5 & \gamma_6 \end{bmatrix}

    A may be singular or a reflection.

    Args:
        gamma: Parameters (..., 6).

    Returns:
        Matrices (..., 2, 3).
    """
    matrix: Tensor = gamma.unflatten(-1, (2, 3)) + torch.eye(2, 3, dtype=gamma.dtype, device=gamma.device)
    return matrix


def affine_decomposed(gamma: Float[Tensor, "*b 6"]) -> Float[Tensor, "*b 2 3"]:
    r"""Return affine maps that scale, then shear, then rotate, then translate.

    The parameters are :math:`(\alpha, m, \log s_x, \log s_y, t_x, t_y)`.

    .. math:: A = \begin{bmatrix} \cos\alpha & -\sin\alpha \\ \sin\alpha & \cos\alpha \end{bmatrix}
        \begin{bmatrix} 1 & m \\ 0 & 1 \end{bmatrix} \begin{bmatrix} s_x & 0 \\ 0 & s_y \end{bmatrix}, \quad b = t

    The scales are positive, so A is always invertible.

    Args:
        gamma: Parameters (..., 6).

    Returns:
        Matrices (..., 2, 3).
    """
    alpha, m, log_sx, log_sy, tx, ty = gamma.unbind(-1)
    cosine, sine, sx, sy = alpha.cos(), alpha.sin(), log_sx.exp(), log_sy.exp()
    entries = [sx * cosine, sy * (m * cosine - sine), tx, sx * sine, sy * (m * sine + cosine), ty]
    matrix: Tensor = torch.stack(entries, -1).unflatten(-1, (2, 3))
    return matrix


def affine_diffeomorphic(gamma: Float[Tensor, "*b 6"]) -> Float[Tensor, "*b 2 3"]:
    r"""Return the maps that follow an affine velocity field for one unit of time.

    Negating the parameters gives the inverse map.

    .. math:: \begin{bmatrix} A & b \\ 0 & 1 \end{bmatrix} = \exp \begin{bmatrix} \gamma_1 & \gamma_2 & \gamma_3 \\
        \gamma_4 & \gamma_5 & \gamma_6 \\ 0 & 0 & 0 \end{bmatrix}, \quad \det A = e^{\gamma_1 + \gamma_5}

    Args:
        gamma: Parameters (..., 6).

    Returns:
        Matrices (..., 2, 3).
    """
    return expm(gamma.unflatten(-1, (2, 3)))


def determinant(matrix: Float[Tensor, "*b 2 3"]) -> Float[Tensor, "*b"]:
    """Return the determinant of A for each map.

    Its absolute value is the ratio of an area after the map to the area before it. It is negative for reflections.
    """
    return matrix[..., 0, 0] * matrix[..., 1, 1] - matrix[..., 0, 1] * matrix[..., 1, 0]


def inverse(matrix: Float[Tensor, "*b 2 3"]) -> Float[Tensor, "*b 2 3"]:
    r"""Return the inverse maps (..., 2, 3).

    .. math:: [A, b]^{-1} = [A^{-1}, -A^{-1} b]

    The result is infinite or NaN if A is singular.
    """
    a, b, tx, c, d, ty = matrix.flatten(-2).unbind(-1)
    entries = [d, -b, b * ty - d * tx, -c, a, c * tx - a * ty]
    inverted: Tensor = torch.stack(entries, -1).unflatten(-1, (2, 3)) / determinant(matrix)[..., None, None]
    return inverted


def transform_points(matrix: Float[Tensor, "b 2 3"], points: Float[Tensor, "*b1 n 2"]) -> Float[Tensor, "b n 2"]:
    """Apply affine maps to points, in full precision on every device.

    Args:
        matrix: Maps (b, 2, 3).
        points: Points (n, 2) that all maps share, or (b, n, 2) with separate points for each map.

    Returns:
        The mapped points (b, n, 2).
    """
    x_column, y_column, shift = matrix.mT[..., None, :].unbind(-3)
    return torch.addcmul(torch.addcmul(shift, points[..., :1], x_column), points[..., 1:], y_column)
