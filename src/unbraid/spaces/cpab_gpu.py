"""Flows of piecewise-affine fields as Triton kernels, in which one program runs all steps of a block of points.

The forward kernel performs the same operations in the same order as `cpab_steps.advance_points`, without fused
multiply-adds. Positions are therefore bitwise identical.

The backward kernel sums, for each triangle, the gradient contributions of the points in it. A point usually stays in a
triangle for many steps, so its contributions are first summed in registers. Each point has two sets of six sums, one
for its current triangle and one for its previous triangle. When any point of the block would need a third set, the sums
for the previous triangles of all points in the block are added to the totals of these triangles. This addition is a
product with a matrix that has one row per triangle and one column per point. Its entries are 1 where the point lies in
the triangle, and 0 elsewhere. The order of additions does not depend on timing, so results are reproducible.
"""

from __future__ import annotations

import torch
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from unbraid.accel.kernels.jit import block_count, is_interpreted, kernel, next_power_of_two
from unbraid.accel.tracing import opaque
from unbraid.spaces.tessellation import Tessellation

COMPILER_OPTIONS = {"enable_fp_fusion": False, "num_stages": 1}  # no fused multiply-adds
FORWARD_OPTIONS = {"BLOCK": 128, "num_warps": 4, **COMPILER_OPTIONS}
BLOCK = 32  # points per block of the backward kernel, one per thread of a warp
PROGRAMS = 2560  # number of programs of the backward kernel. With one warp each, they occupy a whole H200
HIGH_BITS: tl.constexpr = tl.constexpr(-65536)  # mask of the upper 16 bits of a float32, which form a bfloat16
# Triton's interpreter does not support bfloat16.
BFLOAT16: tl.constexpr = tl.constexpr(tl.float32 if is_interpreted() else tl.bfloat16)


@kernel
def find_cell(x: tl.tensor, y: tl.tensor, NX: tl.constexpr, NY: tl.constexpr) -> tl.tensor:
    """Return the number of the triangle that contains each point, as `tessellation.find_cells` does.

    A point whose coordinates are NaN is assigned to the first triangle.
    """
    across, down = x * NX, y * NY
    column = tl.floor(tl.minimum(tl.maximum(across, 0.0), NX - 1.0))
    row = tl.floor(tl.minimum(tl.maximum(down, 0.0), NY - 1.0))
    across, down = across - column, down - row
    below, beyond = across < down, 1.0 - across < down
    return ((row * NX + column) * 4.0).to(tl.int32) + tl.where(below, 2, 0) + (below ^ beyond).to(tl.int32)


