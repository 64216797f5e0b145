"""Flows of piecewise-affine fields on the CPU, compiled by numba.

Points are processed in blocks, and all steps of one block run before the next block starts. Import this module only
when a flow is integrated, because it loads numba. A step performs the same operations in the same order as
`cpab_steps.advance_points`, so positions are bitwise identical. The functions below call each of the b fields of a
batch an image, because each field warps one image.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.runtime.jit import kernel
from unbraid.spaces.tessellation import Tessellation

Array = np.ndarray[Any, np.dtype[Any]]
# Number of running sums per triangle, used in turn. With a single sum, each addition would wait for the previous one.
N_SUMS = 4
BLOCK = 128  # points per block, few enough that their positions at all steps fit in the cache
WORK_PER_THREAD = 200_000  # number of points times steps per additional thread, about one millisecond of work


def forward(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "b1 n 2"], steps: int
) -> Float[Tensor, "b n 2"]:
    """Return the points after all steps, as `cpab.Flow` does."""
    b, n = len(table), points.shape[1]
    out = torch.empty(b, n, 2, dtype=table.dtype)
    _run_in_threads(integrate_images, b, b * n * steps, *_kernel_arrays(t, table, points), steps, out.numpy())
    return out


def backward(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "b1 n 2"], steps: int,
    grad: Float[Tensor, "b n 2"],
) -> tuple[Float[Tensor, "b cells 2 3"], Float[Tensor, "b n 2"]]:  # fmt: skip
    """Return the gradients for the table and for the points, as `cpab.FlowGradient` does."""
    grad_table, grad_points = torch.empty(table.shape, dtype=table.dtype), torch.empty(grad.shape, dtype=table.dtype)
    incoming = grad.detach().to(table.dtype).contiguous().numpy()
    out = grad_table.flatten(2).numpy(), grad_points.numpy()
    _run_in_threads(
        backpropagate_images, len(table), grad.numel() * steps, *_kernel_arrays(t, table, points), steps, incoming, *out
    )
    return grad_table, grad_points


def _kernel_arrays(t: Tessellation, table: Tensor, points: Tensor) -> tuple[Array, Array, Any, Any]:
    """Return the table and the points as arrays, and `t.nx` and `t.ny` in the floating-point type of the table."""
    flat_table: Array = table.detach().flatten(2).contiguous().numpy()
    starts: Array = points.detach().to(table.dtype).contiguous().numpy()
    return flat_table, starts, flat_table.dtype.type(t.nx), flat_table.dtype.type(t.ny)


@functools.cache
def _thread_pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return the thread pool of a process.

    The process id is part of the cache key because a forked process does not inherit threads and needs its own pool.
    """
    return ThreadPoolExecutor(threads, "flow")


