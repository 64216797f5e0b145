"""CPAB transformations: flows of continuous velocity fields that are affine on each triangle of the unit square.

The parameters theta of a velocity field are its coefficients in the basis of a `Tessellation`. On each triangle (cell)
c, the field is given by a 2 x 3 matrix A_c. The velocity at a point p = (x, y) in c is v(p) = A_c (x, y, 1). A table
(cells, 2, 3) holds the matrices of all triangles.

The flow moves points along the field for one unit of time. It is integrated in equal steps. In each step, a point in
triangle c moves by (expm(A_c / steps) - I) (x, y, 1). To exponentiate a 2 x 3 matrix, a third row of zeros is added to
it, and the upper two rows of the result are used. `step_table` computes the matrices expm(A_c / steps) - I once per
field, so each step only needs to find the triangle and look up its matrix. The steps run as tensor operations
(`cpab_steps`), as compiled CPU code (`cpab_cpu`) or as Triton kernels (`cpab_gpu`). The backward pass recomputes the
positions and applies the adjoint of each step, from the last step to the first.

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

from unbraid.accel.capture import supports_kernels
from unbraid.errors import UserError
from unbraid.spaces.cpab_steps import advance_points, apply_affine, backpropagate, flatten_table
from unbraid.spaces.expm import SQUARINGS, expm1_fast
from unbraid.spaces.tessellation import Tessellation, basis, find_cells, transposed_basis
from unbraid.spaces.warp import grid_nodes, sample_image

__all__ = [
    "Flow", "Tessellation", "advance_points", "apply_steps", "basis", "field_matrices", "find_cells",
    "integrate", "interpolate_displacement", "scaling_and_squaring", "velocity",
]  # fmt: skip

MAX_GPU_CELLS = 256  # maximum number of triangles whose gradients fit in the memory of one GPU program


def field_matrices(t: Tessellation, theta: Float[Tensor, "*b dim"]) -> Float[Tensor, "*b cells 2 3"]:
    """Return the matrix A_c of a velocity field v(p) = A_c (x, y, 1) on each triangle c.

    Args:
        t: The tessellation.
        theta: Parameters (..., dim) of the fields.

    Returns:
        Matrices (..., cells, 2, 3).

    Raises:
        UserError: If the number of parameters is not `t.dim`.
    """
    if theta.shape[-1] != t.dim:
        raise UserError(f"Velocity fields on {t} have {t.dim} parameters. Got {theta.shape[-1]} instead.")
    matrices: Tensor = (theta @ transposed_basis(t, theta.device, theta.dtype)).unflatten(-1, (t.n_cells, 2, 3))
    return matrices


def evaluate_fields(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "*b1 n 2"]
) -> Float[Tensor, "b n 2"]:
    """Evaluate the piecewise-affine functions of b tables of matrices at points.

    The points are (n, 2) if all tables share them, or (b, n, 2) with separate points for each table.
    """
    x, y = points.expand(len(table), -1, -1).unbind(-1)
    return torch.stack(apply_affine(flatten_table(table), find_cells(t, x, y), x, y), -1)


def velocity(
    t: Tessellation, theta: Float[Tensor, "b dim"], points: Float[Tensor, "*b1 n 2"]
) -> Float[Tensor, "b n 2"]:
    """Return the velocities of fields at points.

    Args:
        t: The tessellation.
        theta: Parameters (b, dim) of the fields.
        points: Points (n, 2) that all fields share, or (b, n, 2) with separate points for each field.

    Returns:
        Velocities (b, n, 2).
    """
    return evaluate_fields(t, field_matrices(t, theta), points)


def step_table(t: Tessellation, theta: Float[Tensor, "*b dim"], steps: int) -> Float[Tensor, "*b cells 2 3"]:
    """Return a table (..., cells, 2, 3) of the matrices expm(A_c / steps) - I.

    Multiplied by (x, y, 1), the matrix of a triangle gives the displacement of a point in a single step.
    """
    if steps < 1:
        raise UserError(f"The number of steps of a flow must be at least 1. Got {steps} instead.")
    generators, squarings = field_matrices(t, theta) / steps, max(0, SQUARINGS + 1 - steps.bit_length())
    return expm1_fast(generators, squarings)


def compiled_kernels(t: Tessellation, table: Tensor, points: Tensor) -> ModuleType | None:
    """Return the module whose compiled `forward` and `backward` support these tensors, or None if there is none."""
    if points.dtype != table.dtype or points.device != table.device or not table.numel() * points.numel():
        return None
    if table.device.type == "cpu" and table.dtype in (torch.float32, torch.float64):
        return importlib.import_module("unbraid.spaces.cpab_cpu")  # imported here because it loads numba
    if table.dtype == torch.float32 and t.n_cells <= MAX_GPU_CELLS and supports_kernels(table.device):
        return importlib.import_module("unbraid.spaces.cpab_gpu")
    return None


class Flow(torch.autograd.Function):
    """Apply steps p <- p + E_c (x, y, 1) to points p = (x, y).

    E is a table (b, cells, 2, 3), and c is the triangle that contains p. The points have the shape (b, n, 2), or
    (1, n, 2) if all b fields share them. The result has the shape (b, n, 2). Only the inputs are saved, because the
    backward pass recomputes the positions.
    """

    @staticmethod
    def forward(table: Tensor, points: Tensor, t: Tessellation, steps: int) -> Tensor:
        """Return the points after all steps."""
        if module := compiled_kernels(t, table, points):
            moved: Tensor = module.forward(t, table, points, steps)
            return moved
        x, y = points.expand(len(table), -1, -1).unbind(-1)
        return torch.stack(advance_points(t, flatten_table(table), x, y, steps), -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Save the inputs."""
        table, points, ctx.t, ctx.steps = inputs
        ctx.save_for_backward(table, points)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        """Apply the adjoint of each step, from the last step to the first."""
        table, points = ctx.saved_tensors
        grad_table, grad_points = _flow_gradient(table, points, grad, ctx.t, ctx.steps)
        if not ctx.needs_input_grad[1]:
            return grad_table, None, None, None
        return grad_table, grad_points if len(points) > 1 else grad_points.sum(0, keepdim=True), None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], table: Tensor, points: Tensor, *rest: Any
    ) -> tuple[Tensor, int]:
        """Treat a stack of batches as one larger batch, without repeating points that all fields share."""
        table, points = _merge_batches(info.batch_size, in_dims, table, points)
        return _flow(table, points, *rest).unflatten(0, (info.batch_size, -1)), 0