@kernel
def step_points(matrix: tl.tensor, x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """Return the points after one step. `matrix` points to the six matrix entries of the triangle of each point."""
    dx = tl.load(matrix) * x + tl.load(matrix + 1) * y + tl.load(matrix + 2)
    dy = tl.load(matrix + 3) * x + tl.load(matrix + 4) * y + tl.load(matrix + 5)
    return x + dx, y + dy


@kernel
def _forward_kernel(
    TABLE: tl.tensor, START: tl.tensor, OUT: tl.tensor, n: tl.tensor, stride: tl.tensor, NX: tl.constexpr,
    NY: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    r = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = r < n
    at = START + i * stride + 2 * r
    x, y = tl.load(at, mask=valid, other=0.0), tl.load(at + 1, mask=valid, other=0.0)
    for _ in range(STEPS):
        x, y = step_points(TABLE + i * (24 * NX * NY) + find_cell(x, y, NX, NY) * 6, x, y)
    to = OUT + i * n * 2 + 2 * r
    tl.store(to, x, mask=valid)
    tl.store(to + 1, y, mask=valid)


@kernel
def add_to_cells(
    acc: tl.tensor, cell: tl.tensor, a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor, e: tl.tensor, f: tl.tensor,
    CELLS: tl.constexpr, BLOCK: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Add the six sums of each point to the totals of its triangle, and return the totals of all triangles.

    Each float32 is split without loss into three bfloat16 numbers of 8 significant bits. There is one matrix product
    for each of the three.
    """
    zero = tl.zeros_like(a)
    left = tl.join(tl.join(a, e), tl.join(c, zero))  # each join adds a last dimension, whose index varies fastest
    right = tl.join(tl.join(b, f), tl.join(d, zero))
    rest = tl.reshape(tl.join(left, right), (BLOCK, 8))
    belongs = (tl.arange(0, CELLS)[:, None] == cell[None, :]).to(BFLOAT16)
    for _ in tl.static_range(3):
        high = (rest.to(tl.int32, bitcast=True) & HIGH_BITS).to(tl.float32, bitcast=True)
        acc = tl.dot(belongs, high.to(BFLOAT16), acc)
        rest -= high
    return acc


@kernel
def select_sums(
    new: tl.tensor, a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor, e: tl.tensor, f: tl.tensor, a1: tl.tensor,
    b1: tl.tensor, c1: tl.tensor, d1: tl.tensor, e1: tl.tensor, f1: tl.tensor,
) -> tl.tensor:  # fmt: skip
    """Return the first six values for points where `new` is true, and the last six values for the others."""
    return (
        tl.where(new, a, a1), tl.where(new, b, b1), tl.where(new, c, c1),
        tl.where(new, d, d1), tl.where(new, e, e1), tl.where(new, f, f1),
    )  # fmt: skip


@kernel
def backpropagate_step(matrix: tl.tensor, gx: tl.tensor, gy: tl.tensor) -> tl.tensor:
    """Return the gradients for the points before a step, given the gradients for the points after it."""
    px = tl.fma(tl.load(matrix), gx, tl.fma(tl.load(matrix + 3), gy, gx))
    return px, tl.fma(tl.load(matrix + 1), gx, tl.fma(tl.load(matrix + 4), gy, gy))


@kernel
def load_step(path: tl.tensor, visited: tl.tensor, s: tl.tensor, BLOCK: tl.constexpr) -> tl.tensor:
    """Return the saved positions x and y of points before step `s`, and the triangles that contained them."""
    at = path + s * (2 * BLOCK)
    return tl.load(at), tl.load(at + BLOCK), tl.load(visited + s * BLOCK).to(tl.int32)


@kernel
def _backward_kernel(
    TABLE: tl.tensor, START: tl.tensor, GRAD: tl.tensor, PATH: tl.tensor, VISITED: tl.tensor, GRAD_TABLE: tl.tensor,
    GRAD_POINTS: tl.tensor, n: tl.tensor, stride: tl.tensor, NX: tl.constexpr, NY: tl.constexpr, CELLS: tl.constexpr,
    STEPS: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    program = i * tl.num_programs(1) + tl.program_id(1)
    table = TABLE + i * (24 * NX * NY)
    path = PATH + program * (2 * BLOCK * STEPS) + tl.arange(0, BLOCK)
    visited = VISITED + program * (BLOCK * STEPS) + tl.arange(0, BLOCK)
    acc = tl.zeros((CELLS, 8), tl.float32)
    a = tl.zeros((BLOCK,), tl.float32)
    b, c, d, e, f, a1, b1, c1, d1, e1, f1 = a, a, a, a, a, a, a, a, a, a, a
    current = tl.full((BLOCK,), -1, tl.int32)
    previous = current
    for round_number in range(ROUNDS):
        r = (tl.program_id(1) * ROUNDS + round_number) * BLOCK + tl.arange(0, BLOCK)
        at = 2 * tl.minimum(r, n - 1)
        x, y = tl.load(START + i * stride + at), tl.load(START + i * stride + at + 1)
        for s in range(STEPS):
            cell = find_cell(x, y, NX, NY)
            tl.store(path + 2 * s * BLOCK, x)
            tl.store(path + (2 * s + 1) * BLOCK, y)
            tl.store(visited + s * BLOCK, cell.to(VISITED.dtype.element_ty))
            x, y = step_points(table + cell * 6, x, y)
        tl.debug_barrier()
        x, y, cell = load_step(path, visited, STEPS - 1, BLOCK)
        gx = tl.load(GRAD + i * n * 2 + at, mask=r < n, other=0.0)
        gy = tl.load(GRAD + i * n * 2 + at + 1, mask=r < n, other=0.0)
        for s in range(STEPS):
            new = cell != current
            if tl.max(new.to(tl.int32), 0) > 0:
                if tl.max((new & (previous >= 0) & (current >= 0)).to(tl.int32), 0) > 0:
                    acc = add_to_cells(acc, previous, a1, b1, c1, d1, e1, f1, CELLS, BLOCK)
                    previous = tl.full((BLOCK,), -1, tl.int32)
                a1, b1, c1, d1, e1, f1 = select_sums(new, a, b, c, d, e, f, a1, b1, c1, d1, e1, f1)
                a, b, c, d, e, f = select_sums(new, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, a, b, c, d, e, f)
                previous = tl.where(new, current, previous)
            current = cell
            a, b, c = tl.fma(gx, x, a), tl.fma(gx, y, b), c + gx
            d, e, f = tl.fma(gy, x, d), tl.fma(gy, y, e), f + gy
            gx, gy = backpropagate_step(table + cell * 6, gx, gy)
            x, y, cell = load_step(path, visited, tl.maximum(STEPS - 2 - s, 0), BLOCK)
        tl.store(GRAD_POINTS + i * n * 2 + at, gx, mask=r < n)
        tl.store(GRAD_POINTS + i * n * 2 + at + 1, gy, mask=r < n)
        tl.debug_barrier()
    acc = add_to_cells(acc, previous, a1, b1, c1, d1, e1, f1, CELLS, BLOCK)
    acc = add_to_cells(acc, current, a, b, c, d, e, f, CELLS, BLOCK)
    to = GRAD_TABLE + program * (8 * CELLS) + tl.arange(0, CELLS)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(to, acc)


@opaque
def forward(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "b1 n 2"], steps: int
) -> Float[Tensor, "b n 2"]:
    """Return the points after all steps, as `cpab.Flow` does."""
    b, n = len(table), points.shape[1]
    out = torch.empty(b, n, 2, dtype=table.dtype, device=table.device)
    arguments = (table.contiguous(), points.contiguous(), out, n, 2 * n if len(points) > 1 else 0)
    _forward_kernel[(b, block_count(n, FORWARD_OPTIONS["BLOCK"]))](*arguments, t.nx, t.ny, steps, **FORWARD_OPTIONS)
    return out


@opaque
def backward(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "b1 n 2"], steps: int,
    grad: Float[Tensor, "b n 2"],
) -> tuple[Float[Tensor, "b cells 2 3"], Float[Tensor, "b n 2"]]:  # fmt: skip
    """Return the gradients for the table and for the points, as `cpab.FlowGradient` does."""
    b, n, cells = len(table), points.shape[1], max(16, next_power_of_two(t.n_cells))
    rounds = block_count(block_count(n, BLOCK), block_count(PROGRAMS, b))
    programs = block_count(block_count(n, BLOCK), rounds)
    path = torch.empty(b * programs * 2 * BLOCK * steps, dtype=table.dtype, device=table.device)
    cell_dtype = torch.uint8 if cells <= 256 else torch.int16
    visited = torch.empty(b * programs * BLOCK * steps, dtype=cell_dtype, device=table.device)
    grad_table = torch.empty(b, programs, cells, 8, dtype=table.dtype, device=table.device)
    grad_points = torch.empty(b, n, 2, dtype=table.dtype, device=table.device)
    arguments = (table.contiguous(), points.contiguous(), grad.contiguous(), path, visited, grad_table, grad_points)
    sizes = (n, 2 * n if len(points) > 1 else 0, t.nx, t.ny, cells, steps, rounds, BLOCK)
    _backward_kernel[(b, programs)](*arguments, *sizes, num_warps=1, **COMPILER_OPTIONS)
    return grad_table.sum(1)[:, : t.n_cells, :6].reshape(table.shape), grad_points