def _run_in_threads(work: Callable[..., None], images: int, size: int, *arguments: Any) -> None:
    """Divide the images among threads.

    `size` is the amount of work, in units of one step of one point. One more thread is used for each `WORK_PER_THREAD`
    units, but at most one thread per image and at most as many threads as torch uses. The compiled code releases the
    GIL. Numba's own threads are not used, because two Python threads cannot use them at the same time.
    """
    threads = min(torch.get_num_threads(), images, 1 + size // WORK_PER_THREAD)
    if threads < 2:
        work(0, images, *arguments)
        return
    bounds = [images * i // threads for i in range(threads + 1)]
    pool = _thread_pool(threads, os.getpid())
    for _ in pool.map(lambda i: work(bounds[i], bounds[i + 1], *arguments), range(threads)):
        pass


@kernel()
def locate_cells(x: Array, y: Array, cell: Array, nx: Any, ny: Any) -> None:
    """Write the number of the triangle that contains each point to `cell`, as in `tessellation.find_cells`.

    A point whose coordinates are NaN is assigned to the first triangle.
    """
    number = x.dtype.type
    zero, one, two, four = number(0), number(1), number(2), number(4)
    for j in range(len(x)):
        across, down = x[j] * nx, y[j] * ny
        column = across if across > zero else zero
        column = np.floor(column if column < nx - one else nx - one)
        row = down if down > zero else zero
        row = np.floor(row if row < ny - one else ny - one)
        across -= column
        down -= row
        below, beyond = across < down, one - across < down
        odd = one if below != beyond else zero
        cell[j] = np.int32((column + row * nx) * four + (two if below else zero) + odd)


@kernel()
def step_points(table: Array, cell: Array, x: Array, y: Array, to_x: Array, to_y: Array) -> None:
    """Write the points after one step to `to_x` and `to_y`, given the triangles that contain the points."""
    for j in range(len(x)):
        matrix, px, py = table[np.uint32(cell[j])], x[j], y[j]
        to_x[j] = px + (matrix[0] * px + matrix[1] * py + matrix[2])
        to_y[j] = py + (matrix[3] * px + matrix[4] * py + matrix[5])


@kernel()
def integrate_images(
    first: int, end: int, table: Array, points: Array, nx: Any, ny: Any, steps: int, out: Array
) -> None:
    """Write the final points of images `first` to `end` - 1 to `out` (b, n, 2)."""
    n = points.shape[1]
    position, cell = np.empty((2, BLOCK), table.dtype), np.empty(BLOCK, np.int32)
    for i in range(first, end):
        start = points[min(i, len(points) - 1)]
        for low in range(0, n, BLOCK):
            m = min(BLOCK, n - low)
            x, y, c = position[0, :m], position[1, :m], cell[:m]
            for j in range(m):
                x[j], y[j] = start[low + j, 0], start[low + j, 1]
            for _ in range(steps):
                locate_cells(x, y, c, nx, ny)
                step_points(table[i], c, x, y, x, y)
            for j in range(m):
                out[i, low + j, 0], out[i, low + j, 1] = x[j], y[j]


@kernel()
def backpropagate_images(
    first: int, end: int, table: Array, points: Array, nx: Any, ny: Any, steps: int, grad: Array, grad_table: Array,
    grad_points: Array,
) -> None:  # fmt: skip
    """Write the gradients of images `first` to `end` - 1 for the table (b, cells, 6) and for the points (b, n, 2)."""
    n = points.shape[1]
    x, y = np.empty((steps + 1, BLOCK), table.dtype), np.empty((steps + 1, BLOCK), table.dtype)
    cell, sums = np.empty((steps, BLOCK), np.int32), np.empty((N_SUMS, table.shape[1], 6), table.dtype)
    gx, gy = np.empty(BLOCK, table.dtype), np.empty(BLOCK, table.dtype)
    for i in range(first, end):
        start = points[min(i, len(points) - 1)]
        grad_table[i] = 0
        for low in range(0, n, BLOCK):
            m = min(BLOCK, n - low)
            for j in range(m):
                x[0, j], y[0, j] = start[low + j, 0], start[low + j, 1]
                gx[j], gy[j] = grad[i, low + j, 0], grad[i, low + j, 1]
            for s in range(steps):
                locate_cells(x[s, :m], y[s, :m], cell[s], nx, ny)
                step_points(table[i], cell[s], x[s, :m], y[s, :m], x[s + 1], y[s + 1])
            sums[:] = 0
            for s in range(steps - 1, -1, -1):
                backpropagate_step(table[i], cell[s], x[s, :m], y[s], gx, gy, sums)
            add_sums(sums, grad_table[i])
            for j in range(m):
                grad_points[i, low + j, 0], grad_points[i, low + j, 1] = gx[j], gy[j]


@kernel()
def add_sums(sums: Array, total: Array) -> None:
    """Add all running sums of each triangle to its total (cells, 6)."""
    for k in range(N_SUMS):
        for c in range(len(total)):
            for e in range(6):
                total[c, e] += sums[k, c, e]


@kernel()
def backpropagate_step(table: Array, cell: Array, x: Array, y: Array, gx: Array, gy: Array, sums: Array) -> None:
    """Propagate the gradients for the points back through one step, in place, and add those for the table to `sums`."""
    for j in range(len(x)):
        c, px, py, qx, qy = np.uint32(cell[j]), x[j], y[j], gx[j], gy[j]
        gx[j] = qx + table[c, 0] * qx + table[c, 3] * qy
        gy[j] = qy + table[c, 1] * qx + table[c, 4] * qy
        k = np.uint32(j) & np.uint32(N_SUMS - 1)
        sums[k, c, 0] += qx * px
        sums[k, c, 1] += qx * py
        sums[k, c, 2] += qx
        sums[k, c, 3] += qy * px
        sums[k, c, 4] += qy * py
        sums[k, c, 5] += qy
