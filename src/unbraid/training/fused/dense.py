"""Stacks of dense layers: batched products on the low-precision copy, gradients straight into the flat row."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unbraid.training.fused.packing import Packing, Slot, last, matrix, padded, vector
from unbraid.training.fused.streams import Fork


@dataclass(frozen=True)
class Dense:
    """One layer; `slope` is that of its leaky ReLU below zero, 0 for a ReLU and 1 for none."""

    weight: Slot
    bias: Slot
    slope: float


def dense_layers(modules: list[nn.Module]) -> list[tuple[nn.Linear, float]] | None:
    """Linear layers with the slopes of what follows them, or None if there is anything else.

    Subclasses, parametrised layers and layers used twice are something else.
    """
    found: list[tuple[nn.Linear, float]] = []
    for module in modules:
        if type(module) is nn.Linear and ordinary(module) and all(module is not layer for layer, _ in found):
            found.append((module, 1.0))
        elif found and found[-1][1] == 1.0 and (slope := _slope(module)) is not None:
            found[-1] = (found[-1][0], slope)
        else:
            return None
    return found or None


def ordinary(layer: nn.Module) -> bool:
    """Whether a layer's parameters are a weight and a bias, and nothing is hooked to it."""
    return [name for name, _ in layer.named_parameters()] == ["weight", "bias"] and not layer._forward_pre_hooks


def _slope(module: nn.Module) -> float | None:
    """Below zero, of a ReLU or a leaky one whose output has the sign of its input."""
    if type(module) is nn.ReLU:
        return 0.0
    leaky = type(module) is nn.LeakyReLU and 0 <= module.negative_slope < 1
    return float(module.negative_slope) if leaky and isinstance(module, nn.LeakyReLU) else None


def pack(
    packing: Packing, layers: list[tuple[nn.Linear, float]], before: tuple[int, ...] = (), after: tuple[int, ...] = ()
) -> list[Dense]:
    """Room for the layers; an image (c, h, w) may lie before the first or after the last."""
    packed = []
    for i, (layer, slope) in enumerate(layers):
        ends = (before if i == 0 else (), after if i == len(layers) - 1 else ())
        width = padded(layer.out_features, 8)
        weight = packing.add(layer.weight.shape, matrix(padded(layer.in_features, 8), width, *ends))
        arrange = functools.partial(last, image=after) if ends[1] else vector(width)
        bias = packing.add(layer.bias.shape, arrange)
        packed.append(Dense(weight, bias, slope))
    return packed


def widened(x: Tensor, width: int) -> Tensor:
    """The same with columns of zeros up to a width."""
    return torch.nn.functional.pad(x, (0, width - x.shape[-1])) if width > x.shape[-1] else x


def forward(copy: Tensor, layers: list[Dense], x: Tensor) -> list[Tensor]:
    """The padded input and the output of every layer, (r, b, width)."""
    values = [widened(x.to(copy.dtype), layers[0].weight.shape[0])]
    for layer in layers:
        y = torch.baddbmm(layer.bias.of(copy)[:, None], values[-1], layer.weight.of(copy))
        if layer.slope != 1:
            y = torch.relu_(y) if layer.slope == 0 else torch.nn.functional.leaky_relu_(y, layer.slope)
        values.append(y)
    return values


def backward(
    copy: Tensor, layers: list[Dense], values: list[Tensor], g: Tensor, out: Tensor | None, fork: Fork, masked: bool
) -> Tensor:
    """The gradient by the padded input; those of the parameters go into `out`, if it is there.

    `masked` says that g is already the gradient before the last layer's activation.
    """
    for i in reversed(range(len(layers))):
        layer, y = layers[i], values[i + 1]
        if layer.slope == 0 and not (masked and i == len(layers) - 1):
            g = torch.ops.aten.threshold_backward(g, y, 0)
        elif layer.slope != 1 and layer.slope != 0:
            g = torch.ops.aten.leaky_relu_backward(g, y, layer.slope, True)
        if out is not None:
            fork(product, values[i].mT, g, layer.weight.of(out))
            fork(add_up, g, 1, layer.bias.of(out))
        g = torch.bmm(g, layer.weight.of(copy).mT)
    return g


def add_up(values: Tensor, dims: int | tuple[int, ...], out: Tensor) -> None:
    """Sums in float32."""
    torch.sum(values, dims, dtype=torch.float32, out=out)


def product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """A batched product added up and written in float32."""
    if a.dtype == torch.float32:
        torch.bmm(a, b, out=out)
    else:
        torch.bmm(a, b, out_dtype=torch.float32, out=out)
