"""The last layer of a decoder with the likelihood of images, and the input gradient of the first layer of an encoder.

Both are 4x4 stride-2 transposed convolutions to images of few channels (see
`unbraid.accel.kernels.conv_transpose4x4`). Each program computes groups of neighbouring blocks, because a single block
has too few columns for a matrix product.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.blocked import empty_blocked, image_offset
from unbraid.accel.kernels.jit import block_count, kernel
from unbraid.accel.kernels.tuned import launch_settings
from unbraid.accel.precision import product_precision

COLUMNS = 16  # the number of columns of a matrix product
OUTPUT, BERNOULLI, GAUSSIAN = 0, 1, 2  # what to compute: the output of the layer, or one of two likelihoods


@kernel
def _nll(t: tl.tensor, s: tl.tensor, ok: tl.tensor, KIND: tl.constexpr) -> tl.tensor:
    """Return the negative log-likelihood of the target t given the output s, and its derivative with respect to s.

    Both are zero where `ok` is false.
    """
    if KIND == 1:
        e = tl.exp(-tl.abs(s))
        cost = tl.maximum(s, 0.0) - s * t + tl.log(1.0 + e)
        slope = tl.where(s >= 0, 1.0, e) / (1.0 + e) - t
    else:
        cost = 0.5 * (s - t) * (s - t)
        slope = s - t
    return tl.where(ok, cost, 0.0), tl.where(ok, slope, 0.0)


@kernel
def load_pixel(
    G: tl.tensor, b: tl.tensor, i: tl.tensor, j: tl.tensor, live: tl.tensor, h: tl.constexpr, M: tl.constexpr,
    PLAIN: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Load the small pixels (i, j). Pixels outside of the image are zero."""
    ok = live & (i >= 0) & (i < h) & (j >= 0) & (j < h) if PLAIN else live & (i >= 0) & (j <= h)
    return tl.load(G + image_offset(b, i, j, h, M, PLAIN)[:, None] + tl.arange(0, M)[None, :], ok[:, None], other=0.0)


