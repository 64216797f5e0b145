"""Stride-2 convolution layers with a faster implementation on the CPU.

On a CPU, PyTorch's own functions lose time to the NCHW layout, to the gradients of transposed convolutions and to the
last layer of a decoder. The layers here keep images in channels-last memory, use the cheaper of two equal formulas for
each gradient, and compute the layer to the image as one matrix product. Other devices and shapes use PyTorch's
functions. The results agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.grad import conv2d_weight

STRIDE = 2
MAX_IMAGE_CHANNELS = 3  # most channels of an image


def padding(kernel: int) -> int:
    """The padding with which a stride-2 kernel halves an even image: 1 for a 4x4 kernel, 0 for a 2x2 kernel."""
    return (kernel - STRIDE) // 2


def conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The stride-2 convolution of PyTorch, also under `vmap` over runs."""
    return F.conv2d(x, weight, bias, STRIDE, padding(weight.shape[-1]))


def conv_transpose(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The stride-2 transposed convolution of PyTorch, also under `vmap`. The output has the dtype of the bias."""
    y = F.conv_transpose2d(x, weight, bias.to(x.dtype), STRIDE, padding(weight.shape[-1]))
    return y.to(bias.dtype)


def pixel_rows(x: Tensor) -> Tensor:
    """The pixels of images (b, c, h, w) as rows (b h w, c), a view if the images are in channels-last memory."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def scatter_patches(taps: Tensor, b: int, h: int, w: int) -> Tensor:
    """Add overlapping 4x4 patches, (b h w, 16 c), into images (b, c, 2h, 2w).

    Input row i contributes to output row 2i + k - 1 through kernel row k. In an image with a border of one pixel,
    k in {0, 1} are the two rows of block i and k in {2, 3} those of block i + 1. The same holds for columns.
    """
    blocks = taps.view(b, h, w, -1, 2, 2, 2, 2).permute(0, 3, 1, 4, 5, 2, 6, 7)
    frame = taps.new_zeros(b, blocks.shape[1], h + 1, 2, w + 1, 2)
    for i in (0, 1):
        for j in (0, 1):
            frame[:, :, i : h + i, :, j : w + j] += blocks[:, :, :, i, :, :, j]
    return frame.view(b, -1, 2 * h + 2, 2 * w + 2)[:, :, 1:-1, 1:-1]


def to_channels_last(x: Tensor) -> Tensor:
    """The same images in channels-last memory.

    With one channel all layouts are the same memory, and the strides tell a convolution which layout is meant.
    """
    if x.shape[1] > 1:
        return x.contiguous(memory_format=torch.channels_last)
    h, w = x.shape[2:]
    return x.contiguous().as_strided(x.shape, (h * w, 1, w, 1))


class FastConv(Function):
    """A stride-2 convolution whose input gradient is computed as a transposed convolution."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return conv(to_channels_last(x), to_channels_last(weight), bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        return torch.vmap(conv, in_dims)(*inputs), 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        g, p = to_channels_last(g), padding(weight.shape[-1])
        gx = F.conv_transpose2d(g, to_channels_last(weight), None, STRIDE, p) if ctx.needs_input_grad[0] else None
        return gx, conv2d_weight(to_channels_last(x), weight.shape, g, STRIDE, p), pixel_rows(g).sum(0)


class FastConvTranspose(Function):
    """A stride-2 transposed convolution with the dtype of the bias. Its gradients are ordinary convolutions."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if weight.shape[1] <= MAX_IMAGE_CHANNELS and weight.shape[-1] == 4:
            b, _, h, w = x.shape
            return scatter_patches((pixel_rows(x) @ weight.flatten(1)).to(bias.dtype), b, h, w) + bias.view(-1, 1, 1)
        return conv_transpose(to_channels_last(x), to_channels_last(weight), bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        return torch.vmap(conv_transpose, in_dims)(*inputs), 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        pixels, p = to_channels_last(g.to(x.dtype)), padding(weight.shape[-1])
        gx = F.conv2d(pixels, to_channels_last(weight), None, STRIDE, p)
        return gx, conv2d_weight(pixels, weight.shape, to_channels_last(x), STRIDE, p), pixel_rows(g).sum(0)


class Flatten(nn.Flatten):
    """Flattens images and converts bfloat16 to float32, for the dense layers that follow."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).float() if x.dtype == torch.bfloat16 else super().forward(x)


class Conv(nn.Conv2d):
    """A stride-2 convolution that halves the image. If `reduced`, it multiplies in bfloat16 and adds in float32."""

    reduced = False

    def __init__(self, channels: int, width: int, kernel: int) -> None:
        super().__init__(channels, width, kernel, STRIDE, padding(kernel))

    def forward(self, x: Tensor) -> Tensor:
        dtype = torch.bfloat16 if self.reduced else self.weight.dtype
        inputs = (x.to(dtype), self.weight.to(dtype), cast(Tensor, self.bias).to(dtype))
        even = x.shape[-1] % 2 == x.shape[-2] % 2 == 0
        convolve: Callable[..., Tensor] = FastConv.apply if x.device.type == "cpu" and even else conv
        return convolve(*inputs)


class ConvTranspose(nn.ConvTranspose2d):
    """A stride-2 transposed convolution that doubles the image. `reduced` is as in `Conv`. Images are float32."""

    reduced = False

    def __init__(self, channels: int, width: int, kernel: int) -> None:
        super().__init__(channels, width, kernel, STRIDE, padding(kernel))

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:  # always twice the input size
        dtype = torch.bfloat16 if self.reduced else self.weight.dtype
        bias = cast(Tensor, self.bias)
        bias = bias if self.out_channels <= MAX_IMAGE_CHANNELS else bias.to(dtype)
        transpose: Callable[..., Tensor] = FastConvTranspose.apply if x.device.type == "cpu" else conv_transpose
        return transpose(x.to(dtype), self.weight.to(dtype), bias)
