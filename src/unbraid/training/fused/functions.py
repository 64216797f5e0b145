"""Encoder, decoder and critic of a whole stack as differentiable functions of (rows, their copy, inputs).

`rows` are the float32 parameters (r, p), which only carry the gradient; `copy` is what kernels read, in the precision
they multiply in. Activations and their gradients have the copy's precision, sums are float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from unbraid.accel.kernels.blocked import block, border
from unbraid.accel.kernels.conv2x2 import two, two_back, two_weight
from unbraid.accel.kernels.conv4x4 import down
from unbraid.accel.kernels.conv_transpose4x4 import image, image_nll, up
from unbraid.accel.kernels.weights import image_weight_gradient, weight_gradient
from unbraid.training.fused import dense
from unbraid.training.fused.dense import add_up
from unbraid.training.fused.networks import Layer, Plan
from unbraid.training.fused.streams import Fork


def convolve(copy: Tensor, layer: Layer, x: Tensor) -> Tensor:
    """A convolution with its ReLU."""
    weight, bias = layer.weight.flat(copy), layer.bias.flat(copy)
    if layer.kernel == 2:
        return two(x, weight, bias, layer.h, layer.C, layer.M)
    return down(x, weight, bias, layer.h, layer.C, layer.M, layer.plain)[0]


class Encode(Function):
    """Images (r, b, c, h, h) to the encoder's output (r, b, 2d), float32."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, copy: Tensor, x: Tensor, plan: Plan) -> Tensor:
        images = [block(x, plan.convs[0].C, copy.dtype)]
        for layer in plan.convs:
            images.append(convolve(copy, layer, images[-1]))
        values = dense.forward(copy, list(plan.dense), images[-1].flatten(2))
        ctx.plan, ctx.count = plan, len(images)
        ctx.save_for_backward(copy, *images, *values[1:])
        return values[-1][..., : plan.outputs].float()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        copy, *saved = ctx.saved_tensors
        images, values = saved[: ctx.count], saved[ctx.count :]
        out, fork = plan.packing.gradient(copy), Fork(copy.device)
        (gradient,) = gradients
        g = dense.widened(gradient.to(copy.dtype), values[-1].shape[-1])
        flat = images[-1].flatten(2)
        g = dense.backward(copy, list(plan.dense), [flat, *values], g, out, fork, masked=False)
        g = torch.ops.aten.threshold_backward(g, flat, 0).view_as(images[-1])
        fork(add_up, g, (1, 2, 3), plan.convs[-1].bias.of(out))
        g = descend(copy, plan.convs, images, g, out, fork)
        first = plan.convs[0]
        image_weight_gradient(images[0], g, first.weight.flat(out), first.h, first.C, first.plain)
        gx = None
        if ctx.needs_input_grad[2]:
            assert plan.image is not None
            gx = image(g, first.weight.flat(copy), None, first.C, plan.image[0], first.h, first.plain)
        fork.join()
        return out, None, gx, None


def descend(
    copy: Tensor, layers: tuple[Layer, ...], images: list[Tensor], g: Tensor, out: Tensor, fork: Fork
) -> Tensor:
    """The gradient before the first convolution's ReLU, from that before the last one's."""
    for i in range(len(layers) - 1, 0, -1):
        layer, x = layers[i], images[i]
        sizes, weight, into = (layer.h, layer.C, layer.M), layer.weight.flat(copy), layer.weight.flat(out)
        if layer.kernel == 2:
            fork(two_weight, x, g, into, *sizes)
            g, part = two_back(g, weight, x, *sizes)
        else:
            fork(weight_gradient, x, g, into, *sizes, layer.plain)
            g, part = up(g, weight, None, *sizes, layer.plain, act=x)
        fork(add_up, part, 1, layers[i - 1].bias.of(out))
    return g