@kernel
def load_group_weights(
    W: tl.tensor, d: tl.constexpr, C: tl.constexpr, M: tl.constexpr, NP: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Load the weights of pixel d - 1 of a group for the blocks of its row and of the next row, each (M, NP).

    Pixels are counted from the first block of the group, so d = 0 is the pixel to the left of the group.
    """
    column = tl.arange(0, NP)
    dx = column // (4 * C) - d + 1
    at = W + (dx * (4 * C) + column % (4 * C))[None, :] * M + tl.arange(0, M)[:, None]
    real = ((dx >= 0) & (dx < 2))[None, :]
    return tl.load(at, mask=real, other=0.0), tl.load(at + 8 * C * M, mask=real, other=0.0)


@kernel
def _add_pixel(
    G: tl.tensor, b: tl.tensor, i: tl.tensor, j: tl.tensor, live: tl.tensor, u: tl.tensor, v: tl.tensor,
    here: tl.tensor, below: tl.tensor, h: tl.constexpr, M: tl.constexpr, PLAIN: tl.constexpr, IP: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Add the products of the small pixels (i, j) and their weights to the blocks of row i and of the next row."""
    x = load_pixel(G, b, i, j, live, h, M, PLAIN)
    return tl.dot(x, u, here, input_precision=IP), tl.dot(x, v, below, input_precision=IP)


@kernel
def _program_groups(
    B: tl.tensor, groups: tl.constexpr, GB: tl.constexpr, BM: tl.constexpr, RS: tl.constexpr
) -> tl.tensor:
    """Return the groups of blocks of a program, their samples and first blocks, and whether they exist, each (BM,)."""
    r = tl.program_id(0) // RS * BM + tl.arange(0, BM)
    return r, r // groups, r % groups * GB, r < B * groups


@kernel
def _group_pixels(
    n: tl.tensor, b: tl.tensor, j: tl.tensor, live: tl.tensor, B: tl.tensor, h: tl.constexpr, C: tl.constexpr,
    CR: tl.constexpr, NP: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Return where the pixels of groups in the first row of blocks are stored, and whether the pixels exist.

    There are four results, each (BM, NP): the offsets in blocked images, the offsets in plain images, whether the
    pixels exist in blocked images, and whether they exist in plain images. The offsets in plain images do not include
    the row of a pixel. The border exists in blocked images only.
    """
    g: tl.constexpr = h + 1
    side: tl.constexpr = 2 * h
    c = tl.arange(0, NP)
    block = j[:, None] + (c // (4 * C))[None, :]
    x2 = 2 * block + (c // C % 2)[None, :]
    exists = live[:, None] & (block < g)
    inside = exists & (x2 > 0) & (x2 <= side) & (c % C < CR)[None, :]
    plain = (n * B + b[:, None]) * (CR * side * side) + (c % C)[None, :] * (side * side) + x2 - 1
    blocked = n * B * (g * g * 4 * C) + ((b * (g * g) + j) * (4 * C))[:, None] + c[None, :]
    return blocked, plain, exists, inside


@kernel
def _multiply_row(
    G: tl.tensor, b: tl.tensor, i: tl.tensor, j: tl.tensor, live: tl.tensor, carry: tl.tensor,
    u0: tl.tensor, v0: tl.tensor, u1: tl.tensor, v1: tl.tensor, u2: tl.tensor, v2: tl.tensor, u3: tl.tensor,
    v3: tl.tensor, u4: tl.tensor, v4: tl.tensor, h: tl.constexpr, M: tl.constexpr, PLAIN: tl.constexpr,
    GB: tl.constexpr, IP: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Multiply row i of small pixels by the weights. Return the blocks of row i, including `carry`, and a new `carry`.

    The new `carry` is the part of the blocks of row i + 1 that these pixels contribute. The weights u0, v0 to u4, v4
    are those of `load_group_weights` for d = 0 to 4.
    """
    below = tl.zeros(carry.shape, tl.float32)
    here, below = _add_pixel(G, b, i, j - 1, live, u0, v0, carry, below, h, M, PLAIN, IP)
    here, below = _add_pixel(G, b, i, j, live, u1, v1, here, below, h, M, PLAIN, IP)
    if GB == 4:
        here, below = _add_pixel(G, b, i, j + 1, live, u2, v2, here, below, h, M, PLAIN, IP)
        here, below = _add_pixel(G, b, i, j + 2, live, u3, v3, here, below, h, M, PLAIN, IP)
        here, below = _add_pixel(G, b, i, j + 3, live, u4, v4, here, below, h, M, PLAIN, IP)
    return here, below


@kernel
def _image_conv_transpose4x4(
    G: tl.tensor, W: tl.tensor, BIAS: tl.tensor, T: tl.tensor, D: tl.tensor, LOSS: tl.tensor, SLOPES: tl.tensor,
    P: tl.tensor, B: tl.tensor, h: tl.constexpr, C: tl.constexpr, CR: tl.constexpr, M: tl.constexpr, BM: tl.constexpr,
    NP: tl.constexpr, PLAIN: tl.constexpr, KIND: tl.constexpr, BIASED: tl.constexpr, ST: tl.constexpr,
    RS: tl.constexpr, IP: tl.constexpr,
) -> None:  # fmt: skip
    """Compute groups of GB neighbouring blocks, so that a product has NP columns for any number of channels.

    Small pixel d - 1 of a group, counted from its first block, contributes to blocks d - 1 and d of the group. C is the
    number of channels of blocked images, and CR is the number of channels of plain images.
    """
    n = tl.program_id(1).to(tl.int64)
    g: tl.constexpr = h + 1
    GB: tl.constexpr = NP // (4 * C)
    groups: tl.constexpr = (g + GB - 1) // GB
    rows: tl.constexpr = (g + RS - 1) // RS
    first = tl.program_id(0) % RS * rows
    r, b, j, live = _program_groups(B, groups, GB, BM, RS)
    c = tl.arange(0, NP)
    G += n * B * (h * h * M if PLAIN else (h + 2) * (h + 2) * M)
    W += n * P
    u0, v0 = load_group_weights(W, 0, C, M, NP)
    u1, v1 = load_group_weights(W, 1, C, M, NP)
    u2, v2 = load_group_weights(W, 2, C, M, NP)
    u3, v3 = load_group_weights(W, 3, C, M, NP)
    u4, v4 = load_group_weights(W, 4, C, M, NP)
    blocked, plain, exists, inside = _group_pixels(n, b, j, live, B, h, C, CR, NP)
    total = tl.zeros((BM, NP), tl.float32)
    slopes = tl.zeros((BM, NP), tl.float32)
    carry = tl.zeros((BM, NP), tl.float32)
    if RS > 1:
        _, carry = _multiply_row(G, b, first - 1, j, live & (first <= h), carry, u0, v0, u1, v1, u2, v2, u3, v3, u4, v4,
                                 h, M, PLAIN, GB, IP)  # fmt: skip
    for step in tl.range(0, rows, num_stages=ST):
        i = first + step
        here = live & (i < g) if g % RS != 0 else live
        y2 = 2 * i + c // (2 * C) % 2
        ok = here[:, None] & inside & ((y2 > 0) & (y2 <= 2 * h))[None, :]
        at = T + plain + ((y2 - 1) * (2 * h))[None, :]
        if KIND != 0:
            target = tl.load(at, mask=ok, other=0.0)
        acc, carry = _multiply_row(G, b, i, j, here, carry, u0, v0, u1, v1, u2, v2, u3, v3, u4, v4, h, M, PLAIN, GB, IP)
        if BIASED:
            acc += tl.load(BIAS + n * P + c % C).to(tl.float32)[None, :]
        if KIND == 0:
            tl.store(at, acc, mask=ok)
        else:
            cost, slope = _nll(target, acc, ok, KIND)
            total += cost
            slopes += slope
            tl.store(D + blocked + i * (g * 4 * C), slope.to(D.dtype.element_ty), mask=here[:, None] & exists)
    if KIND != 0:
        to = (n * B * groups + r) * RS + tl.program_id(0) % RS
        tl.store(LOSS + to, tl.sum(total, 1), mask=live)
        tl.store(SLOPES + to[:, None] * NP + c[None, :], slopes, mask=live[:, None])


def _group_count(side: int, stored: int) -> int:
    """Return the number of groups of blocks in a row of blocks of an image."""
    return block_count(side // 2 + 1, COLUMNS // (4 * stored))


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
        A tuple of three tensors: the negative log-likelihood of each sample, (r, b); its derivatives with respect to
        the output of the layer, as blocked images; and the sums of these derivatives over the blocks of each sample,
        (r, b, 4, stored).
    """
    runs, batch, channels, side = target.shape[:4]
    slopes = empty_blocked(target, side, stored, small.dtype)
    width = weight.shape[1] // (16 * stored)
    tuned = launch_settings("image conv_transpose4x4", stored, width, small.dtype, runs)
    parts = _group_count(side, stored) * tuned["RS"]
    loss = torch.empty(runs, batch, parts, device=small.device)
    sums = torch.empty(runs, batch, parts, COLUMNS // (4 * stored), 4, stored, device=small.device)
    _launch(small, weight, bias, target.contiguous(), slopes, loss, sums, stored, channels, plain, kind)
    return loss.sum(-1), slopes, sums.flatten(2, 3).sum(2)


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
    tuned = launch_settings("image conv_transpose4x4", stored, width, small.dtype, runs)
    grid = (block_count(batch * _group_count(side, stored), tuned["BM"]) * tuned["RS"], runs)
    _image_conv_transpose4x4[grid](
        small, weight, weight if bias is None else bias, images, slopes, loss, sums, weight.stride(0), batch,
        h=h, C=stored, CR=channels, M=width, NP=COLUMNS, PLAIN=plain, KIND=kind, BIASED=bias is not None,
        IP=product_precision(small.dtype), **tuned,
    )  # fmt: skip
