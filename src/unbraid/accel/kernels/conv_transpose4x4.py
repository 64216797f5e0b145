"""4x4 stride-2 transposed convolutions, which are also the input gradients of convolutions.

Both compute a large, blocked image (see `unbraid.accel.kernels.blocked`) from a small image. Block (i, j) of the large
image is a sum over the four small pixels (i - dy, j - dx) with dy and dx in {0, 1}. Each pixel is multiplied by the
weight matrix (M, 4C) of (dy, dx). The rows of blocks are divided into RS parts. Each program computes some columns of
blocks in one of these parts, row by row from top to bottom. It keeps the weights and the previous row of small pixels
on the chip.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.blocked import empty_blocked, image_offset
from unbraid.accel.kernels.jit import block_count, kernel
from unbraid.accel.kernels.tuned import launch_settings
from unbraid.accel.precision import product_precision


@kernel
def load_small_pixels(
    G: tl.tensor, b: tl.tensor, i: tl.tensor, j: tl.tensor, live: tl.tensor, h: tl.constexpr, M: tl.constexpr,
    PLAIN: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Load the small pixels (i, j) and (i, j - 1). Pixels outside of the image are zero."""
    o = tl.arange(0, M)
    here = live & (i >= 0) & (i < h) & (j < h) if PLAIN else live
    left = live & (i >= 0) & (i < h) & (j > 0) if PLAIN else live
    c0 = tl.load(G + image_offset(b, i, j, h, M, PLAIN)[:, None] + o[None, :], mask=here[:, None], other=0.0)
    c1 = tl.load(G + image_offset(b, i, j - 1, h, M, PLAIN)[:, None] + o[None, :], mask=left[:, None], other=0.0)
    return c0, c1


@kernel
def load_weights(W: tl.tensor, c: tl.tensor, C: tl.constexpr, M: tl.constexpr) -> tl.tensor:
    """Load the weight matrices (M, columns) of (dy, dx) = 00, 01, 10 and 11. Columns from 4C on are zero."""
    at = W + c[:, None] * M + tl.arange(0, M)[None, :]
    real = (c < 4 * C)[:, None]
    w00 = tl.trans(tl.load(at, mask=real, other=0.0))
    w01 = tl.trans(tl.load(at + 4 * C * M, mask=real, other=0.0))
    w10 = tl.trans(tl.load(at + 8 * C * M, mask=real, other=0.0))
    w11 = tl.trans(tl.load(at + 12 * C * M, mask=real, other=0.0))
    return w00, w01, w10, w11


@kernel
def _conv_transpose4x4(
    G: tl.tensor, W: tl.tensor, BIAS: tl.tensor, Y: tl.tensor, ACT: tl.tensor, PART: tl.tensor, P: tl.tensor,
    B: tl.tensor, h: tl.constexpr, C: tl.constexpr, M: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    PLAIN: tl.constexpr, BACK: tl.constexpr, ST: tl.constexpr, RS: tl.constexpr, IP: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    r = tl.program_id(0) // RS * BM + tl.arange(0, BM)
    g: tl.constexpr = h + 1
    rows: tl.constexpr = (g + RS - 1) // RS
    first = tl.program_id(0) % RS * rows
    span: tl.constexpr = h * h * M if PLAIN else (h + 2) * (h + 2) * M
    b = r // g
    j = r % g
    live = r < B * g
    c = tl.program_id(2) * BN + tl.arange(0, BN)
    G += n * B * span
    w00, w01, w10, w11 = load_weights(W + n * P, c, C, M)
    if RS == 1:
        p0 = tl.zeros((BM, M), G.dtype.element_ty)
        p1 = tl.zeros((BM, M), G.dtype.element_ty)
    else:
        p0, p1 = load_small_pixels(G, b, first - 1, j, live & (first > 0) & (first <= g), h, M, PLAIN)
    row = n * B * (g * g * 4 * C) + ((b * (g * g) + j) * (4 * C))[:, None] + c[None, :]
    py = c // (2 * C)
    x2 = 2 * j[:, None] + (c // C % 2)[None, :]
    inside = (x2 > 0) & (x2 <= 2 * h)
    bias = tl.load(BIAS + n * P + c % C).to(tl.float32)
    total = tl.zeros((BN,), tl.float32)
    for step in tl.range(0, rows, num_stages=ST):
        i = first + step
        here = live & (i < g) if g % RS != 0 else live
        y2 = 2 * i + py
        ok = inside & ((y2 > 0) & (y2 <= 2 * h))[None, :]
        to = row + i * (g * 4 * C)
        if BACK:  # load before the products, because the load then overlaps with them
            ok = ok & (tl.load(ACT + to, mask=here[:, None], other=0.0) > 0)
        c0, c1 = load_small_pixels(G, b, i, j, here, h, M, PLAIN)
        acc = tl.dot(p1, w11, tl.dot(p0, w10, input_precision=IP), input_precision=IP)
        acc = tl.dot(c1, w01, tl.dot(c0, w00, acc, input_precision=IP), input_precision=IP)
        p0 = c0
        p1 = c1
        if BACK:
            acc = tl.where(ok & here[:, None], acc, 0.0)
            total += tl.sum(acc, 0)
        else:
            acc = tl.where(ok, tl.maximum(acc + bias[None, :], 0.0, propagate_nan=tl.PropagateNan.ALL), 0.0)
        tl.store(Y + to, acc.to(Y.dtype.element_ty), mask=here[:, None])
    if BACK:
        tl.store(PART + (n * tl.num_programs(0) + tl.program_id(0)) * (4 * C) + c, total)


def conv_transpose4x4(
    small: Tensor, weight: Tensor, bias: Tensor | None, h: int, C: int, M: int, plain: bool, act: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute blocked images of side 2h and C channels from images of side h and M channels.

    If `bias` is given, this is a transposed convolution with a ReLU. If `act` is given, the result is the input
    gradient of a convolution.

    Args:
        small: The small images, or the gradient with respect to them.
        weight: The weights of each run.
        bias: The bias of each run, or None for a gradient.
        h: The side of the small images.
        C: The channels of the large images.
        M: The channels of the small images.
        plain: Whether the small images are plain. Otherwise they are blocked.
        act: For a gradient, the input of the convolution, which is the output of a ReLU.

    Returns:
        Two tensors. The first has the large images, or the gradient with respect to them, which is zero where `act` is
        zero. For a gradient, the second has the partial sums of the first over pixels, (r, parts, C). Their sum over
        the parts is the gradient of the bias that was added before the ReLU. Otherwise the second has no meaning.
    """
    runs, batch = small.shape[:2]
    name = "conv_transpose4x4" if act is None else "conv_transpose4x4 gradient"
    tuned = launch_settings(name, C, M, small.dtype, runs)
    programs = block_count(batch * (h + 1), tuned["BM"]) * tuned["RS"]
    y = empty_blocked(small, 2 * h, C, small.dtype)
    part = torch.empty(runs, programs, 4, C, device=small.device) if act is not None else y
    _conv_transpose4x4[(programs, runs, 4 * C // tuned["BN"])](
        small, weight, weight if bias is None else bias, y, y if act is None else act, part, weight.stride(0), batch,
        h=h, C=C, M=M, PLAIN=plain, BACK=act is not None, IP=product_precision(small.dtype), **tuned,
    )  # fmt: skip
    return y, part.flatten(1, 2) if act is not None else part
