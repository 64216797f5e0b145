"""Dense layers of all runs of a stack, and their gradients, each in one launch with bias and activation.

A layer computes y = f(x W + b) with x (B, K), W (K, N) and a leaky ReLU f, whose negative slope is 0 for a ReLU and 1
for no activation. K and N are padded sizes. `KX` is the number of columns that x really has, and `NG` is the number of
columns that the gradient with respect to x W + b really has. The other columns are treated as zero. `NY` is the number
of columns of y that are stored, and `HALF` is True if products are in bfloat16.
`unbraid.accel.kernels` explains the other names.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.jit import block_count, kernel, next_power_of_two
from unbraid.accel.kernels.tuned import launch_settings
from unbraid.accel.precision import product_precision

MIN_TILE = 16  # the smallest side of a tile in a matrix product


@kernel
def _dense(
    X: tl.tensor, W: tl.tensor, BIAS: tl.tensor, Y: tl.tensor, P: tl.tensor, slope: tl.tensor, B: tl.constexpr,
    K: tl.constexpr, N: tl.constexpr, KX: tl.constexpr, NY: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, ST: tl.constexpr, IP: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    across: tl.constexpr = (N + BN - 1) // BN
    m = tl.program_id(0) // across * BM + tl.arange(0, BM)
    c = tl.program_id(0) % across * BN + tl.arange(0, BN)
    X += n * B * KX
    W += n * P
    acc = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK, num_stages=ST):
        k = start + tl.arange(0, BK)
        x = tl.load(X + m[:, None] * KX + k[None, :], mask=(m < B)[:, None] & (k < KX)[None, :], other=0.0)
        w = tl.load(W + k[:, None] * N + c[None, :], mask=(k < K)[:, None] & (c < N)[None, :], other=0.0)
        acc = tl.dot(x.to(w.dtype), w, acc, input_precision=IP)
    acc += tl.load(BIAS + n * P + c, mask=c < N, other=0.0).to(tl.float32)[None, :]
    acc = tl.where(acc <= 0, acc * slope, acc)
    to = Y + (n * B + m[:, None]) * NY + c[None, :]
    tl.store(to, acc.to(Y.dtype.element_ty), mask=(m < B)[:, None] & (c < NY)[None, :])


def dense(
    x: Tensor, weight: Tensor, bias: Tensor, shape: tuple[int, int], slope: float, outputs: int | None = None
) -> Tensor:
    """Compute a dense layer with its activation.

    Args:
        x: The inputs (r, b, k), of any float dtype, with k at most the first number of `shape`.
        weight: The weights of each run, (r, K N). The rows may have any stride.
        bias: The bias of each run, (r, N), with the stride of `weight`.
        shape: The padded shape (K, N) of the weights.
        slope: The negative slope of the activation.
        outputs: If given, only the first `outputs` columns are returned, as float32.

    Returns:
        The outputs (r, b, N), or (r, b, outputs) in float32.
    """
    runs, batch, inputs = x.shape
    K, N = shape
    tuned = fit_tiles(launch_settings("dense", K, N, weight.dtype, runs), BM=batch, BN=N, BK=K)
    width, dtype = (N, weight.dtype) if outputs is None else (outputs, torch.float32)
    y = torch.empty(runs, batch, width, device=x.device, dtype=dtype)
    grid = (block_count(batch, tuned["BM"]) * block_count(N, tuned["BN"]), runs)
    sizes = {"B": batch, "K": K, "N": N, "KX": inputs, "NY": width, "IP": product_precision(weight.dtype)}
    _dense[grid](x.contiguous(), weight, bias, y, weight.stride(0), float(slope), **sizes, **tuned)
    return y


@kernel
def _dense_input_gradient(
    G: tl.tensor, W: tl.tensor, ACT: tl.tensor, Y: tl.tensor, PART: tl.tensor, P: tl.tensor, slope: tl.tensor,
    B: tl.constexpr, K: tl.constexpr, N: tl.constexpr, KX: tl.constexpr, NG: tl.constexpr, MASKED: tl.constexpr,
    SUMMED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ST: tl.constexpr, IP: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    across: tl.constexpr = (KX + BN - 1) // BN
    m = tl.program_id(0) // across * BM + tl.arange(0, BM)
    k = tl.program_id(0) % across * BN + tl.arange(0, BN)
    G += n * B * NG
    W += n * P
    live = (m < B)[:, None] & (k < KX)[None, :]
    at = (n * B + m[:, None]) * KX + k[None, :]
    if MASKED:
        act = tl.load(ACT + at, mask=live, other=0.0)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, N, BK, num_stages=ST):
        c = start + tl.arange(0, BK)
        g = tl.load(G + m[:, None] * NG + c[None, :], mask=(m < B)[:, None] & (c < NG)[None, :], other=0.0)
        w = tl.load(W + k[:, None] * N + c[None, :], mask=(k < K)[:, None] & (c < N)[None, :], other=0.0)
        acc = tl.dot(g.to(w.dtype), tl.trans(w), acc, input_precision=IP)
    if MASKED:
        acc = tl.where(act <= 0, acc * slope, acc)
    tl.store(Y + at, acc.to(Y.dtype.element_ty), mask=live)
    if SUMMED:
        total = tl.sum(tl.where(live, acc, 0.0), 0)
        part = n * (tl.num_programs(0) // across) + tl.program_id(0) // across
        tl.store(PART + part * KX + k, total, mask=k < KX)


def dense_input_gradient(
    g: Tensor, weight: Tensor, shape: tuple[int, int], x: Tensor, slope: float, dtype: torch.dtype, summed: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute the gradient with respect to the input of the activation before a dense layer.

    Args:
        g: The gradient with respect to x W + b, (r, b, n), of any float dtype, with n at most the second number of
            `shape`.
        weight: The weights of each run, (r, K N).
        shape: The padded shape (K, N) of the weights.
        x: The input of the layer (r, b, k), which is the output of the activation before the layer.
        slope: The negative slope of that activation, or 1 if there is none.
        dtype: The dtype of the result.
        summed: Whether to compute sums over the batch.

    Returns:
        The gradient, of the shape of `x`, and its partial sums over the batch, (r, parts, k). If not `summed`, the
        second value has no meaning.
    """
    runs, batch, inputs = x.shape
    K, N = shape
    tuned = launch_settings("dense input gradient", K, N, weight.dtype, runs)
    tuned = fit_tiles(tuned, BM=batch, BN=inputs, BK=N)
    y = torch.empty(x.shape, device=x.device, dtype=dtype)
    parts = block_count(batch, tuned["BM"])
    part = torch.empty(runs, parts, inputs, device=x.device) if summed else y
    sizes = {
        "B": batch, "K": K, "N": N, "KX": inputs, "NG": g.shape[-1], "MASKED": slope != 1, "SUMMED": summed,
        "IP": product_precision(weight.dtype),
    }  # fmt: skip
    _dense_input_gradient[parts * block_count(inputs, tuned["BN"]), runs](
        g.contiguous(), weight, x.contiguous(), y, part, weight.stride(0), float(slope), **sizes, **tuned
    )
    return y, part


