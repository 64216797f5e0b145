"""Convolutions that look ordinary to a network and take the fastest exact route the device has.

On a CPU PyTorch's own route loses time to NCHW layout and to layers with one or three channels on the image side. Here
images travel channels-last, image-side layers are one matrix product over 4x4 patches, and each gradient is the
cheaper of two equal formulas. Other devices and shapes use PyTorch's functions; all agree to rounding.
"""

from __future__ import annotations

from typing import Any

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
    """PyTorch's own route, which stacks of runs also take."""
    return F.conv_transpose2d(x, weight, bias, STRIDE, padding(weight.shape[-1]))


def rows(x: Tensor) -> Tensor:
    """Pixels as rows, (b, c, h, w) -> (b h w, c): a view of channels-last memory."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def image(pixels: Tensor, b: int, h: int, w: int) -> Tensor:
    """The inverse of `rows`."""
    return pixels.view(b, h, w, -1).permute(0, 3, 1, 2)


def patches(x: Tensor) -> Tensor:
    """The 4x4 neighbourhoods that a k4 s2 p1 convolution reads, (b, c, h, w) -> (b h/2 w/2, 16 c)."""
    windows = F.pad(x, (1, 1, 1, 1)).unfold(2, 4, STRIDE).unfold(3, 4, STRIDE)
    return windows.permute(0, 2, 3, 1, 4, 5).reshape(-1, 16 * x.shape[1])


def scatter(taps: Tensor, b: int, h: int, w: int) -> Tensor:
    """The adjoint of `patches`, (b h w, 16 c) -> (b, c, 2h, 2w).

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
    """The same tensor in channels-last memory."""
    return x.contiguous(memory_format=torch.channels_last)


class WideConv(Function):
    """Stride-2 convolution between many channels; its input gradient is a transposed convolution."""

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


class WideConvTranspose(Function):
    """Stride-2 transposed convolution between many channels; its gradients are those of the convolution it undoes."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
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
        g, p = lasting(g), padding(weight.shape[-1])
        gx = F.conv2d(g, lasting(weight), None, STRIDE, p)
        return gx, conv2d_weight(g, weight.shape, lasting(x), STRIDE, p), rows(g).sum(0)


def narrow_conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """k4 s2 p1 convolution from an image: patches times weights."""
    pixels = torch.addmm(bias, patches(x), weight.flatten(1).T)
    return image(pixels, x.shape[0], x.shape[2] // 2, x.shape[3] // 2)


class NarrowConvTranspose(Function):
    """k4 s2 p1 transposed convolution to an image: weights times pixels, scattered."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        b, _, h, w = x.shape
        return scatter(rows(x) @ weight.flatten(1), b, h, w) + bias.view(-1, 1, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        return torch.vmap(conv_transpose, in_dims)(*inputs), 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        x, weight = ctx.saved_tensors
        taps = patches(g)
        gx = image(taps @ weight.flatten(1).T, x.shape[0], *x.shape[2:])
        return gx, (rows(x).T @ taps).view(weight.shape), g.sum((0, 2, 3))


class Conv(nn.Conv2d):
    """A stride-2 convolution that halves the image."""

    def __init__(self, channels: int, width: int, kernel: int) -> None:
        super().__init__(channels, width, kernel, STRIDE, padding(kernel))

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or x.shape[-1] % 2 or x.shape[-2] % 2:
            return super().forward(x)
        if self.in_channels <= NARROW and self.kernel_size[0] == 4:
            return narrow_conv(x, self.weight, self.bias)
        return WideConv.apply(x, self.weight, self.bias)


class ConvTranspose(nn.ConvTranspose2d):
    """A stride-2 transposed convolution that doubles the image."""

    def __init__(self, channels: int, width: int, kernel: int) -> None:
        super().__init__(channels, width, kernel, STRIDE, padding(kernel))

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        if x.device.type != "cpu" or output_size is not None:
            return super().forward(x, output_size)
        if self.out_channels <= NARROW and self.kernel_size[0] == 4:
            return NarrowConvTranspose.apply(x, self.weight, self.bias)
        return WideConvTranspose.apply(x, self.weight, self.bias)

