"""2x2 stride-2 convolutions between plain images, and their gradients.

A block of 2x2 input pixels with C channels has 4C values. Their product with the weight matrix (4C, M) gives the M
channels of one output pixel. `unbraid.accel.kernels` explains the names.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.jit import block_count, kernel
from unbraid.accel.kernels.part_sums import PartSums, add_parts
from unbraid.accel.kernels.tuned import launch_settings
from unbraid.accel.precision import product_precision


@kernel
def block_offsets(m: tl.tensor, k: tl.tensor, h: tl.constexpr, C: tl.constexpr) -> tl.tensor:
    """Return where the values of 2x2 blocks lie in plain images of side 2h, as offsets.

    m numbers the blocks (b, i, j), and k numbers the values (py, px, c) in a block. (py, px) is the position of a pixel
    in its block.
    """
    corner = ((m // h) * (4 * h) + (m % h) * 2) * C
    return corner[:, None] + ((k // (2 * C)) * (2 * h * C) + k % (2 * C))[None, :]


@kernel
def _conv2x2(
    X: tl.tensor, W: tl.tensor, BIAS: tl.tensor, Y: tl.tensor, P: tl.tensor, B: tl.tensor, h: tl.constexpr,
    C: tl.constexpr, M: tl.constexpr, BM: tl.constexpr, IP: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    live = (m < B * h * h)[:, None]
    o = tl.arange(0, M)
    k = tl.arange(0, 4 * C)
    a = tl.load(X + n * B * (4 * h * h * C) + block_offsets(m, k, h, C), mask=live, other=0.0)
    acc = tl.dot(a, tl.load(W + n * P + k[:, None] * M + o[None, :]), input_precision=IP)
    acc += tl.load(BIAS + n * P + o).to(tl.float32)[None, :]
    acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    to = Y + n * B * (h * h * M) + m[:, None] * M + o[None, :]
    tl.store(to, acc.to(Y.dtype.element_ty), mask=live)


def conv2x2(x: Tensor, weight: Tensor, bias: Tensor, h: int, C: int, M: int) -> Tensor:
    """Compute a convolution with a ReLU, from plain images of side 2h to plain images of side h."""
    runs, batch = x.shape[:2]
    tuned = launch_settings("conv2x2", C, M, x.dtype, runs)
    y = x.new_empty(runs, batch, h, h, M)
    grid = (block_count(batch * h * h, tuned["BM"]), runs)
    precision = product_precision(x.dtype)
    _conv2x2[grid](x, weight, bias, y, weight.stride(0), batch, h=h, C=C, M=M, IP=precision, **tuned)
    return y


@kernel
def _conv2x2_input_gradient(
    G: tl.tensor, W: tl.tensor, ACT: tl.tensor, Y: tl.tensor, PART: tl.tensor, P: tl.tensor, B: tl.tensor,
    h: tl.constexpr, C: tl.constexpr, M: tl.constexpr, BM: tl.constexpr, IP: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    live = (m < B * h * h)[:, None]
    o = tl.arange(0, M)
    k = tl.arange(0, 4 * C)
    g = tl.load(G + n * B * (h * h * M) + m[:, None] * M + o[None, :], mask=live, other=0.0)
    at = n * B * (4 * h * h * C) + block_offsets(m, k, h, C)
    act = tl.load(ACT + at, mask=live, other=0.0)
    acc = tl.dot(g, tl.trans(tl.load(W + n * P + k[:, None] * M + o[None, :])), input_precision=IP)
    acc = tl.where(act > 0, acc, 0.0)
    tl.store(Y + at, acc.to(Y.dtype.element_ty), mask=live)
    tl.store(PART + (n * tl.num_programs(0) + tl.program_id(0)) * (4 * C) + k, tl.sum(acc, 0))


def conv2x2_input_gradient(g: Tensor, weight: Tensor, act: Tensor, h: int, C: int, M: int) -> tuple[Tensor, Tensor]:
    """Compute the gradient with respect to the input of the ReLU before the layer.

    Args:
        g: The gradient with respect to the output of the layer, plain images of side h.
        weight: The weights of each run.
        act: The input of the layer, which is the output of a ReLU.
        h: The side of the small images.
        C: The channels of the large images.
        M: The channels of the small images.

    Returns:
        The gradient, which is zero where `act` is zero, and its partial sums over pixels, (r, parts, C).
    """
    runs, batch = g.shape[:2]
    tuned = launch_settings("conv2x2 input gradient", C, M, g.dtype, runs)
    programs = block_count(batch * h * h, tuned["BM"])
    y = torch.empty_like(act)
    part = torch.empty(runs, programs, 4, C, device=g.device)
    _conv2x2_input_gradient[(programs, runs)](
        g, weight, act, y, part, weight.stride(0), batch, h=h, C=C, M=M, IP=product_precision(g.dtype), **tuned
    )
    return y, part.flatten(1, 2)


@kernel
def _conv2x2_weight_gradient(
    X: tl.tensor, G: tl.tensor, OUT: tl.tensor, stride_n: tl.tensor, stride_s: tl.tensor, B: tl.constexpr,
    h: tl.constexpr, C: tl.constexpr, M: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, BK: tl.constexpr,
    SPLIT: tl.constexpr, ST: tl.constexpr, IP: tl.constexpr,
) -> None:  # fmt: skip
    """Compute dW[4C, M] = sum over blocks p of X[p]^T G[p].

    X are the blocks of the input, and G are the output gradients. The sum over blocks is divided into
    SPLIT partial sums. Each program computes one tile (TM, TN) of one partial sum.
    """
    n = tl.program_id(1).to(tl.int64)
    nm: tl.constexpr = 4 * C // TM
    nn: tl.constexpr = M // TN
    t = tl.program_id(0) % (nm * nn)
    s = tl.program_id(0) // (nm * nn)
    k = (t % nm) * TM + tl.arange(0, TM)
    o = (t // nm) * TN + tl.arange(0, TN)
    per: tl.constexpr = (B * h * h + BK * SPLIT - 1) // (BK * SPLIT)
    X += n * B * (4 * h * h * C)
    G += n * B * (h * h * M)
    acc = tl.zeros((TM, TN), tl.float32)
    for u in tl.range(0, per, num_stages=ST):
        m = (s * per + u) * BK + tl.arange(0, BK)
        live = (m < B * h * h)[:, None]
        a = tl.load(X + block_offsets(m, k, h, C), mask=live, other=0.0)
        e = tl.load(G + m[:, None] * M + o[None, :], mask=live, other=0.0)
        acc = tl.dot(tl.trans(a), e, acc, input_precision=IP)
    tl.store(OUT + n * stride_n + s * stride_s + k[:, None] * M + o[None, :], acc)


def conv2x2_weight_gradient(
    x: Tensor, g: Tensor, out: Tensor, h: int, C: int, M: int, sums: PartSums | None = None
) -> None:
    """Write the weight gradient into `out`, (r, 4 C M). The rows of `out` may have any stride.

    If `sums` is given, partial sums may be handed to it. `out` is then complete only after `sums.run()`.
    """
    runs, batch = x.shape[:2]
    tuned = launch_settings("conv2x2 weight gradient", C, M, x.dtype, runs)
    tiles, split = (4 * C // tuned["TM"]) * (M // tuned["TN"]), tuned["SPLIT"]
    part = out if split == 1 else torch.empty(runs, split, 4 * C * M, device=x.device)
    split_stride = part.stride(1) if split > 1 else 0
    _conv2x2_weight_gradient[(tiles * split, runs)](
        x, g, part, part.stride(0), split_stride, B=batch, h=h, C=C, M=M, IP=product_precision(x.dtype), **tuned
    )
    if split > 1:
        add_parts(part, out, sums)
