"""Stride-2 convolution layers with a faster implementation on the CPU.

On a CPU, PyTorch's own functions are slow for images in the NCHW layout, for the gradients of transposed convolutions
and for the last layer of a decoder. The layers here keep images in channels-last memory, use the cheaper of two
equivalent formulas for each gradient, and compute the last layer of a decoder as one matrix product. Other devices and
shapes use PyTorch's functions. The results agree up to rounding.
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
MAX_IMAGE_CHANNELS = 3  # a layer with at most this many output channels is the last layer of a decoder
SMALL_SIDE = 8  # up to this image side, the weight gradient in bfloat16 is faster as a matrix product


def padding(kernel: int) -> int:
    """Return the padding with which a stride-2 kernel halves the side of an image, 1 for 4x4 and 0 for 2x2 kernels."""
    return (kernel - STRIDE) // 2


def conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute a stride-2 convolution with PyTorch."""
    return F.conv2d(x, weight, bias, STRIDE, padding(weight.shape[-1]))


def conv_transpose(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute a stride-2 transposed convolution with PyTorch. The output has the dtype of the bias."""
    y = F.conv_transpose2d(x, weight, bias.to(x.dtype), STRIDE, padding(weight.shape[-1]))
    return y.to(bias.dtype)


def pixel_rows(x: Tensor) -> Tensor:
    """Return the pixels of images (b, c, h, w) as rows (b h w, c), as a view if the images are channels-last."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def add_shifted(target: Tensor, source: Tensor, shift: int, axis: int) -> None:
    """Add `source`, moved by `shift` (1 or -1) elements along an axis, to `target` in place.

    Values that are moved out of the image are dropped.
    """
    n = target.shape[axis] - 1
    start = max(shift, 0)
    target.narrow(axis, start, n).add_(source.narrow(axis, 1 - start, n))


def transpose_to_image(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute a transposed convolution of kernel size 4 with few output channels as one matrix product.

    The product gives 16 planes, one for each position in the kernel. An output pixel is the sum of four of them. Output
    row 2i is the sum of input row i with kernel row 1 and of input row i - 1 with kernel row 3. Output row 2i + 1 is
    the sum of input row i with kernel row 2 and of input row i + 1 with kernel row 0. The same holds for columns.
    """
    b, c_in, h, w = x.shape
    taps = weight.permute(2, 3, 1, 0).reshape(-1, c_in)
    planes = (taps @ pixel_rows(x).t()).to(bias.dtype).view(4, 4, -1, b, h, w)
    image = planes.new_empty(b, weight.shape[1], 2 * h, 2 * w)
    pixels_by_parity = image.view(b, -1, h, 2, w, 2)
    neighbours = ((0, 1, 3, 1), (1, 2, 0, -1))  # parity of the output, own kernel row, neighbour's kernel row, shift
    for i, own, neighbour, shift in neighbours:
        rows = planes[own]
        add_shifted(rows, planes[neighbour], shift, -2)
        for j, own_column, neighbour_column, column_shift in neighbours:
            pixels = rows[own_column]
            add_shifted(pixels, rows[neighbour_column], column_shift, -1)
            torch.add(pixels.transpose(0, 1), bias.view(-1, 1, 1), out=pixels_by_parity[:, :, :, i, :, j])
    return image


def image_patches(x: Tensor, kernel: int) -> Tensor:
    """Return the pixels that each output pixel of a stride-2 convolution reads, as rows (b h w / 4, kernel^2 c)."""
    p = padding(kernel)
    padded = F.pad(x, (p, p, p, p)).permute(0, 2, 3, 1)
    patches = padded.unfold(1, kernel, STRIDE).unfold(2, kernel, STRIDE)
    return patches.permute(0, 1, 2, 4, 5, 3).reshape(-1, kernel**2 * x.shape[1])


def weight_gradient(x: Tensor, g: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient of the weight of a stride-2 convolution from its input x and the gradient g of its output.

    In bfloat16, a matrix product is faster than PyTorch's function for 2x2 kernels and for small images.
    """
    kernel = weight.shape[-1]
    if x.dtype == torch.bfloat16 and x.shape[1] > MAX_IMAGE_CHANNELS and (kernel == 2 or x.shape[-1] <= SMALL_SIDE):
        product = pixel_rows(g).t() @ image_patches(x, kernel)
        return product.view(-1, kernel, kernel, x.shape[1]).permute(0, 3, 1, 2)
    return cast(Tensor, conv2d_weight(x, weight.shape, g, STRIDE, padding(kernel)))


def to_channels_last(x: Tensor) -> Tensor:
    """Return the same images in channels-last memory.

    With one channel, all layouts use the same memory, but a convolution chooses its algorithm by the strides. They are
    therefore set to those of the channels-last layout.
    """
    if x.shape[1] > 1:
        return x.contiguous(memory_format=torch.channels_last)
    h, w = x.shape[2:]
    return x.contiguous().as_strided(x.shape, (h * w, 1, w, 1))


def fast_conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute a stride-2 convolution in channels-last memory."""
    return conv(to_channels_last(x), to_channels_last(weight), bias)


def conv_gradients(x: Tensor, weight: Tensor, g: Tensor, input_needed: bool) -> tuple[Tensor | None, Tensor, Tensor]:
    """Return the gradients of the input, the weight and the bias of a convolution from the gradient g of its output.

    The gradient of the input is a transposed convolution. It is None if it is not needed.
    """
    g, p = to_channels_last(g), padding(weight.shape[-1])
    gx = F.conv_transpose2d(g, to_channels_last(weight), None, STRIDE, p) if input_needed else None
    return gx, weight_gradient(to_channels_last(x), g, weight), pixel_rows(g).sum(0)


def fast_conv_transpose(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute a stride-2 transposed convolution. The output has the dtype of the bias."""
    if weight.shape[1] <= MAX_IMAGE_CHANNELS and weight.shape[-1] == 4:
        return transpose_to_image(x, weight, bias)
    return conv_transpose(to_channels_last(x), to_channels_last(weight), bias)


def conv_transpose_gradients(
    x: Tensor, weight: Tensor, g: Tensor, input_needed: bool = True
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Return the gradients of the input, the weight and the bias of a transposed convolution.

    All of them are computed from the gradient g of the output by ordinary convolutions. The gradient of the input is
    None if it is not needed.
    """
    pixels, p = to_channels_last(g.to(x.dtype)), padding(weight.shape[-1])
    gx = F.conv2d(pixels, to_channels_last(weight), None, STRIDE, p) if input_needed else None
    return gx, weight_gradient(pixels, to_channels_last(x), weight), pixel_rows(g).sum(0)


class FastConv(Function):
    """A stride-2 convolution that is fast on a CPU."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return fast_conv(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        return torch.vmap(conv, in_dims)(*inputs), 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return conv_gradients(x, weight, g, ctx.needs_input_grad[0])


class FastConvTranspose(Function):
    """A stride-2 transposed convolution that is fast on a CPU. The output has the dtype of the bias."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return fast_conv_transpose(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        return torch.vmap(conv_transpose, in_dims)(*inputs), 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return conv_transpose_gradients(x, weight, g, ctx.needs_input_grad[0])


class Flatten(nn.Flatten):
    """Flattens images and converts bfloat16 to float32, because the dense layers that follow use float32."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).float() if x.dtype == torch.bfloat16 else super().forward(x)


class Conv(nn.Conv2d):
    """A stride-2 convolution that halves the side of the image.

    If `reduced`, the layer multiplies in bfloat16 and adds in float32. The output has the dtype of the input. If
    `twice_differentiable`, it always uses PyTorch's function, whose gradient can be differentiated under `vmap`.
    """

    reduced = False
    twice_differentiable = False

    def __init__(self, channels: int, width: int, kernel: int) -> None:
        super().__init__(channels, width, kernel, STRIDE, padding(kernel))

    def forward(self, x: Tensor) -> Tensor:
        fast = x.device.type == "cpu" and x.shape[-1] % 2 == x.shape[-2] % 2 == 0 and not self.twice_differentiable
        convolve: Callable[..., Tensor] = FastConv.apply if fast else conv
        return convolve(*self.operands(x, self.weight, cast(Tensor, self.bias))).to(x.dtype)

    def operands(self, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the input and the parameters in the precision of the layer."""
        dtype = torch.bfloat16 if self.reduced else weight.dtype
        return x.to(dtype), weight.to(dtype), bias.to(dtype)


class ConvTranspose(nn.ConvTranspose2d):
    """A stride-2 transposed convolution that doubles the side of the image.

    If `reduced`, the layer multiplies in bfloat16 and adds in float32. The output has the dtype of the input.
    """

    reduced = False

    def __init__(self, channels: int, width: int, kernel: int) -> None:
        super().__init__(channels, width, kernel, STRIDE, padding(kernel))

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:  # output_size is ignored
        transpose: Callable[..., Tensor] = FastConvTranspose.apply if x.device.type == "cpu" else conv_transpose
        return transpose(*self.operands(x, self.weight, cast(Tensor, self.bias))).to(x.dtype)

    def operands(self, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the input and the parameters in the precision of the layer. The output has the dtype of the bias."""
        dtype = torch.bfloat16 if self.reduced else weight.dtype
        bias = bias if self.out_channels <= MAX_IMAGE_CHANNELS else bias.to(dtype)
        return x.to(dtype), weight.to(dtype), bias
