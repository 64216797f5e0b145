"""The encoder, decoder and critic of a stack of runs as differentiable functions of (rows, copy, inputs).

`rows` are the float32 parameters of all runs, (r, p). Their values are not read. They are an argument so that autograd
can return their gradient. `copy` contains the same parameters in the precision in which kernels multiply. Activations
and their gradients have the precision of the copy, and sums are computed in float32.

In the code, `g` is a gradient with respect to activations, `gx` and `gz` are gradients with respect to the images x and
the latents z, `out` receives the gradients with respect to the parameters, and `part` contains partial sums of `g` over
pixels, which give the gradient of a bias. Images between layers are plain or blocked (see
`unbraid.accel.kernels.blocked`).

The forward pass and the backward pass of each network are opaque functions (see `unbraid.accel.tracing`). Their callers
decide whether to postpone a join or weight gradients, because this depends on how often a network is used in the step.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from unbraid.accel.fitted import (
    conv2x2,
    conv2x2_input_gradient,
    conv2x2_weight_gradient,
    conv4x4,
    conv4x4_weight_gradient,
    conv_transpose4x4,
    conv_transpose4x4_image,
    conv_transpose4x4_nll,
    image_conv4x4_weight_gradient,
)  # fmt: skip
from unbraid.accel.kernels.blocked import to_blocked, zero_border
from unbraid.accel.kernels.part_sums import PartSums
from unbraid.accel.tracing import opaque
from unbraid.training.fused import dense
from unbraid.training.fused.networks import PackedConv, Plan
from unbraid.training.fused.streams import (
    Product,
    SideStream,
    count_use,
    join_is_postponed,
    postponed_products,
    postpones_products,
)

block_images = opaque(to_blocked)


def convolve(copy: Tensor, layer: PackedConv, x: Tensor) -> Tensor:
    """Apply a convolution layer with its ReLU."""
    weight, bias = layer.weight.flat_view(copy), layer.bias.flat_view(copy)
    if layer.kernel == 2:
        return conv2x2(x, weight, bias, layer.h, layer.C, layer.M)
    return conv4x4(x, weight, bias, layer.h, layer.C, layer.M, layer.plain)[0]


@opaque
def encoder_forward(copy: Tensor, x: Tensor, plan: Plan) -> tuple[list[Tensor], list[Tensor]]:
    """Return the blocked input images and the outputs of all convolutions, and the outputs of all dense layers."""
    images = [to_blocked(x, plan.convs[0].C, copy.dtype)]
    for layer in plan.convs:
        images.append(convolve(copy, layer, images[-1]))
    return images, dense.forward(copy, plan.dense, images[-1].flatten(2), plan.outputs)[1:]


@opaque
def encoder_backward(
    copy: Tensor, images: list[Tensor], values: list[Tensor], g: Tensor, plan: Plan, postponed: bool, image_needed: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of the loss with respect to the parameters, (r, p), and to the images if `image_needed`.

    Args:
        copy: The parameters of all runs, (r, p).
        images: The blocked input images and the outputs of all convolutions.
        values: The outputs of all dense layers.
        g: The gradient with respect to the output of the encoder.
        plan: The layers.
        postponed: Whether to postpone the join of the second stream (see `unbraid.training.fused.streams`).
        image_needed: Whether to compute the gradient with respect to the images.
    """
    out, side = plan.packing.empty_gradient(copy), SideStream(copy.device)
    g = dense.through_activation(plan.dense[-1], values[-1], g)
    g, part = dense.backward(copy, plan.dense, [images[-1].flatten(2), *values], g, out, side, slope=0.0)
    g, last, sums = g.view_as(images[-1]), plan.convs[-1], PartSums()
    sums.add(part.view(len(part), -1, last.M), last.bias.flat_view(out))
    g = convolutions_backward(copy, plan.convs, images, g, out, side, sums)
    first = plan.convs[0]
    into = first.weight.flat_view(out)
    image_conv4x4_weight_gradient(images[0], g, into, first.h, first.C, first.plain, sums=sums)
    side.run(PartSums.run, sums)
    gx = None
    if image_needed:
        assert plan.image is not None
        weight = first.weight.flat_view(copy)
        gx = conv_transpose4x4_image(g, weight, None, first.C, plan.image[0], first.h, first.plain)
    side.join(postponed)
    return out, gx


