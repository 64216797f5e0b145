"""Accurate CPAB flows, in closed form from triangle to triangle: the reference for the integration in steps."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError
from unbraid.spaces.cpab import affine_fields
from unbraid.spaces.expm import expm1
from unbraid.spaces.tessellation import Tessellation, barycentric_matrices, find_cells

MAX_CHANGE = 0.02  # largest rotation or stretch of the field in one time interval
OUTSIDE = 1e-11  # a point has left a triangle if a barycentric weight is below minus this
CUTS, ROUNDS = 32, 8  # the exit time is found by cutting an interval into 32 parts, 8 times: 40 bits


def integrate_exactly(
    t: Tessellation, theta: Float[Tensor, "b dim"], points: Float[Tensor, "*b1 n 2"]
) -> Float[Tensor, "b n 2"]:
    """Move points along the flow for a unit of time, with an error of about 1e-10. Slow, and without a gradient.

    Each point moves from triangle to triangle, and within each triangle in closed form. The time at which it leaves a
    triangle is searched in time intervals in which the field rotates and stretches little, and then narrowed down. All
    computations are in float64. The boundary must be zero, because otherwise points leave the square.

    Args:
        t: The tessellation, with `zero_boundary`.
        theta: Parameters (b, dim) of the fields.
        points: Points (n, 2) for all fields, or (b, n, 2) separately for each field.

    Returns:
        The final points (b, n, 2), in float64.

    Raises:
        UserError: If the boundary is not zero, if parameters are not finite, or if points lie outside the unit square.
    """
    if not t.zero_boundary:
        raise UserError(f"The exact flow needs fields with zero_boundary. Got {t} instead. Use `integrate` instead.")
    if not (theta.isfinite().all() and ((points >= 0) & (points <= 1)).all()):
        raise UserError(
            "The exact flow needs finite parameters and points in the unit square. Got others. Clip the points, and "
            "check the parameters for NaN."
        )
    parts = affine_fields(t, theta.detach().double()).flatten(0, 1)
    weights = torch.tensor(barycentric_matrices(t), device=theta.device)
    p = points.detach().double().expand(len(theta), -1, -1).flatten(0, 1).clone()
    first = t.cells * torch.arange(len(theta), device=theta.device).repeat_interleave(points.shape[-2])
    interval = MAX_CHANGE / float(parts.abs().sum(-1).max().clamp_min(MAX_CHANGE))
    remaining = torch.ones_like(p[:, 0])
    while len(rows := remaining.nonzero()[:, 0]):
        cell = find_cells(t, *p[rows].unbind(-1))
        p[rows], spent = _advance_in_triangle(
            parts[first[rows] + cell], weights[cell], p[rows], remaining[rows].clamp_max(interval)
        )
        remaining[rows] = (remaining[rows] - spent).clamp_min(0.0)
    end: Tensor = p.unflatten(0, (len(theta), -1))
    return end


def _advance_in_triangle(part: Tensor, weights: Tensor, p: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Advance points in the fields of their triangles, at most until they are just outside.

    Returns the new points and the time that has passed for each of them.
    """
    time = time.clone()
    moved, out = _position_after(part, weights, p, time)
    rows = out.nonzero()[:, 0]
    if len(rows):
        time[rows] = _exit_time(part[rows], weights[rows], p[rows], time[rows])
        moved[rows] = _position_after(part[rows], weights[rows], p[rows], time[rows])[0]
    return moved, time


def _exit_time(part: Tensor, weights: Tensor, p: Tensor, high: Tensor) -> Tensor:
    """Return the time at which points first leave their triangles, which must be before `high`.

    The interval that contains this time is repeatedly divided into equal parts.
    """
    low, cuts = torch.zeros_like(high), torch.arange(1, CUTS + 1, device=p.device)
    part, weights, p = (x.repeat_interleave(CUTS, 0) for x in (part, weights, p))
    for _ in range(ROUNDS):
        span = (high - low) / CUTS
        times = (low[:, None] + span[:, None] * cuts).flatten()
        out = _position_after(part, weights, p, times)[1].unflatten(0, (-1, CUTS))
        before = torch.where(out.any(1), out.to(torch.int64).argmax(1), CUTS - 1)
        low, high = low + span * before, low + span * (before + 1)
    return high


def _position_after(part: Tensor, weights: Tensor, p: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Return the points after a time in a field, and whether they are then outside their triangles."""
    moved = p + _apply_affine(expm1(part * time[:, None, None], squarings=0), p)
    return moved, _apply_affine(weights, moved).amin(-1) < -OUTSIDE


def _apply_affine(part: Tensor, p: Tensor) -> Tensor:
    """Apply affine parts to (x, y, 1)."""
    return (part[..., :2] * p[:, None]).sum(-1) + part[..., 2]
