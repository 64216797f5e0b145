"""Flows of piecewise-affine fields on the CPU, compiled by numba: all steps of a block of points at a time.

Import this module only when a flow is integrated. The arithmetic of a step is that of `cpab_steps.advance_points`,
operation by operation, so positions are bitwise identical.
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
SUMS = 4  # separate running sums per triangle, used in turn: with one, each point would wait for the previous addition
BLOCK = 128  # points whose positions at all steps fit in the cache
WORK_PER_THREAD = 200_000  # steps of points that are worth a thread: about a millisecond


def forward(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "b1 n 2"], steps: int
) -> Float[Tensor, "b n 2"]:
    """Return the points after all steps, as `cpab.Flow` does."""
    b, n = len(table), points.shape[1]
    out = torch.empty(b, n, 2, dtype=table.dtype)
    _run_in_threads(integrate_images, b, b * n * steps, *_arrays(t, table, points), steps, out.numpy())
    return out


def backward(
    t: Tessellation, table: Float[Tensor, "b cells 2 3"], points: Float[Tensor, "b1 n 2"], steps: int,
    grad: Float[Tensor, "b n 2"],
) -> tuple[Float[Tensor, "b cells 2 3"], Float[Tensor, "b n 2"]]:  # fmt: skip
    """Return the gradients for the table and for the points of each image, as `cpab.FlowGradient` does."""
    total, back = torch.empty(table.shape, dtype=table.dtype), torch.empty(grad.shape, dtype=table.dtype)
    incoming = grad.detach().to(table.dtype).contiguous().numpy()
    out = total.flatten(2).numpy(), back.numpy()
    _run_in_threads(
        backpropagate_images, len(table), grad.numel() * steps, *_arrays(t, table, points), steps, incoming, *out
    )
    return total, back


def _arrays(t: Tessellation, table: Tensor, points: Tensor) -> tuple[Array, Array, Any, Any]:
    """Return the arrays that the loops read, and the numbers of rectangles in the floating-point type of the table."""
    rows: Array = table.detach().flatten(2).contiguous().numpy()
    starts: Array = points.detach().to(table.dtype).contiguous().numpy()
    return rows, starts, rows.dtype.type(t.nx), rows.dtype.type(t.ny)


@functools.cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return the threads of this process. A forked process does not inherit them, so it creates its own."""
    return ThreadPoolExecutor(threads, "flow")


def _run_in_threads(work: Callable[..., None], images: int, size: int, *arguments: Any) -> None:
    """Distribute the images over threads, as many as torch uses, if each has enough of the work `size` to do.

    Compiled code runs without the GIL. Numba's own threads are not used, because they cannot be entered from two of
    our threads at once.
    """
    threads = min(torch.get_num_threads(), images, 1 + size // WORK_PER_THREAD)
    if threads < 2:
        work(0, images, *arguments)
        return
    cuts = [images * i // threads for i in range(threads + 1)]
    for _ in _pool(threads, os.getpid()).map(lambda i: work(cuts[i], cuts[i + 1], *arguments), range(threads)):
        pass


@kernel()
def locate_cells(x: Array, y: Array, cell: Array, nx: Any, ny: Any) -> None:
    """Write the triangles of points to `cell`, numbered as in `tessellation.find_cells`. NaN gets the first one."""
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
    """Advance points by one step, given their triangles."""
    for j in range(len(x)):
        part, px, py = table[np.uint32(cell[j])], x[j], y[j]
        to_x[j] = px + (part[0] * px + part[1] * py + part[2])
        to_y[j] = py + (part[3] * px + part[4] * py + part[5])


@kernel()
def integrate_images(
    first: int, end: int, table: Array, points: Array, nx: Any, ny: Any, steps: int, out: Array
) -> None:
    """Write the final points of images `first` to `end` to `out` (b, n, 2)."""
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
    first: int, end: int, table: Array, points: Array, nx: Any, ny: Any, steps: int, grad: Array, total: Array,
    back: Array,
) -> None:  # fmt: skip
    """Write the gradients of images `first` to `end` for the table (b, cells, 6) and for the points (b, n, 2)."""
    n = points.shape[1]
    x, y = np.empty((steps + 1, BLOCK), table.dtype), np.empty((steps + 1, BLOCK), table.dtype)
    cell, sums = np.empty((steps, BLOCK), np.int32), np.empty((SUMS, table.shape[1], 6), table.dtype)
    gx, gy = np.empty(BLOCK, table.dtype), np.empty(BLOCK, table.dtype)
    for i in range(first, end):
        start = points[min(i, len(points) - 1)]
        total[i] = 0
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
            add_sums(sums, total[i])
            for j in range(m):
                back[i, low + j, 0], back[i, low + j, 1] = gx[j], gy[j]


@kernel()
def add_sums(sums: Array, total: Array) -> None:
    """Add the running sums to the total."""
    for k in range(SUMS):
        for c in range(len(total)):
            for e in range(6):
                total[c, e] += sums[k, c, e]


@kernel()
def backpropagate_step(table: Array, cell: Array, x: Array, y: Array, gx: Array, gy: Array, sums: Array) -> None:
    """Propagate the gradients of points back over one step, in place, and add the gradient of the step's matrices."""
    for j in range(len(x)):
        c, px, py, qx, qy = np.uint32(cell[j]), x[j], y[j], gx[j], gy[j]
        gx[j] = qx + table[c, 0] * qx + table[c, 3] * qy
        gy[j] = qy + table[c, 1] * qx + table[c, 4] * qy
        k = np.uint32(j) & np.uint32(SUMS - 1)
        sums[k, c, 0] += qx * px
        sums[k, c, 1] += qx * py
        sums[k, c, 2] += qx
        sums[k, c, 3] += qy * px
        sums[k, c, 4] += qy * py
        sums[k, c, 5] += qy
