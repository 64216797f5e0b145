"""The blocked layout of images, in which a 4x4 stride-2 layer is a matrix product.

- A *plain* image has shape (h, h, C), with side h and C channels.
- A *blocked* image has a border of zeros of one pixel and is divided into blocks of 2x2 pixels. Its shape is
  (h/2 + 1, h/2 + 1, 2, 2, C). The first block begins at pixel (-1, -1).

Output pixel (i, j) of a 4x4 stride-2 convolution with padding 1 reads input rows 2i - 1 to 2i + 2 and input columns
2j - 1 to 2j + 2. These are exactly the four blocks (i, j), (i, j + 1), (i + 1, j) and (i + 1, j + 1).
"""

from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.jit import kernel, next_power_of_two


def empty_blocked(like: Tensor, side: int, channels: int, dtype: torch.dtype) -> Tensor:
    """Allocate blocked images (r, b, side/2 + 1, side/2 + 1, 4 * channels), with the r, b and device of `like`."""
    return torch.empty(*like.shape[:2], side // 2 + 1, side // 2 + 1, 4 * channels, device=like.device, dtype=dtype)


@kernel
def pixel_offset(y: tl.tensor, x: tl.tensor, g: tl.tensor, C: tl.constexpr) -> tl.tensor:
    """Return the offset of pixel (y, x) in a blocked image of g x g blocks.

    On the border, y or x is -1 or the side of the image.
    """
    return (((y + 1) // 2) * g + (x + 1) // 2) * 4 * C + (((y + 1) % 2) * 2 + (x + 1) % 2) * C


@kernel
def image_offset(
    b: tl.tensor, y: tl.tensor, x: tl.tensor, h: tl.constexpr, C: tl.constexpr, PLAIN: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Return the offset of pixel (y, x) of sample b in plain or blocked images of side h."""
    if PLAIN:
        return ((b * h + y) * h + x) * C
    else:  # noqa: RET505 (Triton compiles one branch)
        q: tl.constexpr = h // 2 + 1
        return b * (q * q * 4 * C) + pixel_offset(y, x, q, C)


@kernel
def _zero_border(Y: tl.tensor, h: tl.constexpr, C: tl.constexpr, BP: tl.constexpr) -> None:
    q: tl.constexpr = h // 2 + 1
    r = tl.arange(0, BP)
    side = r // (h + 2)
    t = r % (h + 2) - 1
    y = tl.where(side == 0, -1, tl.where(side == 1, h, t))
    x = tl.where(side == 2, -1, tl.where(side == 3, h, t))
    c = tl.arange(0, C)
    image = Y + tl.program_id(0).to(tl.int64) * (q * q * 4 * C)
    zero = tl.zeros((BP, C), Y.dtype.element_ty)
    tl.store(image + pixel_offset(y, x, q, C)[:, None] + c[None, :], zero, mask=(r < 4 * (h + 2))[:, None])


def zero_border(images: Tensor, side: int, channels: int) -> Tensor:
    """Set the border of blocked images to zero in place, and return the images."""
    count = images.shape[0] * images.shape[1]
    _zero_border[(count,)](images, side, channels, next_power_of_two(4 * (side + 2)), num_warps=4)
    return images


@kernel
def _to_blocked(
    X: tl.tensor, Y: tl.tensor, h: tl.constexpr, C: tl.constexpr, CR: tl.constexpr, BP: tl.constexpr,
) -> None:  # fmt: skip
    """Convert images with CR channels to blocked images with C channels.

    Position p counts the pixels block by block, and within a block row by row.
    """
    q: tl.constexpr = h // 2 + 1
    n = tl.program_id(0).to(tl.int64)
    for s in range((4 * q * q + BP - 1) // BP):
        p = s * BP + tl.arange(0, BP)
        y = p // (4 * q) * 2 + p // 2 % 2 - 1
        x = p // 4 % q * 2 + p % 2 - 1
        inside = (y >= 0) & (y < h) & (x >= 0) & (x < h)
        at = X + n * (h * h * CR) + y * h + x
        value = tl.load(at, mask=inside, other=0.0)
        if C == 4:
            g = tl.load(at + h * h, mask=inside, other=0.0)
            b = tl.load(at + 2 * h * h, mask=inside, other=0.0)
            value = tl.join(tl.join(value, b), tl.join(g, tl.zeros_like(g)))
            r = p[:, None, None] * 4 + tl.arange(0, 2)[None, :, None] * 2 + tl.arange(0, 2)[None, None, :]
            live = (p < 4 * q * q)[:, None, None] & (r >= 0)
        else:
            r = p
            live = p < 4 * q * q
        tl.store(Y + n * (4 * q * q * C) + r, value.to(Y.dtype.element_ty), mask=live)


def to_blocked(images: Tensor, stored: int, dtype: torch.dtype) -> Tensor:
    """Convert float images (r, b, c, h, h) to blocked images.

    `stored` is the number of channels of the blocked images: 1 for images with one channel, and 4 for RGB images. The
    fourth channel is then zero.
    """
    runs, batch, channels, side = images.shape[:4]
    out = empty_blocked(images, side, stored, dtype)
    _to_blocked[(runs * batch,)](images.contiguous(), out, side, stored, channels, 1024, num_warps=4)
    return out
