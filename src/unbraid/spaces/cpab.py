"""Flows of velocity fields that are continuous and affine on each triangle of the unit square (CPAB).

Reference: Freifeld et al. (2015), "Highly-expressive spaces of well-behaved transformations: keeping it simple";
Freifeld et al. (2017), "Transformations based on continuous piecewise-affine velocity fields".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.spaces.expm import SQUARINGS, expm1
from unbraid.spaces.tessellation import Tessellation, barycentric, basis, columns, find_cells
from unbraid.spaces.warp import nodes, sample

__all__ = [
    "Flow", "Tessellation", "basis", "displacement", "exact", "fields", "find_cells", "flow", "integrate",
    "scaling_and_squaring", "velocity",
]  # fmt: skip

TURN = 0.02  # how much a field may turn or stretch in one attempt of the exact solution
OUTSIDE = 1e-11  # barycentric weight below which a point has left a triangle
CUTS, ROUNDS = 32, 8  # of intervals of time, 40 bits in all


def fields(t: Tessellation, theta: Float[Tensor, "*b dim"]) -> Float[Tensor, "*b cells 2 3"]:
    """The affine part of a velocity field on each triangle: v(p) = A_c (x, y, 1)."""
    if theta.shape[-1] != t.dim:
        raise ValueError(f"Fields on {t} have {t.dim} parameters. Got {theta.shape[-1]} instead.")
    parts: Tensor = (theta @ columns(t, theta.device, theta.dtype)).unflatten(-1, (t.cells, 2, 3))
    return parts


def _at(table: Tensor, cell: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A_c (x, y, 1) of a (b, 6, cells) table at (b, n) points and their triangles."""
    a, b, c, d, e, f = _entries(table, cell)
    return a * x + b * y + c, d * x + e * y + f


def _entries(table: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
    return table.gather(2, cell[:, None].expand(-1, table.shape[1], -1)).unbind(1)


def _flat(table: Tensor) -> Tensor:
    return table.flatten(2).mT.contiguous()


def affine_parts(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "*b1 n 2"]
) -> Float[Tensor, "b n 2"]:
    """The affine part of its triangle at each point of (n, 2), or of (b, n, 2) for each table's own."""
    x, y = points.expand(len(table), -1, -1).unbind(-1)
    return torch.stack(_at(_flat(table), find_cells(t, x, y), x, y), -1)


def velocity(
    t: Tessellation, theta: Float[Tensor, "b dim"], points: Float[Tensor, "*b1 n 2"]
) -> Float[Tensor, "b n 2"]:
    """The velocity at points, (n, 2) for all fields or (b, n, 2) of each field's own."""
    return affine_parts(t, fields(t, theta), points)


def steps_of(t: Tessellation, theta: Float[Tensor, "*b dim"], steps: int) -> Float[Tensor, "*b cells 2 3"]:
    """What each triangle adds to a point in one of equal steps: expm(A_c / steps) - I."""
    if steps < 1:
        raise ValueError(f"A flow needs at least one step. Got {steps} instead.")
    return expm1(fields(t, theta) / steps, max(0, SQUARINGS + 1 - steps.bit_length()))


