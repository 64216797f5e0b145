"""4x4 stride-2 layers from the large image to the small one: convolutions, and gradients of transposed ones.

Weights of a run are (dy, dx, py, px, C, M), tap (2 dy + py, 2 dx + px), so that an output pixel is the product of two
contiguous strips of 8C with (8C, M) matrices. A program walks down a column of the image: a strip is read once and
serves two output rows, and the weights stay on the chip.
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.blocked import blocked, border, offset
from unbraid.accel.kernels.jit import blocks, kernel
from unbraid.accel.kernels.tuned import launch

NARROW = 16  # an image with fewer channels is read in one product of all 16 taps


@kernel
def _down_image(
    X: tl.tensor, W: tl.tensor, BIAS: tl.tensor, Y: tl.tensor, P: tl.tensor, B: tl.tensor, XS: tl.tensor,
    h: tl.constexpr, C: tl.constexpr, M: tl.constexpr, BM: tl.constexpr, PLAIN: tl.constexpr, EVEN: tl.constexpr,
) -> None:  # fmt: skip
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
    acc = tl.dot(tl.load(at, mask=live[:, None], other=0.0), tl.load(W + n * P + k[:, None] * M + o[None, :]))
    acc += tl.load(BIAS + n * P + o).to(tl.float32)[None, :]
    acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    to = Y + n * B * span + offset(b, i, j, h, M, PLAIN)[:, None] + o[None, :]
    tl.store(to, acc.to(Y.dtype.element_ty), mask=live[:, None])


@kernel
def _down(
    X: tl.tensor, W: tl.tensor, BIAS: tl.tensor, Y: tl.tensor, ACT: tl.tensor, PART: tl.tensor, P: tl.tensor,
    B: tl.tensor, h: tl.constexpr, C: tl.constexpr, M: tl.constexpr, BO: tl.constexpr, BM: tl.constexpr,
    PLAIN: tl.constexpr, BACK: tl.constexpr, EVEN: tl.constexpr, ST: tl.constexpr, CAT: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    r = tl.program_id(0) * BM + tl.arange(0, BM)
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
    if CAT:  # both products at once, their columns interleaved
        w = tl.reshape(tl.join(w0, w1), (8 * C, 2 * BO))
    strip = X + n * B * (g * g * 4 * C) + ((b * (g * g) + j) * (4 * C))[:, None] + k[None, :]
    Y += n * B * span
    ACT += n * B * span
    bias = tl.load(BIAS + n * P + o).to(tl.float32)
    total = tl.zeros((BM, BO), tl.float32)
    carry = tl.dot(tl.load(strip, mask=live[:, None], other=0.0), w0)
    for i in tl.range(0, h, num_stages=ST):
        to = offset(b, i, j, h, M, PLAIN)[:, None] + o[None, :]
        if BACK:  # asked for before the products, it is there after them
            mask = tl.load(ACT + to, mask=live[:, None], other=0.0) > 0
        a = tl.load(strip + (i + 1) * (g * 4 * C), mask=live[:, None], other=0.0)
        if CAT:
            t0, t1 = tl.split(tl.reshape(tl.dot(a, w), (BM, BO, 2)))
            acc = carry + t1
            carry = t0
        else:
            acc = tl.dot(a, w1, carry)
            carry = tl.dot(a, w0)
        if BACK:
            acc = tl.where(mask, acc, 0.0)
            total += acc
        else:
            acc = tl.maximum(acc + bias[None, :], 0.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(Y + to, acc.to(Y.dtype.element_ty), mask=live[:, None])
    if BACK:
        tl.store(PART + (n * tl.num_programs(0) + tl.program_id(0)) * M + o, tl.sum(total, 0))


def down(
    x: Tensor, weight: Tensor, bias: Tensor | None, h: int, C: int, M: int, plain: bool, act: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The small images (side h, M channels) of blocked ones (side 2h, C channels), plain or blocked.

    With a bias it is a layer with its ReLU. Else it is the gradient of the activations `act`, masked where they are
    zero, and comes with its sums, (r, parts, M), the gradient of the bias of the layer below.
    """
    runs, batch = x.shape[:2]
    stride = weight.stride(0)
    y = x.new_empty(runs, batch, h, h, M) if plain else border(blocked(x, h, M, x.dtype), h, M)  # x may be expanded
    if C < NARROW:
        tuned = launch("image", C, M, x.dtype)
        m = batch * h * h
        grid = (blocks(m, tuned["BM"]), runs)
        options = {"PLAIN": plain, "EVEN": m % tuned["BM"] == 0, **tuned}
        _down_image[grid](x, weight, bias, y, stride, batch, x.stride(0), h=h, C=C, M=M, **options)
        return y, y
    tuned = launch("down" if act is None else "down back", C, M, x.dtype)
    tall = blocks(batch * h, tuned["BM"])
    even = batch * h % tuned["BM"] == 0
    back = act is not None
    part = torch.empty(runs, tall, M, device=x.device) if back else y
    _down[(tall, runs, M // tuned["BO"])](
        x, weight, weight if bias is None else bias, y, y if act is None else act, part, stride, batch,
        h=h, C=C, M=M, PLAIN=plain, BACK=back, EVEN=even, **tuned,
    )  # fmt: skip
    return y, part
