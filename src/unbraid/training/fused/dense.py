"""Dense layers of all runs: batched products of the low-precision copy, with gradients written into the flat rows."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unbraid.training.fused.packing import Packing, Slot, arrange_matrix, arrange_vector, channels_last_order, round_up
from unbraid.training.fused.streams import SideStream


@dataclass(frozen=True)
class Dense:
    """One layer. `slope` is the negative slope of its leaky ReLU: 0 for a ReLU, 1 for no activation."""

    weight: Slot
    bias: Slot
    slope: float


def dense_layers(modules: list[nn.Module]) -> list[tuple[nn.Linear, float]] | None:
    """The linear layers of a list of modules, each with the slope of the activation after it.

    Returns None if the list contains any other module. Subclasses, parametrised layers and layers that are used twice
    count as other modules.
    """
    layers: list[tuple[nn.Linear, float]] = []
    for module in modules:
        if type(module) is nn.Linear and is_plain_layer(module) and all(module is not layer for layer, _ in layers):
            layers.append((module, 1.0))
        elif layers and layers[-1][1] == 1.0 and (slope := _slope(module)) is not None:
            layers[-1] = (layers[-1][0], slope)
        else:
            return None
    return layers or None


def is_plain_layer(layer: nn.Module) -> bool:
    """Whether a layer has exactly the parameters weight and bias, and no forward hooks."""
    return [name for name, _ in layer.named_parameters()] == ["weight", "bias"] and not layer._forward_pre_hooks


def _slope(module: nn.Module) -> float | None:
    """The negative slope of a ReLU or of a leaky ReLU with a slope in [0, 1), or None for another module."""
    if type(module) is nn.ReLU:
        return 0.0
    leaky = type(module) is nn.LeakyReLU and 0 <= module.negative_slope < 1
    return float(module.negative_slope) if leaky and isinstance(module, nn.LeakyReLU) else None


def pack_dense(
    packing: Packing, layers: list[tuple[nn.Linear, float]], before: tuple[int, ...] = (), after: tuple[int, ...] = ()
) -> list[Dense]:
    """Reserve places for dense layers in a row.

    `before` is the shape (c, h, w) of an image that is the input of the first layer, `after` that of an image that is
    the output of the last one.
    """
    packed = []
    for i, (layer, slope) in enumerate(layers):
        ends = (before if i == 0 else (), after if i == len(layers) - 1 else ())
        width = round_up(layer.out_features, 8)
        weight = packing.add(layer.weight.shape, arrange_matrix(round_up(layer.in_features, 8), width, *ends))
        arrange = functools.partial(channels_last_order, image=after) if ends[1] else arrange_vector(width)
        bias = packing.add(layer.bias.shape, arrange)
        packed.append(Dense(weight, bias, slope))
    return packed


def pad_columns(x: Tensor, width: int) -> Tensor:
    """Append columns of zeros up to a width."""
    return torch.nn.functional.pad(x, (0, width - x.shape[-1])) if width > x.shape[-1] else x


def forward(copy: Tensor, layers: list[Dense], x: Tensor) -> list[Tensor]:
    """The padded input and the output of each layer, (r, b, width)."""
    values = [pad_columns(x.to(copy.dtype), layers[0].weight.shape[0])]
    for layer in layers:
        y = torch.baddbmm(layer.bias.of(copy)[:, None], values[-1], layer.weight.of(copy))
        if layer.slope != 1:
            y = torch.relu_(y) if layer.slope == 0 else torch.nn.functional.leaky_relu_(y, layer.slope)
        values.append(y)
    return values


def backward(
    copy: Tensor,
    layers: list[Dense],
    values: list[Tensor],
    g: Tensor,
    out: Tensor | None,
    side: SideStream,
    masked: bool,
) -> Tensor:
    """The gradient by the padded input. If `out` is given, it receives the gradients by the parameters.

    Args:
        copy: The parameters of all runs.
        layers: The layers.
        values: The result of `forward`.
        g: The gradient by the last output.
        out: Receives the gradients by the parameters.
        side: The stream on which they are computed.
        masked: Whether `g` is already the gradient before the activation of the last layer.
    """
    for i in reversed(range(len(layers))):
        layer, y = layers[i], values[i + 1]
        if layer.slope == 0 and not (masked and i == len(layers) - 1):
            g = torch.ops.aten.threshold_backward(g, y, 0)
        elif layer.slope != 1 and layer.slope != 0:
            g = torch.ops.aten.leaky_relu_backward(g, y, layer.slope, True)
        if out is not None:
            side.run(multiply_into, values[i].mT, g, layer.weight.of(out))
            side.run(sum_into, g, 1, layer.bias.of(out))
        g = torch.bmm(g, layer.weight.of(copy).mT)
    return g


def sum_into(values: Tensor, dims: int | tuple[int, ...], out: Tensor) -> None:
    """Write sums over dimensions into `out`, in float32."""
    torch.sum(values, dims, dtype=torch.float32, out=out)


def multiply_into(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Write a batched product into `out`, accumulated in float32."""
    if a.dtype == torch.float32:
        torch.bmm(a, b, out=out)
    else:
        torch.bmm(a, b, out_dtype=torch.float32, out=out)
