"""Convolutions that look ordinary to a network and take the fastest exact route the device has.

On a CPU PyTorch's own route loses time to NCHW layout, to gradients of transposed convolutions and to the last decoder
layer. Here images travel channels-last, each gradient is the cheaper of two equal formulas, and the layer to the image
is one matrix product. Other devices and shapes use PyTorch's functions; all agree to rounding.
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
NARROW = 3  # image-side layers have at most this many channels


def padding(kernel: int) -> int:
    """The padding with which a stride-2 kernel halves an even image: 1 for kernel 4, 0 for kernel 2."""
    return (kernel - STRIDE) // 2


def conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """PyTorch's own route, which stacks of runs also take."""
    return F.conv2d(x, weight, bias, STRIDE, padding(weight.shape[-1]))


def conv_transpose(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """PyTorch's own route, which stacks of runs also take; the result has the bias's precision."""
    y = F.conv_transpose2d(x, weight, bias.to(x.dtype), STRIDE, padding(weight.shape[-1]))
    return y.to(bias.dtype)


def rows(x: Tensor) -> Tensor:
    """Pixels as rows, (b, c, h, w) -> (b h w, c): a view of channels-last memory."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def scatter(taps: Tensor, b: int, h: int, w: int) -> Tensor:
    """Add 4x4 patches, (b h w, 16 c), into the image they overlap in, (b, c, 2h, 2w).

    Output row 2i + k - 1 gets input row i through kernel row k: in a frame one pixel wider, k in {0, 1} fill the two
    rows of block i and k in {2, 3} those of block i + 1. Columns alike.
    """
    blocks = taps.view(b, h, w, -1, 2, 2, 2, 2).permute(0, 3, 1, 4, 5, 2, 6, 7)
    frame = taps.new_zeros(b, blocks.shape[1], h + 1, 2, w + 1, 2)
    for i in (0, 1):
        for j in (0, 1):
            frame[:, :, i : h + i, :, j : w + j] += blocks[:, :, :, i, :, :, j]
    return frame.view(b, -1, 2 * h + 2, 2 * w + 2)[:, :, 1:-1, 1:-1]


def lasting(x: Tensor) -> Tensor:
    """The same tensor in channels-last memory.

    With one channel every layout is the same memory, and only the strides tell a convolution which one is meant.
    """
    if x.shape[1] > 1:
        return x.contiguous(memory_format=torch.channels_last)
    h, w = x.shape[2:]
    return x.contiguous().as_strided(x.shape, (h * w, 1, w, 1))


class FastConv(Function):
    """Stride-2 convolution; its input gradient is a transposed convolution."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return conv(lasting(x), lasting(weight), bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        return torch.vmap(conv, in_dims)(*inputs), 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        g, p = lasting(g), padding(weight.shape[-1])
        gx = F.conv_transpose2d(g, lasting(weight), None, STRIDE, p) if ctx.needs_input_grad[0] else None
        return gx, conv2d_weight(lasting(x), weight.shape, g, STRIDE, p), rows(g).sum(0)


class FastConvTranspose(Function):
    """Stride-2 transposed convolution in the bias's precision; its gradients are those of the conv it undoes."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if weight.shape[1] <= NARROW and weight.shape[-1] == 4:
            b, _, h, w = x.shape
            return scatter((rows(x) @ weight.flatten(1)).to(bias.dtype), b, h, w) + bias.view(-1, 1, 1)
        return conv_transpose(lasting(x), lasting(weight), bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        return torch.vmap(conv_transpose, in_dims)(*inputs), 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        pixels, p = lasting(g.to(x.dtype)), padding(weight.shape[-1])
        gx = F.conv2d(pixels, lasting(weight), None, STRIDE, p)
        return gx, conv2d_weight(pixels, weight.shape, lasting(x), STRIDE, p), rows(g).sum(0)


class Flatten(nn.Flatten):
    """Images as rows in full precision, for the dense layers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).float() if x.dtype == torch.bfloat16 else super().forward(x)


class Conv(nn.Conv2d):
    """A stride-2 convolution that halves the image. When `reduced` it multiplies in bfloat16 and adds in float32."""

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
    """A stride-2 transposed convolution that doubles the image, `reduced` as in `Conv`; images come out in float32."""

    reduced = False

    def __init__(self, channels: int, width: int, kernel: int) -> None:
        super().__init__(channels, width, kernel, STRIDE, padding(kernel))

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:  # always twice the input
        dtype = torch.bfloat16 if self.reduced else self.weight.dtype
        bias = cast(Tensor, self.bias)
        bias = bias if self.out_channels <= NARROW else bias.to(dtype)
        transpose: Callable[..., Tensor] = FastConvTranspose.apply if x.device.type == "cpu" else conv_transpose
        return transpose(x.to(dtype), self.weight.to(dtype), bias)