def ascend(copy: Tensor, plan: Plan, z: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Dense values and the images before the last layer of a decoder."""
    values = dense.forward(copy, list(plan.dense), z)
    first = plan.convs[0]
    images = [values[-1].view(*z.shape[:2], first.h, first.h, first.M)]
    for layer in plan.convs[:-1]:
        sizes = (layer.h, layer.C, layer.M)
        weight, bias = layer.weight.flat(copy), layer.bias.flat(copy)
        images.append(up(images[-1], weight, bias, *sizes, layer.plain)[0])
    return values, images


def decoder_backward(
    copy: Tensor, plan: Plan, values: list[Tensor], images: list[Tensor], slopes: Tensor, sums: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients by the parameters, (r, p), and by z, from blocked slopes at the image times a number a sample."""
    out, fork, final = plan.packing.gradient(copy), Fork(copy.device), plan.convs[-1]
    g = torch.empty_like(images[-1])
    if not final.plain:
        border(g, final.h, final.M)
    part = image_weight_gradient(
        slopes, images[-1], final.weight.flat(out), final.h, final.C, final.plain, final.weight.flat(copy), scale, g
    )
    fork(add_up, (scale[..., None, None] * sums).flatten(1, 2), 1, final.bias.of(out))
    for i in range(len(plan.convs) - 2, -1, -1):
        layer, sizes = plan.convs[i], (plan.convs[i].h, plan.convs[i].C, plan.convs[i].M)
        fork(add_up, part, 1, layer.bias.of(out))
        fork(weight_gradient, g, images[i], layer.weight.flat(out), *sizes, layer.plain)
        g, part = down(g, layer.weight.flat(copy), None, *sizes, layer.plain, act=images[i])
    gz = dense.backward(copy, list(plan.dense), values, g.flatten(2), out, fork, masked=True)
    fork.join()
    return out, gz[..., : plan.inputs].float()


class Nll(Function):
    """Latents (r, b, d) and target images to -log p(x|z) of every sample, (r, b)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, copy: Tensor, z: Tensor, x: Tensor, plan: Plan, kind: int) -> Tensor:
        values, images = ascend(copy, plan, z)
        last = plan.convs[-1]
        weight, bias = last.weight.flat(copy), last.bias.flat(copy)
        loss, slopes, sums = image_nll(images[-1], weight, bias, x, last.C, last.plain, kind)
        ctx.plan, ctx.count = plan, len(values)
        ctx.save_for_backward(copy, slopes, sums, *values, *images)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        copy, slopes, sums, *saved = ctx.saved_tensors
        values, images = saved[: ctx.count], saved[ctx.count :]
        out, gz = decoder_backward(copy, ctx.plan, values, images, slopes, sums, gradients[0].contiguous())
        return out, None, gz, None, None, None


class Decode(Function):
    """Latents (r, b, d) to the decoder's output, float32 images (r, b, c, h, h)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, copy: Tensor, z: Tensor, plan: Plan) -> Tensor:
        values, images = ascend(copy, plan, z)
        last = plan.convs[-1]
        assert plan.image is not None
        weight, bias = last.weight.flat(copy), last.bias.flat(copy)
        ctx.plan, ctx.count = plan, len(values)
        ctx.save_for_backward(copy, *values, *images)
        return image(images[-1], weight, bias, last.C, plan.image[0], last.h, last.plain)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        copy, *saved = ctx.saved_tensors
        values, images = saved[: ctx.count], saved[ctx.count :]
        (g,), last = gradients, ctx.plan.convs[-1]
        sums = dense.widened(g.sum((3, 4)), last.C)[:, :, None]
        ones = torch.ones(g.shape[:2], device=g.device)
        slopes = block(g, last.C, copy.dtype)
        out, gz = decoder_backward(copy, ctx.plan, values, images, slopes, sums, ones)
        return out, None, gz, None


class Critic(Function):
    """Codes (r, b, d) to the outputs of dense layers, float32."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, copy: Tensor, z: Tensor, plan: Plan) -> Tensor:
        values = dense.forward(copy, list(plan.dense), z)
        ctx.plan = plan
        ctx.save_for_backward(copy, *values)
        return values[-1][..., : plan.outputs].float()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        copy, *values = ctx.saved_tensors
        out = plan.packing.gradient(copy) if ctx.needs_input_grad[0] else None
        fork = Fork(copy.device)
        g = dense.widened(gradients[0].to(copy.dtype), values[-1].shape[-1])
        gz = dense.backward(copy, list(plan.dense), values, g, out, fork, masked=False)
        fork.join()
        return out, None, gz[..., : plan.inputs].float(), None