def advance(t: Tessellation, table: Tensor, x: Tensor, y: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Points (b, n) after some steps of a (b, 6, cells) table of what each step adds."""
    for _ in range(steps):
        dx, dy = _at(table, find_cells(t, x, y), x, y)
        x, y = x + dx, y + dy
    return x, y


class Flow(torch.autograd.Function):
    """Points (b, n, 2) after equal steps p <- p + E_c (x, y, 1), from E (b, cells, 2, 3) and points (1 or b, n, 2).

    Only its inputs are kept. The gradient walks the trajectory again in pieces of about the root of the steps, which
    is exact and holds that many positions at a time.
    """

    @staticmethod
    def forward(table: Tensor, points: Tensor, t: Tessellation, steps: int) -> Tensor:
        """All steps from the start."""
        x, y = points.expand(len(table), -1, -1).unbind(-1)
        return torch.stack(advance(t, _flat(table), x, y, steps), -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the inputs."""
        table, points, ctx.t, ctx.steps = inputs
        ctx.save_for_backward(table, points)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """The adjoint of each step, last to first."""
        table, points = ctx.saved_tensors
        flat, piece = _flat(table), math.isqrt(ctx.steps - 1) + 1
        x, y = points.expand(len(table), -1, -1).unbind(-1)
        starts = [(x, y)]
        for _ in range(piece, ctx.steps, piece):
            starts.append(advance(ctx.t, flat, *starts[-1], piece))
        gx, gy = grad.unbind(-1)
        total = torch.zeros_like(flat)
        for i, start in reversed(list(enumerate(starts))):
            total, gx, gy = _adjoint(ctx.t, flat, start, min(piece, ctx.steps - i * piece), (total, gx, gy))
        back = torch.stack([gx, gy], -1)
        return total.mT.reshape(table.shape), back if len(points) > 1 else back.sum(0, keepdim=True), None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], table: Tensor, points: Tensor, *rest: Any
    ) -> tuple[Tensor, int]:
        """A stack of batches is one larger batch; points that all share are not repeated."""
        r = info.batch_size
        table = table.movedim(in_dims[0], 0) if in_dims[0] is not None else table.expand(r, *table.shape)
        shared = in_dims[1] is None and len(points) == 1
        if not shared:
            points = points.movedim(in_dims[1], 0) if in_dims[1] is not None else points.expand(r, *points.shape)
            points = points.expand(r, table.shape[1], -1, -1).flatten(0, 1)
        return _flow(table.flatten(0, 1), points, *rest).unflatten(0, (r, -1)), 0


_flow: Callable[..., Tensor] = Flow.apply


