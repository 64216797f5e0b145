"""Adding the partial sums that other kernels wrote, for many gradients in one launch.

The order of additions is fixed, so results are reproducible bit for bit.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.jit import block_count, kernel, kernel_for_any_sizes

JOBS = 8  # the number of sums in one launch
FEW_PARTS = 16
TILES = {True: (FEW_PARTS, 128), False: (64, 32)}  # (parts, columns) of a tile, by whether a sum has few parts


@kernel
def _sum_columns(
    S: tl.tensor, OUT: tl.tensor, P: tl.tensor, parts: tl.tensor, size: tl.tensor, block: tl.tensor, n: tl.tensor,
    LOOPS: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
) -> None:  # fmt: skip
    """Write the sums over parts of one block of columns of run n."""
    c = block * BC + tl.arange(0, BC)
    acc = tl.zeros((BP, BC), tl.float32)
    for i in range(LOOPS):
        p = i * BP + tl.arange(0, BP)
        at = S + (n * parts + p[:, None]) * size + c[None, :]
        acc += tl.load(at, mask=(p < parts)[:, None] & (c < size)[None, :], other=0.0)
    tl.store(OUT + n * P + c, tl.sum(acc, 0), mask=c < size)


@kernel_for_any_sizes
def _part_sums(
    S0: tl.tensor, S1: tl.tensor, S2: tl.tensor, S3: tl.tensor, S4: tl.tensor, S5: tl.tensor, S6: tl.tensor,
    S7: tl.tensor, O0: tl.tensor, O1: tl.tensor, O2: tl.tensor, O3: tl.tensor, O4: tl.tensor, O5: tl.tensor,
    O6: tl.tensor, O7: tl.tensor, p0: tl.tensor, p1: tl.tensor, p2: tl.tensor, p3: tl.tensor, p4: tl.tensor,
    p5: tl.tensor, p6: tl.tensor, p7: tl.tensor, s0: tl.tensor, s1: tl.tensor, s2: tl.tensor, s3: tl.tensor,
    s4: tl.tensor, s5: tl.tensor, s6: tl.tensor, s7: tl.tensor, e0: tl.tensor, e1: tl.tensor, e2: tl.tensor,
    e3: tl.tensor, e4: tl.tensor, e5: tl.tensor, e6: tl.tensor, P: tl.tensor, LOOPS: tl.constexpr, BP: tl.constexpr,
    BC: tl.constexpr,
) -> None:  # fmt: skip
    """Compute up to 8 sums over parts. Sum i reads p(i) parts of s(i) columns from Si, and writes its result to Oi.

    Programs e(i - 1) to e(i) - 1 compute sum i. The first sum begins at program 0.
    """
    n = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0)
    if block < e0:
        _sum_columns(S0, O0, P, p0, s0, block, n, LOOPS, BP, BC)
    elif block < e1:
        _sum_columns(S1, O1, P, p1, s1, block - e0, n, LOOPS, BP, BC)
    elif block < e2:
        _sum_columns(S2, O2, P, p2, s2, block - e1, n, LOOPS, BP, BC)
    elif block < e3:
        _sum_columns(S3, O3, P, p3, s3, block - e2, n, LOOPS, BP, BC)
    elif block < e4:
        _sum_columns(S4, O4, P, p4, s4, block - e3, n, LOOPS, BP, BC)
    elif block < e5:
        _sum_columns(S5, O5, P, p5, s5, block - e4, n, LOOPS, BP, BC)
    elif block < e6:
        _sum_columns(S6, O6, P, p6, s6, block - e5, n, LOOPS, BP, BC)
    else:
        _sum_columns(S7, O7, P, p7, s7, block - e6, n, LOOPS, BP, BC)


def add_parts(parts: Tensor, out: Tensor, sums: PartSums | None) -> None:
    """Write the sum of parts (r, parts, size) into `out`: now if `sums` is None, and otherwise in `sums.run()`."""
    if sums is None:
        torch.sum(parts, 1, out=out)
    else:
        sums.add(parts, out)


class PartSums:
    """Collects partial sums (r, parts, size) and writes their sums over parts into rows (r, size)."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Tensor, Tensor]] = []

    def add(self, parts: Tensor, out: Tensor) -> None:
        """Register partial sums, which must be contiguous, and the tensor that receives their sum over parts.

        All tensors that receive sums must have the same stride between rows.
        """
        self.jobs.append((parts, out))

    def run(self) -> None:
        """Compute all sums. The tensors must stay alive until the launches have run."""
        for few in TILES:
            jobs = [(parts, out) for parts, out in self.jobs if (parts.shape[1] <= FEW_PARTS) == few]
            for i in range(0, len(jobs), JOBS):
                _launch(jobs[i : i + JOBS], *TILES[few])


def _launch(jobs: list[tuple[Tensor, Tensor]], rows: int, columns: int) -> None:
    """Compute at most JOBS sums in one launch."""
    ends, stop = [], 0
    for _, out in jobs:
        stop += block_count(out.shape[1], columns)
        ends.append(stop)
    padded = jobs + [jobs[-1]] * (JOBS - len(jobs))
    ends += [stop] * (JOBS - len(jobs))
    sources, places = [parts for parts, _ in padded], [out for _, out in padded]
    counts, sizes = [parts.shape[1] for parts in sources], [out.shape[1] for out in places]
    stride, runs = places[0].stride(0), len(places[0])
    tile = {"LOOPS": block_count(max(counts), rows), "BP": rows, "BC": columns, "num_warps": 4}
    _part_sums[(stop, runs)](*sources, *places, *counts, *sizes, *ends[:-1], stride, **tile)