class FlowGradient(torch.autograd.Function):
    """Compute the gradients of `Flow` for the table (b, cells, 2, 3) and for the points (b, n, 2).

    These gradients cannot be differentiated again.
    """

    @staticmethod
    def forward(table: Tensor, points: Tensor, grad: Tensor, t: Tessellation, steps: int) -> tuple[Tensor, Tensor]:
        """Recompute the positions, then propagate the gradients through the steps in reverse order."""
        if module := compiled_kernels(t, table, points):
            gradients: tuple[Tensor, Tensor] = module.backward(t, table, points, steps, grad)
            return gradients
        return backpropagate(t, table, points, steps, grad)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        """Raise an error, because there is no second derivative."""
        raise NotImplementedError(
            "The flow of a velocity field has no second derivative. Do not differentiate its gradient."
        )

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], table: Tensor, points: Tensor, grad: Tensor, *rest: Any
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """Treat a stack of batches as one larger batch."""
        r = info.batch_size
        grad = grad.movedim(in_dims[2], 0) if in_dims[2] is not None else grad.expand(r, *grad.shape)
        table, points = _merge_batches(r, in_dims, table, points)
        grad_table, grad_points = _flow_gradient(table, points, grad.flatten(0, 1), *rest)
        return (grad_table.unflatten(0, (r, -1)), grad_points.unflatten(0, (r, -1))), (0, 0)


_flow: Callable[..., Tensor] = Flow.apply
_flow_gradient: Callable[..., tuple[Tensor, Tensor]] = FlowGradient.apply


