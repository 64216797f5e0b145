"""4x4 stride-2 convolutions, which are also the input gradients of transposed convolutions.

Both compute a small image from a large, blocked image (see `unbraid.accel.kernels.blocked`). The weights of a run have
shape (dy, dx, py, px, C, M), where the kernel element in row 2 dy + py and column 2 dx + px has index (dy, dx, py, px).

An output pixel reads a *strip* of two neighbouring blocks in each of two rows of blocks. A strip is 8C contiguous
values, so the pixel is the sum of two products of a strip with a weight matrix (8C, M). The rows of the output are
divided into RS parts. Each program computes some columns of the output in one of these parts, row by row from top to
bottom. It reads each strip once for two output rows, and keeps the weights on the chip. A strip is
multiplied by one weight matrix for each of the two rows. If CAT is True, both products are computed as one product.

Neighbouring strips overlap, so each block is read twice. If the launch settings have GB = 2, a second kernel is used
instead. It computes groups of two neighbouring output pixels from three blocks, each of which is read once.

Products of float32 numbers with the error of float32 need too many registers for this. If the launch settings have BK,
a third kernel is used, which multiplies BK values of the two strips of a pixel at a time, and reads the weights each
time.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.blocked import empty_blocked, image_offset, zero_border
from unbraid.accel.kernels.jit import block_count, divisor, kernel
from unbraid.accel.kernels.tuned import launch_settings
from unbraid.accel.launch_candidates import Launch
from unbraid.accel.precision import product_precision

MIN_STRIP_CHANNELS = 16  # with fewer channels, one matrix product covers all 16 elements of the kernel


@kernel
def _image_conv4x4(
    X: tl.tensor, W: tl.tensor, BIAS: tl.tensor, Y: tl.tensor, P: tl.tensor, B: tl.tensor, XS: tl.tensor,
    h: tl.constexpr, C: tl.constexpr, M: tl.constexpr, BM: tl.constexpr, PLAIN: tl.constexpr, EVEN: tl.constexpr,
    IP: tl.constexpr,
) -> None:  # fmt: skip
    """Compute a convolution of images with few channels.

    XS is the stride between the images of two runs, which is 0 if all runs share the same images.
    """
    n = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    g: tl.constexpr = h + 1
    q: tl.constexpr = h // 2 + 1
    span: tl.constexpr = h * h * M if PLAIN else q * q * 4 * M
    live = tl.full((BM,), 1, tl.int1) if EVEN else m < B * h * h
    b = m // (h * h)
    i = m // h % h
    j = m % h
    o = tl.arange(0, M)
    k = tl.arange(0, 16 * C)
    strip = (k // (8 * C)) * (g * 4 * C) + k % (8 * C)
    at = X + n * XS + (((b * g + i) * g + j) * (4 * C))[:, None] + strip[None, :]
    x = tl.load(at, mask=live[:, None], other=0.0)
    acc = tl.dot(x, tl.load(W + n * P + k[:, None] * M + o[None, :]), input_precision=IP)
    acc += tl.load(BIAS + n * P + o).to(tl.float32)[None, :]
    acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    to = Y + n * B * span + image_offset(b, i, j, h, M, PLAIN)[:, None] + o[None, :]
    tl.store(to, acc.to(Y.dtype.element_ty), mask=live[:, None])


@kernel
def _conv4x4(
    X: tl.tensor, W: tl.tensor, BIAS: tl.tensor, Y: tl.tensor, ACT: tl.tensor, PART: tl.tensor, P: tl.tensor,
    B: tl.tensor, h: tl.constexpr, C: tl.constexpr, M: tl.constexpr, BO: tl.constexpr, BM: tl.constexpr,
    PLAIN: tl.constexpr, BACK: tl.constexpr, EVEN: tl.constexpr, ST: tl.constexpr, CAT: tl.constexpr, RS: tl.constexpr,
    IP: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    r = tl.program_id(0) // RS * BM + tl.arange(0, BM)
    rows: tl.constexpr = h // RS
    first = tl.program_id(0) % RS * rows
    g: tl.constexpr = h + 1
    q: tl.constexpr = h // 2 + 1
    span: tl.constexpr = h * h * M if PLAIN else q * q * 4 * M
    live = tl.full((BM,), 1, tl.int1) if EVEN else r < B * h
    b = r // h
    j = r % h
    o = tl.program_id(2) * BO + tl.arange(0, BO)
    k = tl.arange(0, 8 * C)
    W += n * P
    w0 = tl.load(W + k[:, None] * M + o[None, :])
    w1 = tl.load(W + (8 * C + k)[:, None] * M + o[None, :])
    if CAT:  # compute both products at once, with interleaved columns
        w = tl.reshape(tl.join(w0, w1), (8 * C, 2 * BO))
    strip = X + n * B * (g * g * 4 * C) + ((b * (g * g) + j) * (4 * C))[:, None] + k[None, :]
    Y += n * B * span
    ACT += n * B * span
    bias = tl.load(BIAS + n * P + o).to(tl.float32)
    total = tl.zeros((BM, BO), tl.float32)
    carry = tl.dot(tl.load(strip + first * (g * 4 * C), mask=live[:, None], other=0.0), w0, input_precision=IP)
    for step in tl.range(0, rows, num_stages=ST):
        i = first + step
        to = image_offset(b, i, j, h, M, PLAIN)[:, None] + o[None, :]
        if BACK:  # load before the products, because the load then overlaps with them
            mask = tl.load(ACT + to, mask=live[:, None], other=0.0) > 0
        a = tl.load(strip + (i + 1) * (g * 4 * C), mask=live[:, None], other=0.0)
        if CAT:
            t0, t1 = tl.split(tl.reshape(tl.dot(a, w, input_precision=IP), (BM, BO, 2)))
            acc = carry + t1
            carry = t0
        else:
            acc = tl.dot(a, w1, carry, input_precision=IP)
            carry = tl.dot(a, w0, input_precision=IP)
        if BACK:
            acc = tl.where(mask, acc, 0.0)
            total += acc
        else:
            acc = tl.maximum(acc + bias[None, :], 0.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(Y + to, acc.to(Y.dtype.element_ty), mask=live[:, None])
    if BACK:
        tl.store(PART + (n * tl.num_programs(0) + tl.program_id(0)) * M + o, tl.sum(total, 0))


@kernel
def _group_row(
    X: tl.tensor, live: tl.tensor, w0: tl.tensor, w1: tl.tensor, C: tl.constexpr, IP: tl.constexpr
) -> tl.tensor:
    """Return the products of one row of blocks with the weights, for the two output pixels of each group."""
    x0 = tl.load(X, mask=live[:, None], other=0.0)
    x1 = tl.load(X + 4 * C, mask=live[:, None], other=0.0)
    x2 = tl.load(X + 8 * C, mask=live[:, None], other=0.0)
    left = tl.dot(x1, w1, tl.dot(x0, w0, input_precision=IP), input_precision=IP)
    right = tl.dot(x2, w1, tl.dot(x1, w0, input_precision=IP), input_precision=IP)
    return left, right


@kernel
def _finish_pixel(
    Y: tl.tensor, to: tl.tensor, act: tl.tensor, product: tl.tensor, carry: tl.tensor, bias: tl.tensor, ok: tl.tensor,
    BM: tl.constexpr, M: tl.constexpr, BACK: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Store one output pixel of each group. Return its values and the first part of the pixel below, each (BM, M)."""
    below, here = tl.split(tl.reshape(product, (BM, M, 2)))
    acc = carry + here
    if BACK:
        acc = tl.where((act > 0) & ok[:, None], acc, 0.0)
    else:
        acc = tl.maximum(acc + bias[None, :], 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(Y + to, acc.to(Y.dtype.element_ty), mask=ok[:, None])
    return acc, below


@kernel
def _conv4x4_groups(
    X: tl.tensor, W: tl.tensor, BIAS: tl.tensor, Y: tl.tensor, ACT: tl.tensor, PART: tl.tensor, P: tl.tensor,
    B: tl.tensor, h: tl.constexpr, C: tl.constexpr, M: tl.constexpr, BM: tl.constexpr, PLAIN: tl.constexpr,
    BACK: tl.constexpr, ST: tl.constexpr, GB: tl.constexpr, IP: tl.constexpr,
) -> None:  # fmt: skip
    """Compute groups of two neighbouring output pixels, row by row. GB is 2.

    Row s of the blocks completes row s - 1 of the output and begins row s. The products of a block with the
    upper and with the lower half of the kernel are computed as one product with interleaved columns.
    """
    n = tl.program_id(1).to(tl.int64)
    groups: tl.constexpr = h // GB
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    g: tl.constexpr = h + 1
    q: tl.constexpr = h // 2 + 1
    span: tl.constexpr = h * h * M if PLAIN else q * q * 4 * M
    live = r < B * groups
    b = r // groups
    j = r % groups * GB
    o = tl.arange(0, M)
    k = tl.arange(0, 4 * C)
    taps = W + n * P + k[:, None] * M + o[None, :]
    w0 = tl.reshape(tl.join(tl.load(taps), tl.load(taps + 8 * C * M)), (4 * C, 2 * M))
    w1 = tl.reshape(tl.join(tl.load(taps + 4 * C * M), tl.load(taps + 12 * C * M)), (4 * C, 2 * M))
    X += n * B * (g * g * 4 * C)
    block = X + ((b * (g * g) + j) * (4 * C))[:, None] + k[None, :]
    Y += n * B * span
    ACT += n * B * span
    bias = tl.load(BIAS + n * P + o).to(tl.float32)
    total = tl.zeros((BM, M), tl.float32)
    c0 = tl.zeros((BM, M), tl.float32)
    c1 = tl.zeros((BM, M), tl.float32)
    for s in tl.range(0, g, num_stages=ST):
        ok = live & (s > 0)
        i = s - 1
        to0 = image_offset(b, i, j, h, M, PLAIN)[:, None] + o[None, :]
        to1 = image_offset(b, i, j + 1, h, M, PLAIN)[:, None] + o[None, :]
        a0 = c0
        a1 = c0
        if BACK:  # load before the products, because the loads then overlap with them
            a0 = tl.load(ACT + to0, mask=ok[:, None], other=0.0)
            a1 = tl.load(ACT + to1, mask=ok[:, None], other=0.0)
        t0, t1 = _group_row(block + s * (g * 4 * C), live, w0, w1, C, IP)
        y0, c0 = _finish_pixel(Y, to0, a0, t0, c0, bias, ok, BM, M, BACK)
        y1, c1 = _finish_pixel(Y, to1, a1, t1, c1, bias, ok, BM, M, BACK)
        if BACK:
            total += y0 + y1
    if BACK:
        tl.store(PART + (n * tl.num_programs(0) + tl.program_id(0)) * M + o, tl.sum(total, 0))


@kernel
def _conv4x4_slices(
    X: tl.tensor, W: tl.tensor, BIAS: tl.tensor, Y: tl.tensor, ACT: tl.tensor, PART: tl.tensor, P: tl.tensor,
    B: tl.tensor, h: tl.constexpr, C: tl.constexpr, M: tl.constexpr, BM: tl.constexpr, BO: tl.constexpr,
    BK: tl.constexpr, PLAIN: tl.constexpr, BACK: tl.constexpr, ST: tl.constexpr, IP: tl.constexpr,
) -> None:  # fmt: skip
    """Compute output pixels in any order. BK divides 8C, so each slice of BK values belongs to one strip."""
    n = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    o = tl.program_id(2) * BO + tl.arange(0, BO)
    g: tl.constexpr = h + 1
    q: tl.constexpr = h // 2 + 1
    span: tl.constexpr = h * h * M if PLAIN else q * q * 4 * M
    live = (m < B * h * h)[:, None]
    b = m // (h * h)
    i = m // h % h
    j = m % h
    block = X + n * B * (g * g * 4 * C) + (((b * g + i) * g + j) * (4 * C))[:, None]
    acc = tl.zeros((BM, BO), tl.float32)
    for step in tl.range(0, 16 * C // BK, num_stages=ST):
        k = step * BK + tl.arange(0, BK)
        strip = (k // (8 * C)) * (g * 4 * C) + k % (8 * C)
        a = tl.load(block + strip[None, :], mask=live, other=0.0)
        acc = tl.dot(a, tl.load(W + n * P + k[:, None] * M + o[None, :]), acc, input_precision=IP)
    to = n * B * span + image_offset(b, i, j, h, M, PLAIN)[:, None] + o[None, :]
    if BACK:
        acc = tl.where(tl.load(ACT + to, mask=live, other=0.0) > 0, acc, 0.0)
        tl.store(PART + (n * tl.num_programs(0) + tl.program_id(0)) * M + o, tl.sum(acc, 0))
    else:
        acc += tl.load(BIAS + n * P + o).to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(Y + to, acc.to(Y.dtype.element_ty), mask=live)


def conv4x4(
    x: Tensor, weight: Tensor, bias: Tensor | None, h: int, C: int, M: int, plain: bool, act: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute images of side h and M channels from blocked images of side 2h and C channels.

    If `bias` is given, this is a convolution with a ReLU. If `act` is given, the result is the input gradient of a
    transposed convolution.

    Args:
        x: The blocked images, or the gradient with respect to them. If C < MIN_STRIP_CHANNELS, all runs may share the
            same images, as a tensor that is expanded along the axis of runs.
        weight: The weights of each run.
        bias: The bias of each run, or None for a gradient.
        h: The side of the small images.
        C: The channels of the large images.
        M: The channels of the small images.
        plain: Whether the small images are plain. Otherwise they are blocked.
        act: For a gradient, the input of the transposed convolution, which is the output of a ReLU.

    Returns:
        Two tensors. The first has the small images, or the gradient with respect to them, which is zero where `act` is
        zero. For a gradient, the second has the partial sums of the first over pixels, (r, parts, M). Their sum over
        the parts is the gradient of the bias that was added before the ReLU. Otherwise the second has no meaning.
    """
    runs, batch = x.shape[:2]
    stride = weight.stride(0)
    y = x.new_empty(runs, batch, h, h, M) if plain else zero_border(empty_blocked(x, h, M, x.dtype), h, M)
    if C < MIN_STRIP_CHANNELS:
        tuned = launch_settings("image conv4x4", C, M, x.dtype, runs)
        m = batch * h * h
        grid = (block_count(m, tuned["BM"]), runs)
        options = {"PLAIN": plain, "EVEN": m % tuned["BM"] == 0, "IP": product_precision(x.dtype), **tuned}
        _image_conv4x4[grid](x, weight, bias, y, stride, batch, x.stride(0), h=h, C=C, M=M, **options)
        return y, y
    tuned = launch_settings("conv4x4" if act is None else "conv4x4 gradient", C, M, x.dtype, runs)
    if "GB" in tuned:  # h is even, because the sides of images are powers of two
        count = batch * (h // tuned["GB"])
        return _launch(_conv4x4_groups, count, x, weight, bias, y, act, (h, C, M), plain, tuned)
    if "BK" in tuned:
        return _launch(_conv4x4_slices, batch * h * h, x, weight, bias, y, act, (h, C, M), plain, tuned)
    parts = divisor(h, tuned["RS"])
    programs = block_count(batch * h, tuned["BM"]) * parts
    even = batch * h % tuned["BM"] == 0
    back = act is not None
    part = torch.empty(runs, programs, M, device=x.device) if back else y
    _conv4x4[(programs, runs, M // tuned["BO"])](
        x, weight, weight if bias is None else bias, y, y if act is None else act, part, stride, batch,
        h=h, C=C, M=M, PLAIN=plain, BACK=back, EVEN=even, IP=product_precision(x.dtype), **{**tuned, "RS": parts},
    )  # fmt: skip
    return y, part


def _launch(
    kernel: Any, count: int, x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor, act: Tensor | None,
    sizes: tuple[int, int, int], plain: bool, tuned: Launch,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Launch a kernel that divides `count` groups or pixels of each run. Other arguments are those of `conv4x4`."""
    runs, batch = x.shape[:2]
    h, C, M = sizes
    programs = block_count(count, tuned["BM"])
    back = act is not None
    part = torch.empty(runs, programs, M, device=x.device) if back else y
    kernel[programs, runs, M // tuned.get("BO", M)](
        x, weight, weight if bias is None else bias, y, y if act is None else act, part, weight.stride(0), batch,
        h=h, C=C, M=M, PLAIN=plain, BACK=back, IP=product_precision(x.dtype), **tuned,
    )  # fmt: skip
    return y, part