def _adjoint(
    t: Tessellation, table: Tensor, start: tuple[Tensor, Tensor], steps: int, state: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Take the gradients of the table, x and y back over some steps from `start`."""
    total, gx, gy = state
    (x, y), path, linear = start, [], table.unflatten(1, (2, 3))[:, :, :2].flatten(1, 2)
    for _ in range(steps):
        cell = find_cells(t, x, y)
        path.append((x, y, cell))
        dx, dy = _at(table, cell, x, y)
        x, y = x + dx, y + dy
    for x, y, cell in reversed(path):
        a, b, d, e = _entries(linear, cell)
        pulls = torch.stack([gx * x, gx * y, gx, gy * x, gy * y, gy], 1)
        total = total.scatter_add(2, cell[:, None].expand(-1, 6, -1), pulls)
        gx, gy = gx + a * gx + d * gy, gy + b * gx + e * gy
    return total, gx, gy


def flow(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "*b1 n 2"], steps: int
) -> Float[Tensor, "b n 2"]:
    """Points (n, 2) or (b, n, 2) after `steps` times adding E_c (x, y, 1) with the table of each step's E."""
    points = points if points.ndim == 3 else points[None]
    if len(points) not in (1, len(table)):
        raise ValueError(f"Points must be shared or one set a field: {len(table)}. Got {len(points)} sets instead.")
    return _flow(table, points, t, steps)


def integrate(
    t: Tessellation, theta: Float[Tensor, "b dim"], points: Float[Tensor, "*b1 n 2"], steps: int = 50
) -> Float[Tensor, "b n 2"]:
    r"""Where the flow takes points in a unit of time; minus theta takes them back.

    .. math:: \frac{dp}{dt} = A_{c(p)} \begin{bmatrix} p \\ 1 \end{bmatrix} \approx
        p \leftarrow e^{A_{c(p)} / n} \begin{bmatrix} p \\ 1 \end{bmatrix} \text{, n times}

    A step is exact within its triangle; the error, about :math:`1 / n^2`, is made where it leaves one.
    """
    return flow(t, steps_of(t, theta, steps), points, steps)


def scaling_and_squaring(
    t: Tessellation, theta: Float[Tensor, "b dim"], shape: tuple[int, int], m: int = 6
) -> Float[Tensor, "b h w 2"]:
    r"""The flow's displacements on a grid of `nodes`, by composing a small one with itself.

    .. math:: u_0(p) = (e^{A_c / 2^m} - I) \begin{bmatrix} p \\ 1 \end{bmatrix}, \quad
        u_{k+1}(p) = u_k(p) + u_k(p + u_k(p))

    Between nodes displacements are linear, so the error is that of the grid, fit for images. Reference: Arsigny et al.
    (2006), "A log-Euclidean framework for statistics on diffeomorphisms".
    """
    grid = nodes(*shape, theta.device, theta.dtype)
    u = affine_parts(t, steps_of(t, theta, 2**m), grid)
    for _ in range(m):
        u = u + displacement(u.unflatten(1, shape), grid + u)
    on_grid: Tensor = u.unflatten(1, shape)
    return on_grid


def displacement(u: Float[Tensor, "b h w 2"], points: Float[Tensor, "b n 2"]) -> Float[Tensor, "b n 2"]:
    """Displacements given on `nodes`, at any points."""
    return sample(u.movedim(-1, 1), points, "border", corners=True).mT


def exact(t: Tessellation, theta: Float[Tensor, "b dim"], points: Float[Tensor, "*b1 n 2"]) -> Float[Tensor, "b n 2"]:
    """Where the flow takes points, from triangle to triangle: in closed form within each, to about 1e-10; slow.

    The time of leaving a triangle is bracketed by attempts in which the field turns little, and then cut ever finer.
    In float64; no gradient. It needs a zero boundary, without which points leave the square.
    """
    if not t.zero_boundary:
        raise ValueError(
            f"The exact flow needs fields with zero_boundary. Got {t} instead. Use `integrate` for others."
        )
    if not (theta.isfinite().all() and ((points >= 0) & (points <= 1)).all()):
        raise ValueError("The exact flow needs finite parameters and points of the unit square. Got others: clip them.")
    parts = fields(t, theta.detach().double()).flatten(0, 1)
    weights = torch.tensor(barycentric(t), device=theta.device)
    p = points.detach().double().expand(len(theta), -1, -1).flatten(0, 1).clone()
    first = t.cells * torch.arange(len(theta), device=theta.device).repeat_interleave(points.shape[-2])
    attempt = TURN / float(parts.abs().sum(-1).max().clamp_min(TURN))
    left = torch.ones_like(p[:, 0])
    while len(rows := left.nonzero()[:, 0]):
        cell = find_cells(t, *p[rows].unbind(-1))
        p[rows], spent = _within(parts[first[rows] + cell], weights[cell], p[rows], left[rows].clamp_max(attempt))
        left[rows] = (left[rows] - spent).clamp_min(0.0)
    reached: Tensor = p.unflatten(0, (len(theta), -1))
    return reached


def _within(part: Tensor, weights: Tensor, p: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Points after a time in their triangles' own fields, or just outside if they leave before, and that time."""
    time = time.clone()
    moved, out = _after(part, weights, p, time)
    rows = out.nonzero()[:, 0]
    if len(rows):
        time[rows] = _leaving(part[rows], weights[rows], p[rows], time[rows])
        moved[rows] = _after(part[rows], weights[rows], p[rows], time[rows])[0]
    return moved, time


def _leaving(part: Tensor, weights: Tensor, p: Tensor, high: Tensor) -> Tensor:
    """When points first leave their triangles, all of them before `high`: ever smaller intervals cut into parts."""
    low, cuts = torch.zeros_like(high), torch.arange(1, CUTS + 1, device=p.device)
    part, weights, p = (x.repeat_interleave(CUTS, 0) for x in (part, weights, p))
    for _ in range(ROUNDS):
        span = (high - low) / CUTS
        out = _after(part, weights, p, (low[:, None] + span[:, None] * cuts).flatten())[1].unflatten(0, (-1, CUTS))
        before = torch.where(out.any(1), out.to(torch.int64).argmax(1), CUTS - 1)
        low, high = low + span * before, low + span * (before + 1)
    return high


def _after(part: Tensor, weights: Tensor, p: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Points after a time in a field, and whether they are outside their triangles then."""
    moved = p + _times(expm1(part * time[:, None, None], squarings=0), p)
    return moved, _times(weights, moved).amin(-1) < -OUTSIDE


def _times(part: Tensor, p: Tensor) -> Tensor:
    """Rows of affine parts times (x, y, 1)."""
    return (part[..., :2] * p[:, None]).sum(-1) + part[..., 2]