def _merge_batches(r: int, in_dims: tuple[int | None, ...], table: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Merge a stack of r tables into one larger batch, and likewise the points unless all fields share them."""
    table = table.movedim(in_dims[0], 0) if in_dims[0] is not None else table.expand(r, *table.shape)
    if in_dims[1] is not None or len(points) > 1:
        points = points.movedim(in_dims[1], 0) if in_dims[1] is not None else points.expand(r, *points.shape)
        points = points.expand(r, table.shape[1], -1, -1).flatten(0, 1)
    return table.flatten(0, 1), points


def apply_steps(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "*b1 n 2"], steps: int
) -> Float[Tensor, "b n 2"]:
    """Apply `steps` steps p <- p + E_c (x, y, 1) to points.

    Args:
        t: The tessellation.
        table: The matrices E (b, cells, 2, 3) of a single step, from `step_table`.
        points: Points (n, 2) that all fields share, or (b, n, 2) with separate points for each field.
        steps: The number of steps.

    Returns:
        The final points (b, n, 2).

    Raises:
        UserError: If the number of sets of points is neither 1 nor the number of fields.
    """
    points = points if points.ndim == 3 else points[None]
    if len(points) not in (1, len(table)):
        raise UserError(
            f"There must be one set of points for all fields, or {len(table)} sets, one per field. "
            f"Got {len(points)} instead."
        )
    return _flow(table, points, t, steps)


def integrate(
    t: Tessellation, theta: Float[Tensor, "b dim"], points: Float[Tensor, "*b1 n 2"], steps: int = 50
) -> Float[Tensor, "b n 2"]:
    r"""Move points along the flow for one unit of time. Negating theta gives the inverse map.

    The path of a point is the solution of a differential equation:

    .. math:: \frac{dp}{dt} = A_{c(p)} \begin{bmatrix} p \\ 1 \end{bmatrix}

    Here c(p) is the triangle that contains p, and `field_matrices` returns the matrices A. The path is approximated by
    repeating the following step N times:

    .. math:: p \leftarrow e^{A_{c(p)} / N} \begin{bmatrix} p \\ 1 \end{bmatrix}

    Steps that stay within a triangle are exact. Steps that leave a triangle cause an error of order :math:`1 / N^2`.

    Args:
        t: The tessellation.
        theta: Parameters (b, dim) of the fields.
        points: Points (n, 2) that all fields share, or (b, n, 2) with separate points for each field.
        steps: The number of steps N.

    Returns:
        The final points (b, n, 2).

    Raises:
        UserError: If the number of parameters is not `t.dim`, or if `steps` is less than 1.
    """
    return apply_steps(t, step_table(t, theta, steps), points, steps)


def scaling_and_squaring(
    t: Tessellation, theta: Float[Tensor, "b dim"], shape: tuple[int, int], m: int = 6
) -> Float[Tensor, "b h w 2"]:
    r"""Return the displacements of the flow on a grid, by repeatedly composing a small displacement with itself.

    .. math:: u_0(p) = (e^{A_c / 2^m} - I) \begin{bmatrix} p \\ 1 \end{bmatrix}, \quad
        u_{k+1}(p) = u_k(p) + u_k(p + u_k(p))

    Between the grid nodes, displacements are interpolated bilinearly. The resulting error is small enough for images.
    Reference: Arsigny et al. (2006), "A log-Euclidean framework for statistics on diffeomorphisms".

    Args:
        t: The tessellation.
        theta: Parameters (b, dim) of the fields.
        shape: Numbers (h, w) of rows and columns of the grid (see `warp.grid_nodes`).
        m: The number of compositions.

    Returns:
        Displacements (b, h, w, 2).
    """
    grid = grid_nodes(*shape, theta.device, theta.dtype)
    u = evaluate_fields(t, step_table(t, theta, 2**m), grid)
    for _ in range(m):
        u = u + interpolate_displacement(u.unflatten(1, shape), grid + u)
    on_grid: Tensor = u.unflatten(1, shape)
    return on_grid


def interpolate_displacement(u: Float[Tensor, "b h w 2"], points: Float[Tensor, "b n 2"]) -> Float[Tensor, "b n 2"]:
    """Interpolate displacements (b, h, w, 2), which are given on `warp.grid_nodes`, at points (b, n, 2)."""
    return sample_image(u.movedim(-1, 1), points, "border", corners=True).mT
