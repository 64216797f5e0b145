"""Dense layers of all runs of a stack.

Kernels read a copy of the parameter rows, which may have a lower precision. Gradients are written directly into rows of
gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unbraid.accel.fitted import dense, dense_input_gradient, dense_weight_gradient
from unbraid.accel.sequential import has_hooks
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

    @property
    def matrix(self) -> tuple[int, int]:
        """The padded shape (inputs, outputs) of the weights."""
        inputs, outputs = self.weight.shape
        return inputs, outputs


def dense_layers(modules: list[nn.Module]) -> list[tuple[nn.Linear, float]] | None:
    """Return the linear layers of a list of modules, each with the negative slope of the activation after it.

    Return None if the list contains any other module. Subclasses, parametrised layers and layers that are used twice
    are treated as other modules.
    """
    layers: list[tuple[nn.Linear, float]] = []
    for module in modules:
        if type(module) is nn.Linear and is_ordinary(module) and all(module is not layer for layer, _ in layers):
            layers.append((module, 1.0))
        elif layers and layers[-1][1] == 1.0 and (slope := _negative_slope(module)) is not None:
            layers[-1] = (layers[-1][0], slope)
        else:
            return None
    return layers or None


def is_ordinary(layer: nn.Module) -> bool:
    """Return whether a layer has exactly the parameters weight and bias."""
    return [name for name, _ in layer.named_parameters()] == ["weight", "bias"]


def layers_in(net: nn.Module) -> list[nn.Module]:
    """Return the modules of an `nn.Sequential` of which kernels may take the place, or an empty list.

    The list is empty for other networks, for a sequence with parameters of its own, and if a module has hooks or a
    `forward` of its own, which kernels do not call.
    """
    if type(net) is not nn.Sequential or net._parameters:
        return []
    changed = any(has_hooks(module) or "forward" in vars(module) for module in net.modules())
    return [] if changed else list(net)


def _negative_slope(module: nn.Module) -> float | None:
    """Return the negative slope of a ReLU or of a leaky ReLU with a slope in [0, 1), or None for any other module."""
    if type(module) is nn.ReLU:
        return 0.0
    leaky = type(module) is nn.LeakyReLU and 0 <= module.negative_slope < 1
    return float(module.negative_slope) if leaky and isinstance(module, nn.LeakyReLU) else None


def pack_dense(
    packing: Packing, layers: list[tuple[nn.Linear, float]], before: tuple[int, ...] = (), after: tuple[int, ...] = ()
) -> list[Dense]:
    """Reserve slots for dense layers in the parameter row.

    Args:
        packing: The slots of the row.
        layers: The layers, each with the negative slope of its activation.
        before: If the input of the first layer is a flattened image, its shape (c, h, w).
        after: If the output of the last layer is unflattened into an image, the shape (c, h, w) of this image.
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


def forward(copy: Tensor, layers: Sequence[Dense], x: Tensor, outputs: int | None = None) -> list[Tensor]:
    """Return the input of the first layer and the output of each layer, each (r, b, width).

    If `outputs` is given, the output of the last layer is float32 and has this number of columns.
    """
    values = [x]
    for layer in layers:
        weight, bias = layer.weight.flat_view(copy), layer.bias.flat_view(copy)
        columns = outputs if layer is layers[-1] else None
        values.append(dense(values[-1], weight, bias, layer.matrix, layer.slope, columns))
    return values


def backward(
    copy: Tensor,
    layers: Sequence[Dense],
    values: list[Tensor],
    g: Tensor,
    out: Tensor | None,
    side: SideStream,
    slope: float,
) -> tuple[Tensor, Tensor]:
    """Return the gradient with respect to the input of the activation before the first layer, and its partial sums.

    The partial sums, (r, parts, width), are sums over parts of the batch. If there is no activation before the first
    layer, the gradient is float32, and the second result has no meaning.

    Args:
        copy: The parameters of all runs, (r, p).
        layers: The layers.
        values: The result of `forward`.
        g: The gradient with respect to the input of the last activation.
        out: Rows (r, p) that receive the gradients with respect to the parameters. If None, they are not computed.
        side: The CUDA stream on which the gradients with respect to the parameters are computed.
        slope: The negative slope of the activation before the first layer, or 1 if there is none.
    """
    for i in reversed(range(len(layers))):
        g, part = backward_layer(copy, layers, i, values[i], g, out, side, slope)
    return g, part


def backward_layer(
    copy: Tensor, layers: Sequence[Dense], i: int, x: Tensor, g: Tensor, out: Tensor | None, side: SideStream,
    slope: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Do the same as `backward` for layer i only. The input of the layer is x."""
    layer, half = layers[i], copy.dtype == torch.bfloat16
    if out is not None:
        into = layer.weight.flat_view(out), layer.bias.flat_view(out)
        side.run(dense_weight_gradient, x, g, *into, layer.matrix, half)
    before = layers[i - 1].slope if i > 0 else slope
    dtype = torch.float32 if i == 0 and slope == 1 else copy.dtype
    weight, summed = layer.weight.flat_view(copy), i == 0 and slope != 1
    return dense_input_gradient(g, weight, layer.matrix, x, before, dtype, summed)


def through_activation(layer: Dense, y: Tensor, g: Tensor) -> Tensor:
    """Return the gradient with respect to the input of a layer's activation.

    Args:
        layer: The layer.
        y: The output of its activation.
        g: The gradient with respect to `y`.
    """
    return g if layer.slope == 1 else torch.where(y <= 0, layer.slope * g, g)