class Encode(Function):
    """Encoder, from images (r, b, c, h, h) to float32 outputs (r, b, 2d)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, copy: Tensor, x: Tensor, plan: Plan) -> Tensor:
        count_use(plan, ctx.needs_input_grad[0])
        images, values = encoder_forward(copy, x, plan)
        ctx.plan, ctx.count = plan, len(images)
        ctx.save_for_backward(copy, *images, *values)
        return values[-1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        copy, *saved = ctx.saved_tensors
        images, values = saved[: ctx.count], saved[ctx.count :]
        postponed = join_is_postponed(ctx.plan, len(copy))
        out, gx = encoder_backward(copy, images, values, gradients[0], ctx.plan, postponed, ctx.needs_input_grad[2])
        return out, None, gx, None


def convolutions_backward(
    copy: Tensor,
    layers: tuple[PackedConv, ...],
    images: list[Tensor],
    g: Tensor,
    out: Tensor,
    side: SideStream,
    sums: PartSums,
) -> Tensor:
    """Return the gradient at the first convolution, given the gradient `g` at the last one.

    Both are gradients with respect to the output of a convolution before its ReLU. The gradients with respect to the
    parameters are written to `out`, except for the weights of the first convolution and the bias of the last one. Some
    of these gradients are complete only after `sums.run()`.
    """
    for i in range(len(layers) - 1, 0, -1):
        layer, x = layers[i], images[i]
        sizes, weight, into = (layer.h, layer.C, layer.M), layer.weight.flat_view(copy), layer.weight.flat_view(out)
        if layer.kernel == 2:
            side.run(conv2x2_weight_gradient, x, g, into, *sizes, sums)
            g, part = conv2x2_input_gradient(g, weight, x, *sizes)
        else:
            side.run(conv4x4_weight_gradient, x, g, into, *sizes, layer.plain, sums)
            g, part = conv_transpose4x4(g, weight, None, *sizes, layer.plain, act=x)
        sums.add(part, layers[i - 1].bias.flat_view(out))
    return g


def decoder_forward(copy: Tensor, plan: Plan, z: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return the outputs of the dense layers of a decoder, and the outputs of its convolutions except the last one."""
    values = dense.forward(copy, plan.dense, z)[1:]
    images = [first_image(values, plan)]
    for layer in plan.convs[:-1]:
        sizes = (layer.h, layer.C, layer.M)
        weight, bias = layer.weight.flat_view(copy), layer.bias.flat_view(copy)
        images.append(conv_transpose4x4(images[-1], weight, bias, *sizes, layer.plain)[0])
    return values, images[1:]


def first_image(values: list[Tensor], plan: Plan) -> Tensor:
    """Return the output of the last dense layer of a decoder as images."""
    first = plan.convs[0]
    return values[-1].view(*values[-1].shape[:2], first.h, first.h, first.M)


