"""Weight gradients of 4x4 stride-2 layers.

Programs write partial sums, and a second stage adds them. Because there are no atomic additions, the order of additions
is fixed, and results are reproducible bit for bit.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.blocked import image_offset
from unbraid.accel.kernels.jit import block_count, kernel
from unbraid.accel.kernels.part_sums import PartSums, add_parts
from unbraid.accel.kernels.tuned import launch_settings
from unbraid.accel.precision import product_precision


@kernel
def _conv4x4_weight_gradient(
    S: tl.tensor, G: tl.tensor, OUT: tl.tensor, stride_n: tl.tensor, stride_s: tl.tensor, B: tl.constexpr,
    h: tl.constexpr, C: tl.constexpr, M: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, BK: tl.constexpr,
    SPLIT: tl.constexpr, PLAIN: tl.constexpr, ST: tl.constexpr, IP: tl.constexpr,
) -> None:  # fmt: skip
    """Compute dW[(dy, dx), 4C, M] = sum over blocks p of S[p]^T G[p - (dy, dx)].

    S are the large images and G the small images. Each program computes one tile (TM, TN) of one of SPLIT parts of the
    sum.
    """
    n = tl.program_id(1).to(tl.int64)
    g: tl.constexpr = h + 1
    nm: tl.constexpr = 4 * C // TM
    nn: tl.constexpr = 4 * M // TN
    t = tl.program_id(0) % (nm * nn)
    s = tl.program_id(0) // (nm * nn)
    c = (t % nm) * TM + tl.arange(0, TM)
    col = (t // nm) * TN + tl.arange(0, TN)
    d = col // M
    o = col % M
    span: tl.constexpr = h * h * M if PLAIN else (h + 2) * (h + 2) * M
    S += n * B * (g * g * 4 * C)
    G += n * B * span
    per: tl.constexpr = (B * g * g + BK * SPLIT - 1) // (BK * SPLIT)
    acc = tl.zeros((TM, TN), tl.float32)
    for u in tl.range(0, per, num_stages=ST):
        p = (s * per + u) * BK + tl.arange(0, BK)
        b = p // (g * g)
        i = p // g % g
        j = p % g
        live = p < B * (g * g)
        a = tl.load(S + p[:, None] * (4 * C) + c[None, :], mask=live[:, None], other=0.0)
        y = i[:, None] - (d // 2)[None, :]
        x = j[:, None] - (d % 2)[None, :]
        ok = live[:, None]
        if PLAIN:
            ok = ok & (y >= 0) & (y < h) & (x >= 0) & (x < h)
        e = tl.load(G + image_offset(b[:, None], y, x, h, M, PLAIN) + o[None, :], mask=ok, other=0.0)
        acc = tl.dot(tl.trans(a), e, acc, input_precision=IP)
    tl.store(OUT + n * stride_n + s * stride_s + (d * (4 * C))[None, :] * M + c[:, None] * M + o[None, :], acc)


def conv4x4_weight_gradient(
    large: Tensor, small: Tensor, out: Tensor, h: int, C: int, M: int, plain: bool, sums: PartSums | None = None
) -> None:
    """Write the weight gradient of a convolution or transposed convolution into `out`.

    Args:
        large: The blocked large images, which are the inputs of a convolution or the output gradients of a transposed
            convolution.
        small: The small images, which are the output gradients of a convolution or the inputs of a transposed
            convolution.
        out: Tensor (r, 16 C M) that receives the gradient. Its rows may have any stride.
        h: The side of the small images.
        C: The channels of the large images.
        M: The channels of the small images.
        plain: Whether the small images are plain. Otherwise they are blocked.
        sums: If given, partial sums may be handed to it. `out` is then complete only after `sums.run()`.
    """
    runs, batch = large.shape[:2]
    tuned = launch_settings("conv4x4 weight gradient", C, M, large.dtype, runs)
    split = tuned["SPLIT"]
    tiles = (4 * C // tuned["TM"]) * (4 * M // tuned["TN"])
    part = out if split == 1 else torch.empty(runs, split, 16 * C * M, device=large.device)
    split_stride = part.stride(1) if split > 1 else 0
    _conv4x4_weight_gradient[(tiles * split, runs)](
        large, small, part, part.stride(0), split_stride,
        B=batch, h=h, C=C, M=M, PLAIN=plain, IP=product_precision(large.dtype), **tuned,
    )  # fmt: skip
    if split > 1:
        add_parts(part, out, sums)


@kernel
def _image_conv4x4_weight_gradient(
    X: tl.tensor, W: tl.tensor, ACT: tl.tensor, DY: tl.tensor, SCALE: tl.tensor, PARTW: tl.tensor, PARTB: tl.tensor,
    P: tl.tensor, B: tl.tensor, h: tl.constexpr, C: tl.constexpr, M: tl.constexpr, BM: tl.constexpr, IT: tl.constexpr,
    BACK: tl.constexpr, PLAIN: tl.constexpr, IP: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    g: tl.constexpr = h + 1
    q: tl.constexpr = h // 2 + 1
    span: tl.constexpr = h * h * M if PLAIN else q * q * 4 * M
    o = tl.arange(0, M)
    k = tl.arange(0, 16 * C)
    strip = (k // (8 * C)) * (g * 4 * C) + k % (8 * C)
    X += n * B * (g * g * 4 * C)
    ACT += n * B * span
    DY += n * B * span
    dw = tl.zeros((16 * C, M), tl.float32)
    db = tl.zeros((M,), tl.float32)
    if BACK:
        w = tl.load(W + n * P + k[:, None] * M + o[None, :])
    for s in range(IT):
        m = (tl.program_id(0) * IT + s) * BM + tl.arange(0, BM)
        live = m < B * h * h
        b = m // (h * h)
        i = m // h % h
        j = m % h
        a = tl.load(X + (((b * g + i) * g + j) * (4 * C))[:, None] + strip[None, :], mask=live[:, None], other=0.0)
        at = image_offset(b, i, j, h, M, PLAIN)[:, None] + o[None, :]
        act = tl.load(ACT + at, mask=live[:, None], other=0.0)
        if BACK:
            scale = tl.load(SCALE + n * B + b, mask=live, other=0.0)
            a = (a.to(tl.float32) * scale[:, None]).to(act.dtype)
            dy = tl.where(act > 0, tl.dot(a, w, input_precision=IP), 0.0)
            db += tl.sum(dy, 0)
            tl.store(DY + at, dy.to(DY.dtype.element_ty), mask=live[:, None])
        dw = tl.dot(tl.trans(a), act, dw, input_precision=IP)
    z = n * tl.num_programs(0) + tl.program_id(0)
    tl.store(PARTW + z * (16 * C * M) + k[:, None] * M + o[None, :], dw)
    if BACK:
        tl.store(PARTB + z * M + o, db)


def image_conv4x4_weight_gradient(
    images: Tensor, small: Tensor, out: Tensor, h: int, C: int, plain: bool,
    weight: Tensor | None = None, scale: Tensor | None = None, into: Tensor | None = None,
    sums: PartSums | None = None,
) -> Tensor:  # fmt: skip
    """Write the weight gradient of the first layer of an encoder or of the last layer of a decoder into `out`.

    For a decoder, the gradient with respect to the input of the layer is computed as well.

    Args:
        images: Blocked images of C channels, which are the inputs of an encoder. For a decoder, they are the
            derivatives of the negative log-likelihood of each sample with respect to the output of the decoder.
        small: The output gradients of the first layer of an encoder, or the inputs of the last layer of a decoder.
        out: Tensor (r, 16 C M) that receives the weight gradient. Its rows may have any stride.
        h: The side of the small images.
        C: The channels of the blocked images.
        plain: Whether the small images are plain. Otherwise they are blocked.
        weight: For a decoder, the weights of the last layer.
        scale: For a decoder, the weight of the loss of each sample, (r, b).
        into: For a decoder, receives the gradient with respect to `small`, which is zero where `small` is zero.
        sums: If given, the partial sums of the weight gradient are handed to it. `out` is then complete only after
            `sums.run()`.

    Returns:
        For a decoder, the partial sums of `into` over pixels, (r, parts, M). Otherwise the value has no meaning.
    """
    runs, batch = images.shape[:2]
    width = out.shape[1] // (16 * C)
    name = "image weight gradient" if into is None else "image decoder gradient"
    tuned = launch_settings(name, C, width, images.dtype, runs)
    programs = block_count(batch * h * h, tuned["BM"] * tuned["IT"])
    part = torch.empty(runs, programs, 16 * C * width, device=images.device)
    columns = torch.empty(runs, programs, width, device=images.device) if into is not None else part
    pointers = (images if weight is None else weight, small, small if into is None else into)
    stride = 0 if weight is None else weight.stride(0)
    _image_conv4x4_weight_gradient[(programs, runs)](
        images, *pointers, images if scale is None else scale, part, columns, stride, batch,
        h=h, C=C, M=width, BACK=into is not None, PLAIN=plain, IP=product_precision(images.dtype), **tuned,
    )  # fmt: skip
    add_parts(part, out, sums)
    return columns
