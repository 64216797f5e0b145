"""Accurate CPAB flows, a reference for the integration in steps.

Within each triangle, the path of a point has a closed form.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError
from unbraid.spaces.cpab import field_matrices
from unbraid.spaces.expm import expm1
from unbraid.spaces.tessellation import Tessellation, barycentric_matrices, find_cells

MAX_CHANGE = 0.02  # maximum of the norm of A_c times the length of a time interval
OUTSIDE_TOLERANCE = 1e-11  # a point is outside a triangle if a barycentric weight is below the negative of this
N_PARTS, N_ROUNDS = 32, 8  # dividing an interval into 32 parts, 8 times, gives the exit time to 40 bits


def integrate_exactly(
    t: Tessellation, theta: Float[Tensor, "b dim"], points: Float[Tensor, "*b1 n 2"]
) -> Float[Tensor, "b n 2"]:
    """Move points along the flow for one unit of time, with an error of about 1e-10.

    This function is slow and has no gradient. Each point moves from triangle to triangle. Within a triangle, its path
    is computed in closed form, in time intervals so short that the field rotates and stretches the plane only a little.
    When a point leaves its triangle during an interval, a search narrows down the exit time. All computations are in
    float64. The tessellation must have `zero_boundary`, because otherwise points leave the square.

    Args:
        t: The tessellation, with `zero_boundary`.
        theta: Parameters (b, dim) of the fields.
        points: Points (n, 2) that all fields share, or (b, n, 2) with separate points for each field.

    Returns:
        The final points (b, n, 2), in float64.

    Raises:
        UserError: If the tessellation lacks `zero_boundary`, if parameters are not finite, or if points lie
            outside the unit square.
    """
    if not t.zero_boundary:
        raise UserError(
            f"The exact flow needs fields with zero_boundary. Got {t} instead. Use `cpab.integrate` for such fields."
        )
    if not (theta.isfinite().all() and ((points >= 0) & (points <= 1)).all()):
        raise UserError(
            "The exact flow needs finite parameters and points in the unit square. Got parameters that are not finite "
            "or points outside the square instead. Check the parameters for NaN, and clip the points."
        )
    matrices = field_matrices(t, theta.detach().double()).flatten(0, 1)
    weights = torch.tensor(barycentric_matrices(t), device=theta.device)
    p = points.detach().double().expand(len(theta), -1, -1).flatten(0, 1).clone()
    first_cell = t.n_cells * torch.arange(len(theta), device=theta.device).repeat_interleave(points.shape[-2])
    interval = MAX_CHANGE / float(matrices.abs().sum(-1).max().clamp_min(MAX_CHANGE))
    remaining = torch.ones_like(p[:, 0])
    while len(rows := remaining.nonzero()[:, 0]):
        cell = find_cells(t, *p[rows].unbind(-1))
        p[rows], elapsed = _advance_in_triangle(
            matrices[first_cell[rows] + cell], weights[cell], p[rows], remaining[rows].clamp_max(interval)
        )
        remaining[rows] = (remaining[rows] - elapsed).clamp_min(0.0)
    end: Tensor = p.unflatten(0, (len(theta), -1))
    return end


def _advance_in_triangle(matrix: Tensor, weights: Tensor, p: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Advance points for a given time, or until they are just outside their triangles if that happens earlier.

    Returns the new points and the time that has passed for each point.
    """
    time = time.clone()
    moved, outside = _position_after(matrix, weights, p, time)
    rows = outside.nonzero()[:, 0]
    if len(rows):
        time[rows] = _exit_time(matrix[rows], weights[rows], p[rows], time[rows])
        moved[rows] = _position_after(matrix[rows], weights[rows], p[rows], time[rows])[0]
    return moved, time


def _exit_time(matrix: Tensor, weights: Tensor, p: Tensor, high: Tensor) -> Tensor:
    """Return the time at which each point first leaves its triangle, which must be before `high`.

    The interval that contains this time is repeatedly divided into equal parts.
    """
    low, numbers = torch.zeros_like(high), torch.arange(1, N_PARTS + 1, device=p.device)
    matrix, weights, p = (x.repeat_interleave(N_PARTS, 0) for x in (matrix, weights, p))
    for _ in range(N_ROUNDS):
        span = (high - low) / N_PARTS
        times = (low[:, None] + span[:, None] * numbers).flatten()
        outside = _position_after(matrix, weights, p, times)[1].unflatten(0, (-1, N_PARTS))
        before = torch.where(outside.any(1), outside.to(torch.int64).argmax(1), N_PARTS - 1)
        low, high = low + span * before, low + span * (before + 1)
    return high


def _position_after(matrix: Tensor, weights: Tensor, p: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Return the points after a given time, and whether each is then outside its triangle."""
    moved = p + _apply_affine(expm1(matrix * time[:, None, None], squarings=0), p)
    return moved, _apply_affine(weights, moved).amin(-1) < -OUTSIDE_TOLERANCE


def _apply_affine(matrix: Tensor, p: Tensor) -> Tensor:
    """Return the matrices (n, k, 3) times (x, y, 1) for points (n, 2), of shape (n, k)."""
    return (matrix[..., :2] * p[:, None]).sum(-1) + matrix[..., 2]