@kernel
def weight_gradient_tile(
    X: tl.tensor, G: tl.tensor, k: tl.tensor, c: tl.tensor, B: tl.constexpr, KX: tl.constexpr, NG: tl.constexpr,
    HALF: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, BK: tl.constexpr, IP: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Return rows k and columns c of a weight gradient, (TM, TN), and columns c of the bias gradient, (TN,)."""
    acc = tl.zeros((TM, TN), tl.float32)
    total = tl.zeros((TN,), tl.float32)
    for start in range(0, B, BK):
        m = start + tl.arange(0, BK)
        x = tl.load(X + m[:, None] * KX + k[None, :], mask=(m < B)[:, None] & (k < KX)[None, :], other=0.0)
        g = tl.load(G + m[:, None] * NG + c[None, :], mask=(m < B)[:, None] & (c < NG)[None, :], other=0.0)
        if HALF:
            x = x.to(tl.bfloat16)
            g = g.to(tl.bfloat16)
        acc = tl.dot(tl.trans(x), g, acc, input_precision=IP)
        total += tl.sum(g.to(tl.float32), 0)
    return acc, total


@kernel
def _dense_weight_gradient(
    X: tl.tensor, G: tl.tensor, OUT: tl.tensor, BIAS: tl.tensor, P: tl.tensor, B: tl.constexpr, K: tl.constexpr,
    N: tl.constexpr, KX: tl.constexpr, NG: tl.constexpr, HALF: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr,
    BK: tl.constexpr, IP: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    across: tl.constexpr = (N + TN - 1) // TN
    k = tl.program_id(0) // across * TM + tl.arange(0, TM)
    c = tl.program_id(0) % across * TN + tl.arange(0, TN)
    acc, total = weight_gradient_tile(X + n * B * KX, G + n * B * NG, k, c, B, KX, NG, HALF, TM, TN, BK, IP)
    tl.store(OUT + n * P + k[:, None] * N + c[None, :], acc, mask=(k < K)[:, None] & (c < N)[None, :])
    if tl.program_id(0) < across:
        tl.store(BIAS + n * P + c, total, mask=c < N)


def dense_weight_gradient(x: Tensor, g: Tensor, out: Tensor, bias: Tensor, shape: tuple[int, int], half: bool) -> None:
    """Write the gradients with respect to the weights and the bias of a dense layer.

    Args:
        x: The input of the layer, (r, b, k).
        g: The gradient with respect to x W + b, (r, b, n).
        out: Receives the gradient with respect to the padded weights, (r, K N). The rows may have any stride.
        bias: Receives the gradient with respect to the padded bias, (r, N), with the stride of `out`.
        shape: The padded shape (K, N) of the weights.
        half: Whether to multiply in bfloat16.
    """
    runs, batch, inputs = x.shape
    K, N = shape
    dtype = torch.bfloat16 if half else torch.float32
    tuned = launch_settings("dense weight gradient", K, N, dtype, runs)
    tuned = fit_tiles(tuned, TM=K, TN=N, BK=batch)
    grid = (block_count(K, tuned["TM"]) * block_count(N, tuned["TN"]), runs)
    sizes = {"B": batch, "K": K, "N": N, "KX": inputs, "NG": g.shape[-1], "HALF": half, "IP": product_precision(dtype)}
    _dense_weight_gradient[grid](x.contiguous(), g.contiguous(), out, bias, out.stride(0), **sizes, **tuned)


def tile_of(largest: int, size: int) -> int:
    """Return the side of a tile for `size` elements: the next power of two, but from MIN_TILE to `largest`."""
    return min(largest, max(MIN_TILE, next_power_of_two(size)))


def fit_tiles(tuned: dict[str, int], **sizes: int) -> dict[str, int]:
    """Return the launch settings with smaller tiles where a tile is longer than needed for its size (see `tile_of`)."""
    return {**tuned, **{side: tile_of(tuned[side], size) for side, size in sizes.items()}}
