"""The end of a training step in few launches: sums of gradients, and which runs have finite losses and gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.jit import block_count, kernel, next_power_of_two
from unbraid.accel.kernels.tuned import launch_settings


@kernel
def _block_sums(
    X: tl.tensor, PART: tl.tensor, P: tl.tensor, parts: tl.tensor, first: tl.tensor, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(X + n * P + r, mask=r < P, other=0.0).to(tl.float32), 0)
    tl.store(PART + n * parts + first + tl.program_id(0), total)


def block_sums(tensors: Sequence[Tensor]) -> Tensor:
    """Cut each row of tensors (r, p) into blocks of columns, and return the sum of each block, (r, parts).

    Row i belongs to run i. The blocks of all tensors are concatenated. The tensors may have different p. They must be
    contiguous.
    """
    runs = len(tensors[0])
    tuned = launch_settings("block sums", 0, 0, torch.float32, runs)
    counts = [block_count(x.shape[1], tuned["BLOCK"]) for x in tensors]
    out = torch.empty(runs, sum(counts), device=tensors[0].device)
    for i, x in enumerate(tensors):
        _block_sums[(counts[i], runs)](x, out, x.shape[1], out.shape[1], sum(counts[:i]), **tuned)
    return out


@kernel
def _is_finite(x: tl.tensor) -> tl.tensor:
    """Return whether numbers are neither infinite nor NaN."""
    return (x == x) & (tl.abs(x) != float("inf"))


@kernel
def _record(
    VALUES: tl.tensor, PART: tl.tensor, LAST: tl.tensor, TOTAL: tl.tensor, ALIVE: tl.tensor, DIVERGED: tl.tensor,
    STEP: tl.tensor, terms: tl.tensor, parts: tl.tensor, stride_run: tl.tensor, stride_term: tl.tensor,
    BT: tl.constexpr, BP: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(0)
    t = tl.arange(0, BT)
    r = tl.arange(0, BP)
    alive = tl.load(ALIVE + n) != 0
    values = tl.load(VALUES + n * stride_run + t * stride_term, mask=t < terms, other=0.0)
    total = tl.sum(tl.load(PART + n * parts + r, mask=r < parts, other=0.0), 0)
    finite = (tl.min(_is_finite(values).to(tl.int32), 0) != 0) & _is_finite(total)
    at = n * terms + t
    last = tl.where(alive, values, tl.load(LAST + at, mask=t < terms, other=0.0))
    tl.store(LAST + at, last, mask=t < terms)
    tl.store(TOTAL + at, tl.load(TOTAL + at, mask=t < terms, other=0.0) + last, mask=t < terms)
    tl.store(DIVERGED + n, tl.load(STEP), mask=alive & (finite == 0))
    tl.store(ALIVE + n, (alive & finite).to(ALIVE.dtype.element_ty))


def record(
    values: Tensor, sums: Tensor, last: Tensor, total: Tensor, alive: Tensor, diverged_at: Tensor, step: Tensor
) -> None:
    """Add the loss terms of a step to `total`, from which the log is written, and record which runs are still finite.

    Args:
        values: The terms of each run, (r, terms).
        sums: Partial sums of the gradient of each run, (r, parts). A run is finite if the sum of its parts and
            all its terms are finite.
        last: Receives the terms of the runs that were finite before this step, (r, terms).
        total: The sums of `last` over steps, (r, terms). They are updated in place.
        alive: Whether each run is finite, (r,). It is updated in place.
        diverged_at: Receives the step for the runs that become non-finite in this step, (r,).
        step: The number of steps so far, as a tensor on the device.
    """
    runs, terms = values.shape
    parts = sums.shape[1]
    sizes = {"BT": next_power_of_two(max(2, terms)), "BP": next_power_of_two(max(2, parts)), "num_warps": 4}
    _record[(runs,)](
        values, sums, last, total, alive, diverged_at, step, terms, parts, *values.stride(), **sizes
    )  # fmt: skip
