"""Recognising networks for which kernels exist: convolutional encoders and decoders, and critics."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from unbraid.accel.layers import Conv, ConvTranspose
from unbraid.training.fused.dense import Dense, dense_layers, is_plain_layer, pack_dense
from unbraid.training.fused.packing import Packing, Slot, arrange_2x2, arrange_4x4, arrange_vector

IMAGES = {1: 1, 3: 4}  # the channels of an image, and the channels of its blocked version
WIDTHS = (32, 64)
SIDES = (32, 64, 128, 256)


@dataclass(frozen=True)
class Layer:
    """A stride-2 layer between a large image (side 2h, C channels) and a small image (side h, M channels).

    `plain` is whether the small image is plain or blocked (see `unbraid.accel.kernels.blocked`).
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
    """The layers of a module, with places in a row for their parameters.

    `convs` are in the order in which they are applied. The `dense` layers follow them in an encoder and precede them in
    a decoder.
    """

    packing: Packing
    convs: tuple[Layer, ...]
    dense: tuple[Dense, ...]
    inputs: int
    outputs: int
    image: tuple[int, int, int] | None = None


def _alternating(modules: list[nn.Module], kind: type[Conv] | type[ConvTranspose]) -> list[nn.Module]:
    """Remove the leading layers of a kind, each followed by a ReLU, from a list, and return the layers."""
    found: list[nn.Module] = []
    while len(modules) > 1 and type(modules[0]) is kind and is_plain_layer(modules[0]) and type(modules[1]) is nn.ReLU:
        found.append(modules.pop(0))
        modules.pop(0)
    return found


def plan_encoder(net: nn.Module, shape: tuple[int, ...]) -> Plan | None:
    """The plan of stride-2 convolutions with ReLUs, a flattening and dense layers, or None for any other network."""
    modules = list(net) if type(net) is nn.Sequential else []
    convs = [layer for layer in _alternating(modules, Conv) if isinstance(layer, Conv)]
    if not modules or not convs or not isinstance(modules.pop(0), nn.Flatten) or not _fits(shape, convs):
        return None
    linear = dense_layers(modules)
    if linear is None:
        return None
    packing, layers, side = Packing(), [], shape[1]
    kernels = [layer.kernel_size[0] for layer in convs]
    for i, layer in enumerate(convs):
        side //= 2
        stored = IMAGES[shape[0]] if i == 0 else layer.in_channels
        plain = i == len(convs) - 1 or kernels[i + 1] == 2
        weight = packing.add(layer.weight.shape, arrange_4x4(stored) if kernels[i] == 4 else arrange_2x2)
        bias = packing.add(layer.bias.shape, arrange_vector(layer.out_channels))  # type: ignore[union-attr]
        layers.append(Layer(kernels[i], side, stored, layer.out_channels, plain, weight, bias))
    flat = (convs[-1].out_channels, side, side)
    dense = pack_dense(packing, linear, before=flat)
    return Plan(packing, tuple(layers), tuple(dense), linear[0][0].in_features, linear[-1][0].out_features, _chw(shape))


def plan_decoder(net: nn.Module, shape: tuple[int, ...]) -> Plan | None:
    """The plan of dense layers with ReLUs, an unflattening and transposed convolutions, or None for another network."""
    modules = list(net) if type(net) is nn.Sequential else []
    cut = next((i for i, module in enumerate(modules) if isinstance(module, nn.Unflatten)), 0)
    linear = dense_layers(modules[:cut])
    rest = [*modules[cut + 1 :], nn.ReLU()]
    convs = [layer for layer in _alternating(rest, ConvTranspose) if isinstance(layer, ConvTranspose)]
    if linear is None or linear[-1][1] != 0 or rest or not convs or not _fits(shape, convs[::-1]):
        return None
    if any(layer.kernel_size[0] != 4 for layer in convs):
        return None
    packing, layers = Packing(), []
    side = shape[1] >> len(convs)
    dense = pack_dense(packing, linear, after=(convs[0].in_channels, side, side))
    for i, layer in enumerate(convs):
        stored = layer.out_channels if i < len(convs) - 1 else IMAGES[shape[0]]
        weight = packing.add(layer.weight.shape, arrange_4x4(stored))
        bias = packing.add(layer.bias.shape, arrange_vector(stored))  # type: ignore[union-attr]
        layers.append(Layer(4, side << i, stored, layer.in_channels, i == 0, weight, bias))
    return Plan(packing, tuple(layers), tuple(dense), linear[0][0].in_features, 0, _chw(shape))


def plan_dense(net: nn.Module) -> Plan | None:
    """The plan of at least two dense layers, such as those of a critic, or None for any other network."""
    linear = dense_layers(list(net)) if type(net) is nn.Sequential else None
    if linear is None or len(linear) < 2:
        return None
    packing = Packing()
    dense = pack_dense(packing, linear)
    return Plan(packing, (), tuple(dense), linear[0][0].in_features, linear[-1][0].out_features)


def _fits(shape: tuple[int, ...], convs: list[Conv] | list[ConvTranspose]) -> bool:
    """Whether kernels exist for these layers, which are listed from the image inwards."""
    if len(shape) != 3 or shape[0] not in IMAGES or shape[1] != shape[2] or shape[1] not in SIDES:
        return False
    if len(set(map(id, convs))) < len(convs):
        return False
    kernels = [layer.kernel_size[0] for layer in convs]
    inner = [max(layer.in_channels, layer.out_channels) for layer in convs]
    both = [layer.in_channels for layer in convs[1:]] + [layer.out_channels for layer in convs[1:]]
    fours = kernels == sorted(kernels, reverse=True)  # 2x2 layers come after all 4x4 ones
    widths = set(both + inner) <= set(WIDTHS)
    return widths and kernels[0] == 4 and set(kernels) <= {2, 4} and fours and shape[1] % 2 ** len(convs) == 0


def _chw(shape: tuple[int, ...]) -> tuple[int, int, int]:
    channels, height, width = shape
    return channels, height, width