@opaque
def decoder_backward(
    copy: Tensor, z: Tensor, values: list[Tensor], images: list[Tensor], slopes: Tensor, sums: Tensor, scale: Tensor,
    plan: Plan, postponed: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the gradients of the loss with respect to the parameters of a decoder, (r, p), and to its input z.

    The loss is a weighted sum of the losses of the samples.

    Args:
        copy: The parameters of all runs, (r, p).
        z: The input of the decoder.
        values: The outputs of the dense layers, as `decoder_forward` returns them.
        images: The outputs of the convolutions, as `decoder_forward` returns them.
        slopes: The derivatives of the loss of each sample with respect to its decoded image, as blocked images.
        sums: The sums of `slopes` over pixels, (r, b, parts, channels).
        scale: The weight of the loss of each sample, (r, b).
        plan: The layers.
        postponed: Whether to postpone the join of the second stream (see `unbraid.training.fused.streams`).
    """
    values, images = [z, *values], [first_image(values, plan), *images]
    out, side, final = plan.packing.empty_gradient(copy), SideStream(copy.device), plan.convs[-1]
    g = torch.empty_like(images[-1])
    if not final.plain:
        zero_border(g, final.h, final.M)
    weight, into = final.weight.flat_view(copy), final.weight.flat_view(out)
    later = PartSums()
    part = image_conv4x4_weight_gradient(
        slopes, images[-1], into, final.h, final.C, final.plain, weight, scale, g, later
    )
    later.add((scale[..., None, None] * sums).flatten(1, 2), final.bias.flat_view(out))
    for i in range(len(plan.convs) - 2, -1, -1):
        layer, sizes = plan.convs[i], (plan.convs[i].h, plan.convs[i].C, plan.convs[i].M)
        later.add(part, layer.bias.flat_view(out))
        side.run(conv4x4_weight_gradient, g, images[i], layer.weight.flat_view(out), *sizes, layer.plain, later)
        g, part = conv4x4(g, layer.weight.flat_view(copy), None, *sizes, layer.plain, act=images[i])
    gz, _ = dense.backward(copy, plan.dense, values, g.flatten(2), out, side, slope=1.0)
    side.run(PartSums.run, later)
    side.join(postponed)
    return out, gz


@opaque
def nll_forward(copy: Tensor, z: Tensor, x: Tensor, plan: Plan, kind: int) -> tuple[Any, ...]:
    """Return the results of `conv_transpose4x4_nll` for the last layer of a decoder, and those of `decoder_forward`."""
    values, images = decoder_forward(copy, plan, z)
    last = plan.convs[-1]
    weight, bias = last.weight.flat_view(copy), last.bias.flat_view(copy)
    small = images[-1] if images else first_image(values, plan)
    return *conv_transpose4x4_nll(small, weight, bias, x, last.C, last.plain, kind), values, images


class Nll(Function):
    """Negative log-likelihood -log p(x|z) of each sample, (r, b), from latents (r, b, d) and target images x."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, copy: Tensor, z: Tensor, x: Tensor, plan: Plan, kind: int) -> Tensor:
        count_use(plan, ctx.needs_input_grad[0])
        loss, slopes, sums, values, images = nll_forward(copy, z, x, plan, kind)
        ctx.plan, ctx.count = plan, len(values)
        ctx.save_for_backward(copy, z, slopes, sums, *values, *images)
        return cast(Tensor, loss)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        copy, z, slopes, sums, *saved = ctx.saved_tensors
        values, images = saved[: ctx.count], saved[ctx.count :]
        postponed, scale = join_is_postponed(ctx.plan, len(copy)), gradients[0].contiguous()
        out, gz = decoder_backward(copy, z, values, images, slopes, sums, scale, ctx.plan, postponed)
        return out, None, gz, None, None, None


@opaque
def decode_forward(copy: Tensor, z: Tensor, plan: Plan) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return the decoded images and the results of `decoder_forward`."""
    values, images = decoder_forward(copy, plan, z)
    last = plan.convs[-1]
    assert plan.image is not None
    weight, bias = last.weight.flat_view(copy), last.bias.flat_view(copy)
    small = images[-1] if images else first_image(values, plan)
    decoded = conv_transpose4x4_image(small, weight, bias, last.C, plan.image[0], last.h, last.plain)
    return decoded, values, images


class Decode(Function):
    """Decoder, from latents (r, b, d) to float32 images (r, b, c, h, h)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, copy: Tensor, z: Tensor, plan: Plan) -> Tensor:
        count_use(plan, ctx.needs_input_grad[0])
        decoded, values, images = decode_forward(copy, z, plan)
        ctx.plan, ctx.count = plan, len(values)
        ctx.save_for_backward(copy, z, *values, *images)
        return decoded

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        copy, z, *saved = ctx.saved_tensors
        values, images = saved[: ctx.count], saved[ctx.count :]
        (g,), last = gradients, ctx.plan.convs[-1]
        sums = dense.pad_columns(g.sum((3, 4)), last.C)[:, :, None]
        ones = torch.ones(g.shape[:2], device=g.device)
        slopes = block_images(g, last.C, copy.dtype)
        postponed = join_is_postponed(ctx.plan, len(copy))
        out, gz = decoder_backward(copy, z, values, images, slopes, sums, ones, ctx.plan, postponed)
        return out, None, gz, None


@opaque
def critic_forward(copy: Tensor, z: Tensor, plan: Plan) -> list[Tensor]:
    """Return the outputs of all layers of a critic."""
    return dense.forward(copy, plan.dense, z, plan.outputs)[1:]


@opaque
def critic_backward(
    copy: Tensor, z: Tensor, values: list[Tensor], g: Tensor, plan: Plan, trained: bool, postponed: bool
) -> tuple[Tensor | None, list[Tensor]]:
    """Return the gradients with respect to the parameters, (r, p), and those with respect to the inputs of all layers.

    The first result is None unless `trained`. The second starts with the last layer. Its elements are gradients with
    respect to the inputs of activations, except the last one, which is the gradient with respect to z.
    """
    side, found = SideStream(copy.device), []
    out = plan.packing.empty_gradient(copy) if trained else None
    for i in reversed(range(len(plan.dense))):
        g, _ = dense.backward_layer(copy, plan.dense, i, [z, *values][i], g, out, side, slope=1.0)
        found.append(g)
    side.join(postponed)
    return out, found


class Critic(Function):
    """Critic (a network of dense layers), from latents (r, b, d) to float32 outputs."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, copy: Tensor, z: Tensor, plan: Plan) -> Tensor:
        count_use(plan, ctx.needs_input_grad[0])
        values = critic_forward(copy, z, plan)
        ctx.plan = plan
        ctx.save_for_backward(copy, z, *values)
        return values[-1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        copy, z, *values = ctx.saved_tensors
        trained = bool(ctx.needs_input_grad[0])
        products, postponed = trained and postpones_products(plan), join_is_postponed(plan, len(copy))
        g = dense.through_activation(plan.dense[-1], values[-1], gradients[0])
        out, found = critic_backward(copy, z, values, g, plan, trained and not products, postponed)
        if products:
            factors = zip(reversed(plan.dense), reversed([z, *values[:-1]]), [g, *found[:-1]], strict=True)
            postponed_products(plan).extend(Product(*each) for each in factors)
            out = torch.zeros((), device=copy.device).expand(len(copy), plan.packing.size)
        return out, None, found[-1], None
