"""Recognising networks for which kernels exist, that is, convolutional encoders and decoders, and critics.

A network is recognised only if it consists of exactly the modules that the kernels implement. Its description is a
`Plan`, which gives the sizes of its layers and the slots of their parameters in a flat row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from unbraid.accel.layers import Conv, ConvTranspose, Flatten
from unbraid.training.fused.dense import Dense, dense_layers, is_ordinary, layers_in, pack_dense
from unbraid.training.fused.packing import Packing, Slot, arrange_2x2, arrange_4x4, arrange_vector

STORED_CHANNELS = {1: 1, 3: 4}  # number of channels of an image: number of channels of its blocked version
WIDTHS = (32, 64)  # supported numbers of channels between layers
SIDES = (32, 64, 128, 256)  # supported sides of images in pixels


@dataclass(frozen=True)
class PackedConv:
    """A stride-2 convolution or transposed convolution, between a large and a small image.

    Attributes:
        kernel: Side of the kernel, 4 or 2.
        h: Side of the small image. The side of the large image is 2h.
        C: Number of channels of the large image.
        M: Number of channels of the small image.
        plain: Whether the small image is plain. Otherwise it is blocked (see `unbraid.accel.kernels.blocked`).
        weight: Slot of the weights in a row.
        bias: Slot of the bias in a row.
    """

    kernel: int
    h: int
    C: int
    M: int
    plain: bool
    weight: Slot
    bias: Slot


@dataclass(frozen=True)
class Plan:
    """The layers of a network, with slots in a row for their parameters.

    Attributes:
        packing: The slots of all parameters.
        convs: The convolutions, in the order in which they are applied.
        dense: The dense layers, which follow the convolutions in an encoder and precede them in a decoder.
        inputs: The number of inputs of the first dense layer.
        outputs: The number of outputs of the last dense layer, or 0 for a decoder.
        image: Shape (c, h, w) of the images, or None if there are none.
    """

    packing: Packing
    convs: tuple[PackedConv, ...]
    dense: tuple[Dense, ...]
    inputs: int
    outputs: int
    image: tuple[int, int, int] | None = None


def _pop_layers_with_relu(modules: list[nn.Module], kind: type[Conv] | type[ConvTranspose]) -> list[nn.Module]:
    """Remove a layer of type `kind` and a ReLU while the list begins with both. Return the removed layers."""
    found: list[nn.Module] = []
    while len(modules) > 1 and type(modules[0]) is kind and is_ordinary(modules[0]) and type(modules[1]) is nn.ReLU:
        found.append(modules.pop(0))
        modules.pop(0)
    return found


def plan_encoder(net: nn.Module, shape: tuple[int, ...]) -> Plan | None:
    """Return the plan of an encoder, or None if no kernels exist for it.

    Kernels exist for stride-2 convolutions with ReLUs, followed by a `Flatten` and dense layers. The images must have
    the shape of an example, which need not be so for a network inside another one.
    """
    modules = layers_in(net)
    convs = [layer for layer in _pop_layers_with_relu(modules, Conv) if isinstance(layer, Conv)]
    flattens = (Flatten, nn.Flatten)
    if not modules or not convs or type(modules.pop(0)) not in flattens or not _has_kernels(shape, convs):
        return None
    linear = dense_layers(modules)
    side = shape[1] >> len(convs)
    flat = (convs[-1].out_channels, side, side)
    if linear is None or convs[0].in_channels != shape[0] or linear[0][0].in_features != math.prod(flat):
        return None
    packing, layers = Packing(), []
    kernels = [layer.kernel_size[0] for layer in convs]
    for i, layer in enumerate(convs):
        stored = STORED_CHANNELS[shape[0]] if i == 0 else layer.in_channels
        plain = i == len(convs) - 1 or kernels[i + 1] == 2
        weight = packing.add(layer.weight.shape, arrange_4x4(stored) if kernels[i] == 4 else arrange_2x2)
        bias = packing.add(layer.bias.shape, arrange_vector(layer.out_channels))  # type: ignore[union-attr]
        layers.append(PackedConv(kernels[i], shape[1] >> (i + 1), stored, layer.out_channels, plain, weight, bias))
    dense = pack_dense(packing, linear, before=flat)
    return Plan(
        packing, tuple(layers), tuple(dense), linear[0][0].in_features, linear[-1][0].out_features, _image_shape(shape)
    )


def plan_decoder(net: nn.Module, shape: tuple[int, ...]) -> Plan | None:
    """Return the plan of a decoder, or None if no kernels exist for it.

    Kernels exist for dense layers with a final ReLU, followed by an `Unflatten` and stride-2 transposed convolutions
    with ReLUs between them. The images must have the shape of an example, as those of an encoder.
    """
    modules = layers_in(net)
    cut = next((i for i, module in enumerate(modules) if type(module) is nn.Unflatten), 0)
    linear = dense_layers(modules[:cut])
    rest = [*modules[cut + 1 :], nn.ReLU()]
    convs = [layer for layer in _pop_layers_with_relu(rest, ConvTranspose) if isinstance(layer, ConvTranspose)]
    if linear is None or linear[-1][1] != 0 or rest or not convs or not _has_kernels(shape, convs[::-1]):
        return None
    side = shape[1] >> len(convs)
    sizes = (linear[-1][0].out_features, convs[-1].out_channels)
    if sizes != (convs[0].in_channels * side**2, shape[0]) or any(layer.kernel_size[0] != 4 for layer in convs):
        return None
    packing, layers = Packing(), []
    dense = pack_dense(packing, linear, after=(convs[0].in_channels, side, side))
    for i, layer in enumerate(convs):
        stored = layer.out_channels if i < len(convs) - 1 else STORED_CHANNELS[shape[0]]
        weight = packing.add(layer.weight.shape, arrange_4x4(stored))
        bias = packing.add(layer.bias.shape, arrange_vector(stored))  # type: ignore[union-attr]
        layers.append(PackedConv(4, side << i, stored, layer.in_channels, i == 0, weight, bias))
    return Plan(packing, tuple(layers), tuple(dense), linear[0][0].in_features, 0, _image_shape(shape))


def plan_dense(net: nn.Module) -> Plan | None:
    """Return the plan of a network of at least two dense layers, such as a critic, or None for any other network."""
    linear = dense_layers(layers_in(net))
    if linear is None or len(linear) < 2:
        return None
    packing = Packing()
    dense = pack_dense(packing, linear)
    return Plan(packing, (), tuple(dense), linear[0][0].in_features, linear[-1][0].out_features)


def _has_kernels(shape: tuple[int, ...], convs: list[Conv] | list[ConvTranspose]) -> bool:
    """Return whether kernels exist for these layers, which are listed from the image to the latents."""
    if len(shape) != 3 or shape[0] not in STORED_CHANNELS or shape[1] != shape[2] or shape[1] not in SIDES:
        return False
    if len(set(map(id, convs))) < len(convs):
        return False
    kernels = [layer.kernel_size[0] for layer in convs]
    inner = [max(layer.in_channels, layer.out_channels) for layer in convs]
    both = [layer.in_channels for layer in convs[1:]] + [layer.out_channels for layer in convs[1:]]
    ordered = kernels == sorted(kernels, reverse=True)  # 2x2 layers must come after all 4x4 layers
    widths = set(both + inner) <= set(WIDTHS)
    return widths and kernels[0] == 4 and set(kernels) <= {2, 4} and ordered and shape[1] % 2 ** len(convs) == 0


def _image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return a shape of three numbers unchanged, with the type that `Plan` needs."""
    channels, height, width = shape
    return channels, height, width
