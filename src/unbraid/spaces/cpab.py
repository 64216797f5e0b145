"""Flows of velocity fields that are continuous and affine on each triangle of the unit square (CPAB).

Reference: Freifeld et al. (2015), "Highly-expressive spaces of well-behaved transformations: keeping it simple";
Freifeld et al. (2017), "Transformations based on continuous piecewise-affine velocity fields".
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.accel.capture import kernels_on
from unbraid.errors import UserError
from unbraid.spaces.cpab_steps import advance, at, flat, walk_back
from unbraid.spaces.expm import SQUARINGS, expm1, launched
from unbraid.spaces.tessellation import Tessellation, barycentric, basis, columns, find_cells
from unbraid.spaces.warp import nodes, sample

__all__ = [
    "Flow", "Tessellation", "advance", "basis", "displacement", "exact", "fields", "find_cells", "flow", "integrate",
    "scaling_and_squaring", "velocity",
]  # fmt: skip

TURN = 0.02  # how much a field may turn or stretch in one attempt of the exact solution
OUTSIDE = 1e-11  # barycentric weight below which a point has left a triangle
MOST = 256  # triangles that fit the memory of a program on a GPU
CUTS, ROUNDS = 32, 8  # of intervals of time, 40 bits in all


def fields(t: Tessellation, theta: Float[Tensor, "*b dim"]) -> Float[Tensor, "*b cells 2 3"]:
    """The affine part of a velocity field on each triangle: v(p) = A_c (x, y, 1)."""
    if theta.shape[-1] != t.dim:
        raise UserError(f"Fields on {t} have {t.dim} parameters. Got {theta.shape[-1]} instead.")
    parts: Tensor = (theta @ columns(t, theta.device, theta.dtype)).unflatten(-1, (t.cells, 2, 3))
    return parts


def affine_parts(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "*b1 n 2"]
) -> Float[Tensor, "b n 2"]:
    """The affine part of its triangle at each point of (n, 2), or of (b, n, 2) for each table's own."""
    x, y = points.expand(len(table), -1, -1).unbind(-1)
    return torch.stack(at(flat(table), find_cells(t, x, y), x, y), -1)


def velocity(
    t: Tessellation, theta: Float[Tensor, "b dim"], points: Float[Tensor, "*b1 n 2"]
) -> Float[Tensor, "b n 2"]:
    """The velocity at points, (n, 2) for all fields or (b, n, 2) of each field's own."""
    return affine_parts(t, fields(t, theta), points)


def steps_of(t: Tessellation, theta: Float[Tensor, "*b dim"], steps: int) -> Float[Tensor, "*b cells 2 3"]:
    """What each triangle adds to a point in one of equal steps: expm(A_c / steps) - I."""
    if steps < 1:
        raise UserError(f"A flow needs at least one step. Got {steps} instead.")
    parts, squarings = fields(t, theta) / steps, max(0, SQUARINGS + 1 - steps.bit_length())
    return launched(parts, squarings)


def fast(t: Tessellation, table: Tensor, points: Tensor) -> ModuleType | None:
    """The compiled `forward` and `backward` for these tensors, or None: then they take the tensor code."""
    if points.dtype != table.dtype or points.device != table.device or not table.numel() * points.numel():
        return None
    if table.device.type == "cpu" and table.dtype in (torch.float32, torch.float64):
        return importlib.import_module("unbraid.spaces.cpab_cpu")  # compiling is for those who flow
    if table.dtype == torch.float32 and t.cells <= MOST and kernels_on(table.device):
        return importlib.import_module("unbraid.spaces.cpab_gpu")
    return None


class Flow(torch.autograd.Function):
    """Points (b, n, 2) after equal steps p <- p + E_c (x, y, 1), from E (b, cells, 2, 3) and points (1 or b, n, 2).

    Only its inputs are kept; the gradient walks the way again.
    """

    @staticmethod
    def forward(table: Tensor, points: Tensor, t: Tessellation, steps: int) -> Tensor:
        """All steps from the start."""
        if module := fast(t, table, points):
            moved: Tensor = module.forward(t, table, points, steps)
            return moved
        x, y = points.expand(len(table), -1, -1).unbind(-1)
        return torch.stack(advance(t, flat(table), x, y, steps), -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the inputs."""
        table, points, ctx.t, ctx.steps = inputs
        ctx.save_for_backward(table, points)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        """The adjoint of each step, last to first."""
        table, points = ctx.saved_tensors
        total, back = _pull(table, points, grad, ctx.t, ctx.steps)
        if not ctx.needs_input_grad[1]:
            return total, None, None, None
        return total, back if len(points) > 1 else back.sum(0, keepdim=True), None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], table: Tensor, points: Tensor, *rest: Any
    ) -> tuple[Tensor, int]:
        """A stack of batches is one larger batch; points that all share are not repeated."""
        table, points = _folded(info.batch_size, in_dims, table, points)
        return _flow(table, points, *rest).unflatten(0, (info.batch_size, -1)), 0


class Pull(torch.autograd.Function):
    """Gradients of `Flow` by the table (b, cells, 2, 3) and by each image's points (b, n, 2); they have none."""

    @staticmethod
    def forward(table: Tensor, points: Tensor, grad: Tensor, t: Tessellation, steps: int) -> tuple[Tensor, Tensor]:
        """The way again, and back along it."""
        if module := fast(t, table, points):
            pulled: tuple[Tensor, Tensor] = module.backward(t, table, points, steps, grad)
            return pulled
        return walk_back(t, table, points, steps, grad)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        """Refuse."""
        raise NotImplementedError("The flow of a field can be differentiated once. Take no gradient of its gradient.")

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], table: Tensor, points: Tensor, grad: Tensor, *rest: Any
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """One larger batch."""
        r = info.batch_size
        grad = grad.movedim(in_dims[2], 0) if in_dims[2] is not None else grad.expand(r, *grad.shape)
        total, back = _pull(*_folded(r, in_dims, table, points), grad.flatten(0, 1), *rest)
        return (total.unflatten(0, (r, -1)), back.unflatten(0, (r, -1))), (0, 0)


_flow: Callable[..., Tensor] = Flow.apply
_pull: Callable[..., tuple[Tensor, Tensor]] = Pull.apply


def _folded(r: int, in_dims: tuple[int | None, ...], table: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """A stack of tables, and of points unless all share them, as one larger batch."""
    table = table.movedim(in_dims[0], 0) if in_dims[0] is not None else table.expand(r, *table.shape)
    if in_dims[1] is not None or len(points) > 1:
        points = points.movedim(in_dims[1], 0) if in_dims[1] is not None else points.expand(r, *points.shape)
        points = points.expand(r, table.shape[1], -1, -1).flatten(0, 1)
    return table.flatten(0, 1), points


def flow(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "*b1 n 2"], steps: int
) -> Float[Tensor, "b n 2"]:
    """Points (n, 2) or (b, n, 2) after `steps` times adding E_c (x, y, 1) with the table of each step's E."""
    points = points if points.ndim == 3 else points[None]
    if len(points) not in (1, len(table)):
        raise UserError(f"Points must be shared or one set a field: {len(table)}. Got {len(points)} sets instead.")
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
        raise UserError(f"The exact flow needs fields with zero_boundary. Got {t} instead. Use `integrate` for others.")
    if not (theta.isfinite().all() and ((points >= 0) & (points <= 1)).all()):
        raise UserError("The exact flow needs finite parameters and points of the unit square. Got others: clip them.")
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
