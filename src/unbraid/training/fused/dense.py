"""Dense layers of all runs of a stack, computed as batched matrix products.

The products read the low-precision copy of the parameter rows. Gradients are written directly into rows of gradients.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unbraid.training.fused.packing import Packing, Slot, arrange_matrix, arrange_vector, channels_last_order, round_up
from unbraid.training.fused.streams import SideStream


@dataclass(frozen=True)
class Dense:
    """One dense layer with its activation.

    `slope` is the negative slope of a leaky ReLU. It is 0 for a ReLU and 1 for no activation.
    """

    weight: Slot
    bias: Slot
    slope: float


def dense_layers(modules: list[nn.Module]) -> list[tuple[nn.Linear, float]] | None:
    """Return the linear layers of a list of modules, each with the negative slope of the activation after it.

    Return None if the list contains any other module. Subclasses, parametrised layers and layers that are used twice
    are treated as other modules.
    """
    layers: list[tuple[nn.Linear, float]] = []
    for module in modules:
        if type(module) is nn.Linear and is_plain_layer(module) and all(module is not layer for layer, _ in layers):
            layers.append((module, 1.0))
        elif layers and layers[-1][1] == 1.0 and (slope := _negative_slope(module)) is not None:
            layers[-1] = (layers[-1][0], slope)
        else:
            return None
    return layers or None


def is_plain_layer(layer: nn.Module) -> bool:
    """Return whether a layer has exactly the parameters weight and bias, and no forward pre-hooks."""
    return [name for name, _ in layer.named_parameters()] == ["weight", "bias"] and not layer._forward_pre_hooks


def _negative_slope(module: nn.Module) -> float | None:
    """Return the negative slope of a ReLU or of a leaky ReLU with a slope in [0, 1), or None for any other module."""
    if type(module) is nn.ReLU:
        return 0.0
    leaky = type(module) is nn.LeakyReLU and 0 <= module.negative_slope < 1
    return float(module.negative_slope) if leaky and isinstance(module, nn.LeakyReLU) else None


def pack_dense(
    packing: Packing, layers: list[tuple[nn.Linear, float]], before: tuple[int, ...] = (), after: tuple[int, ...] = ()
) -> list[Dense]:
    """Reserve slots for dense layers in a row.

    Args:
        packing: The slots of the row.
        layers: The layers, each with the negative slope of its activation.
        before: Shape (c, h, w) of the image that is flattened to the input of the first layer, if there is one.
        after: Shape (c, h, w) of the image into which the output of the last layer is unflattened, if there is one.
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
    """Append columns of zeros until there are `width` columns."""
    return torch.nn.functional.pad(x, (0, width - x.shape[-1])) if width > x.shape[-1] else x


def forward(copy: Tensor, layers: list[Dense], x: Tensor) -> list[Tensor]:
    """Return the padded input and the output of each layer, each (r, b, width)."""
    values = [pad_columns(x.to(copy.dtype), layers[0].weight.shape[0])]
    for layer in layers:
        y = torch.baddbmm(layer.bias.view(copy)[:, None], values[-1], layer.weight.view(copy))
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
    """Return the gradient with respect to the padded input, (r, b, width).

    Args:
        copy: The parameters of all runs, (r, p).
        layers: The layers.
        values: The result of `forward`.
        g: The gradient with respect to the last output.
        out: Rows (r, p) that receive the gradients with respect to the parameters. If None, they are not computed.
        side: The CUDA stream on which these gradients are computed.
        masked: Whether `g` is already the gradient with respect to the input of the last activation.
    """
    for i in reversed(range(len(layers))):
        layer, y = layers[i], values[i + 1]
        if layer.slope == 0 and not (masked and i == len(layers) - 1):
            g = torch.ops.aten.threshold_backward(g, y, 0)
        elif layer.slope != 1 and layer.slope != 0:
            g = torch.ops.aten.leaky_relu_backward(g, y, layer.slope, True)
        if out is not None:
            side.run(multiply_into, values[i].mT, g, layer.weight.view(out))
            side.run(sum_into, g, 1, layer.bias.view(out))
        g = torch.bmm(g, layer.weight.view(copy).mT)
    return g


def sum_into(values: Tensor, dims: int | tuple[int, ...], out: Tensor) -> None:
    """Write sums over the dimensions `dims` into `out`, in float32."""
    torch.sum(values, dims, dtype=torch.float32, out=out)


def multiply_into(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Write the batched matrix product a b into `out`, accumulated in float32."""
    if a.dtype == torch.float32:
        torch.bmm(a, b, out=out)
    else:
        torch.bmm(a, b, out_dtype=torch.float32, out=out)
