"""4x4 stride-2 transposed convolutions, which are also the input gradients of convolutions.

Both compute a large, blocked image (see `unbraid.accel.kernels.blocked`) from a small image. Block (i, j) of the large
image is a sum over the four small pixels (i - dy, j - dx) with dy and dx in {0, 1}. Each pixel is multiplied by the
weight matrix (M, 4C) of (dy, dx). Each program computes some columns of blocks from top to bottom. It keeps the
weights and the previous row of small pixels on the chip.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.blocked import empty_blocked, image_offset
from unbraid.accel.kernels.jit import block_count, kernel
from unbraid.accel.kernels.tuned import launch_settings

OUTPUT, BERNOULLI, GAUSSIAN = 0, 1, 2  # the last layer of a decoder returns its output or a likelihood


@kernel
def load_small_pixels(
    G: tl.tensor, b: tl.tensor, i: tl.tensor, j: tl.tensor, live: tl.tensor, h: tl.constexpr, M: tl.constexpr,
    PLAIN: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Load the small pixels (i, j) and (i, j - 1). Pixels outside of the image are zero."""
    o = tl.arange(0, M)
    here = live & (i < h) & (j < h) if PLAIN else live
    left = live & (i < h) & (j > 0) if PLAIN else live
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
    PLAIN: tl.constexpr, BACK: tl.constexpr, ST: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    g: tl.constexpr = h + 1
    span: tl.constexpr = h * h * M if PLAIN else (h + 2) * (h + 2) * M
    b = r // g
    j = r % g
    live = r < B * g
    c = tl.program_id(2) * BN + tl.arange(0, BN)
    G += n * B * span
    w00, w01, w10, w11 = load_weights(W + n * P, c, C, M)
    p0 = tl.zeros((BM, M), G.dtype.element_ty)
    p1 = tl.zeros((BM, M), G.dtype.element_ty)
    row = n * B * (g * g * 4 * C) + ((b * (g * g) + j) * (4 * C))[:, None] + c[None, :]
    py = c // (2 * C)
    x2 = 2 * j[:, None] + (c // C % 2)[None, :]
    inside = (x2 > 0) & (x2 <= 2 * h)
    bias = tl.load(BIAS + n * P + c % C).to(tl.float32)
    total = tl.zeros((BN,), tl.float32)
    for i in tl.range(0, g, num_stages=ST):
        y2 = 2 * i + py
        ok = inside & ((y2 > 0) & (y2 <= 2 * h))[None, :]
        to = row + i * (g * 4 * C)
        if BACK:  # load before the products, because the load then overlaps with them
            ok = ok & (tl.load(ACT + to, mask=live[:, None], other=0.0) > 0)
        c0, c1 = load_small_pixels(G, b, i, j, live, h, M, PLAIN)
        acc = tl.dot(p1, w11, tl.dot(p0, w10))
        acc = tl.dot(c1, w01, tl.dot(c0, w00, acc))
        p0 = c0
        p1 = c1
        if BACK:
            acc = tl.where(ok, acc, 0.0)
            total += tl.sum(acc, 0)
        else:
            acc = tl.where(ok, tl.maximum(acc + bias[None, :], 0.0, propagate_nan=tl.PropagateNan.ALL), 0.0)
        tl.store(Y + to, acc.to(Y.dtype.element_ty), mask=live[:, None])
    if BACK:
        tl.store(PART + (n * tl.num_programs(0) + tl.program_id(0)) * (4 * C) + c, total)


def conv_transpose4x4(
    small: Tensor, weight: Tensor, bias: Tensor | None, h: int, C: int, M: int, plain: bool, act: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute blocked images of side 2h and C channels from images of side h and M channels.

    If `bias` is given, this is a transposed convolution with a ReLU. If `act` is given, it is the input gradient of a
    convolution.

    Args:
        small: The small images, or the gradient with respect to them.
        weight: The weights of each run.
        bias: The bias of each run, or None for a gradient.
        h: The side of the small images.
        C: The channels of the large images.
        M: The channels of the small images.
        plain: Whether the small images are plain or blocked.
        act: For a gradient, the input of the convolution, which is the output of a ReLU.

    Returns:
        The large images, or the gradient, which is zero where `act` is zero. For a gradient, the second value is its
        partial sums over pixels, (r, parts, C), which give the gradient of a bias. Otherwise it has no meaning.
    """
    runs, batch = small.shape[:2]
    tuned = launch_settings("conv_transpose4x4" if act is None else "conv_transpose4x4 gradient", C, M, small.dtype)
    programs = block_count(batch * (h + 1), tuned["BM"])
    y = empty_blocked(small, 2 * h, C, small.dtype)
    part = torch.empty(runs, programs, 4, C, device=small.device) if act is not None else y
    _conv_transpose4x4[(programs, runs, 4 * C // tuned["BN"])](
        small, weight, weight if bias is None else bias, y, y if act is None else act, part, weight.stride(0), batch,
        h=h, C=C, M=M, PLAIN=plain, BACK=act is not None, **tuned,
    )  # fmt: skip
    return y, part.flatten(1, 2) if act is not None else part


@kernel
def _nll(t: tl.tensor, s: tl.tensor, KIND: tl.constexpr) -> tl.tensor:
    """Return the negative log-likelihood of the target t given the output s, and its derivative with respect to s."""
    if KIND == 1:
        e = tl.exp(-tl.abs(s))
        return tl.maximum(s, 0.0) - s * t + tl.log(1.0 + e), tl.where(s >= 0, 1.0, e) / (1.0 + e) - t
    else:  # noqa: RET505 (Triton compiles one branch)
        return 0.5 * (s - t) * (s - t), s - t


@kernel
def _image_conv_transpose4x4(
    G: tl.tensor, W: tl.tensor, BIAS: tl.tensor, T: tl.tensor, D: tl.tensor, LOSS: tl.tensor, SLOPES: tl.tensor,
    P: tl.tensor, B: tl.tensor, h: tl.constexpr, C: tl.constexpr, CR: tl.constexpr, M: tl.constexpr, BM: tl.constexpr,
    NP: tl.constexpr, PLAIN: tl.constexpr, KIND: tl.constexpr, BIASED: tl.constexpr, ST: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    g: tl.constexpr = h + 1
    side: tl.constexpr = 2 * h
    span: tl.constexpr = h * h * M if PLAIN else (h + 2) * (h + 2) * M
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    b = r // g
    j = r % g
    live = r < B * g
    c = tl.arange(0, 4 * C)
    G += n * B * span
    w00, w01, w10, w11 = load_weights(W + n * P, tl.arange(0, NP), C, M)
    p0 = tl.zeros((BM, M), G.dtype.element_ty)
    p1 = tl.zeros((BM, M), G.dtype.element_ty)
    x2 = 2 * j[:, None] + (c // C % 2)[None, :]
    inside = live[:, None] & (x2 > 0) & (x2 <= side) & (c % C < CR)[None, :]
    target_offset = (n * B + b[:, None]) * (CR * side * side) + (c % C)[None, :] * (side * side) + x2 - 1
    row = n * B * (g * g * 4 * C) + ((b * (g * g) + j) * (4 * C))[:, None] + c[None, :]
    total = tl.zeros((BM, 4 * C), tl.float32)
    slopes = tl.zeros((BM, 4 * C), tl.float32)
    for i in tl.range(0, g, num_stages=ST):
        y2 = 2 * i + c // (2 * C)
        ok = inside & ((y2 > 0) & (y2 <= side))[None, :]
        at = T + target_offset + ((y2 - 1) * side)[None, :]
        if KIND != 0:
            target = tl.load(at, mask=ok, other=0.0)
        c0, c1 = load_small_pixels(G, b, i, j, live, h, M, PLAIN)
        acc = tl.dot(p1, w11, tl.dot(p0, w10))
        acc = tl.dot(c1, w01, tl.dot(c0, w00, acc))
        p0 = c0
        p1 = c1
        if NP > 4 * C:  # remove the padding columns, which are zero
            acc = tl.sum(tl.reshape(acc, (BM, NP // (4 * C), 4 * C)), 1)
        if BIASED:
            acc += tl.load(BIAS + n * P + c % C).to(tl.float32)[None, :]
        if KIND == 0:
            tl.store(at, acc, mask=ok)
        else:
            cost, slope = _nll(target, acc, KIND)
            slope = tl.where(ok, slope, 0.0)
            total += tl.where(ok, cost, 0.0)
            slopes += slope
            tl.store(D + row + i * (g * 4 * C), slope.to(D.dtype.element_ty), mask=live[:, None])
    if KIND != 0:
        tl.store(LOSS + n * B * g + r, tl.sum(total, 1), mask=live)
        tl.store(SLOPES + (n * B * g + r[:, None]) * (4 * C) + c[None, :], slopes, mask=live[:, None])


def conv_transpose4x4_nll(
    small: Tensor, weight: Tensor, bias: Tensor, target: Tensor, stored: int, plain: bool, kind: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the last layer of a decoder and the likelihood of target images in one kernel.

    Args:
        small: The input of the last layer.
        weight: The weights of each run.
        bias: The bias of each run.
        target: The images whose likelihood is computed, (r, b, c, 2h, 2h).
        stored: The number of channels of blocked images, which is 1, or 4 for RGB images.
        plain: Whether `small` is plain. Otherwise it is blocked.
        kind: BERNOULLI or GAUSSIAN.

    Returns:
        A tuple of the negative log-likelihood of each sample, (r, b), its derivatives with respect to the output of the
        layer, blocked, and the sums of the derivatives over the blocks of each sample, (r, b, 4, stored).
    """
    runs, batch, channels, side = target.shape[:4]
    slopes = empty_blocked(target, side, stored, small.dtype)
    columns = side // 2 + 1
    loss = torch.empty(runs, batch, columns, device=small.device)
    sums = torch.empty(runs, batch, columns, 4, stored, device=small.device)
    _launch(small, weight, bias, target.contiguous(), slopes, loss, sums, stored, channels, plain, kind)
    return loss.sum(-1), slopes, sums.sum(2)


def conv_transpose4x4_image(
    small: Tensor, weight: Tensor, bias: Tensor | None, stored: int, channels: int, h: int, plain: bool
) -> Tensor:
    """Compute the last layer of a decoder, or the input gradient of the first layer of an encoder.

    Args:
        small: The input of the last layer of a decoder, or the output gradient of the first layer of an encoder.
        weight: The weights of each run.
        bias: The bias of each run, or None for a gradient.
        stored: The number of channels of blocked images, which is 1, or 4 for RGB images.
        channels: The number c of channels of the images.
        h: The side of the small images.
        plain: Whether `small` is plain. Otherwise it is blocked.

    Returns:
        Float images (r, b, c, 2h, 2h), without an activation.
    """
    runs, batch = small.shape[:2]
    out = torch.empty(runs, batch, channels, 2 * h, 2 * h, device=small.device)
    _launch(small, weight, bias, out, small, small, small, stored, channels, plain, OUTPUT)
    return out


def _launch(
    small: Tensor, weight: Tensor, bias: Tensor | None, images: Tensor, slopes: Tensor, loss: Tensor, sums: Tensor,
    stored: int, channels: int, plain: bool, kind: int,
) -> None:  # fmt: skip
    """Launch the kernel of the last layer. It writes `images`, or for a likelihood `slopes`, `loss` and `sums`."""
    runs, batch, side = images.shape[0], images.shape[1], images.shape[3]
    h = side // 2
    width = weight.shape[1] // (16 * stored)
    tuned = launch_settings("image conv_transpose4x4", stored, width, small.dtype)
    grid = (block_count(batch * (h + 1), tuned["BM"]), runs)
    _image_conv_transpose4x4[grid](
        small, weight, weight if bias is None else bias, images, slopes, loss, sums, weight.stride(0), batch,
        h=h, C=stored, CR=channels, M=width, NP=16, PLAIN=plain, KIND=kind, BIASED=bias is not None, **tuned,
    )  # fmt: skip
