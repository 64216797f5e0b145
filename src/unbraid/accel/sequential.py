"""Convolutional networks that a CPU computes as one operation.

PyTorch computes each layer of an `nn.Sequential` by itself: it records the layer for the backward pass, calls Python
for its gradients, and stores the gradient before and after each ReLU. A `FastSequential` has the same layers and
returns the same bits, but one autograd function computes all of its layers and all gradients. ReLUs are computed in
place, and so are their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.func import functional_call
from torch.nn.modules.module import _has_any_global_hook

from unbraid.accel.layers import (
    Conv,
    ConvTranspose,
    Flatten,
    conv_gradients,
    conv_transpose_gradients,
    fast_conv,
    fast_conv_transpose,
    to_channels_last,
)

NEGATIVE_INFINITY_BITS = -128  # the bits of minus infinity in bfloat16, read as a signed integer of 16 bits
Gradients = tuple[Tensor | None, Tensor, Tensor]


def dense_gradients(x: Tensor, weight: Tensor, g: Tensor, input_needed: bool) -> Gradients:
    """Return the gradients of the input, the weight and the bias of a dense layer from the gradient g of its output."""
    return g @ weight if input_needed else None, g.t() @ x, g.sum(0)


# For each kind of layer, a function for its output and a function for its gradients.
FORMULAS: dict[type[nn.Module], tuple[Callable[..., Tensor], Callable[..., Gradients]]] = {
    nn.Linear: (F.linear, dense_gradients),
    Conv: (fast_conv, conv_gradients),
    ConvTranspose: (fast_conv_transpose, conv_transpose_gradients),
}


def relu_(x: Tensor) -> Tensor:
    """Replace negative numbers by 0 in place. NaNs stay NaNs.

    PyTorch would convert numbers in bfloat16 to float32. Here their bits are compared as signed integers. Those of
    negative numbers are at most `NEGATIVE_INFINITY_BITS`, and those of all other numbers and of NaNs are larger.
    """
    if x.dtype == torch.bfloat16:
        torch.threshold_(x.view(torch.int16), NEGATIVE_INFINITY_BITS, 0)
        return x
    return x.relu_()


def relu_gradient_(g: Tensor, y: Tensor) -> Tensor:
    """Replace the gradient g of the output y of a ReLU by the gradient of its input, in place."""
    same_bits = (g.view(torch.int16), y.view(torch.int16)) if g.dtype == torch.bfloat16 else (g, y)
    torch.ops.aten.threshold_backward.grad_input(*same_bits, 0, grad_input=same_bits[0])
    return g


@dataclass(frozen=True)
class SequentialLayer:
    """A layer with parameters, and the modules without parameters next to it.

    Attributes:
        module: The layer, of a kind in `FORMULAS`.
        reshape: The module before it that flattens or unflattens examples, or None.
        relu: Whether a ReLU follows.
    """

    module: nn.Module
    reshape: nn.Module | None
    relu: bool

    def operands(self, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the input and the parameters in the shape, memory format and precision in which they are used."""
        x = x if self.reshape is None else self.reshape(x)
        if isinstance(self.module, nn.Linear):
            return x.to(weight.dtype), weight, bias
        x, weight, bias = cast(Conv | ConvTranspose, self.module).operands(x, weight, bias)
        return to_channels_last(x), to_channels_last(weight), bias

    def output(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the output of the layer, after the ReLU if there is one. The arguments are the operands."""
        y = FORMULAS[type(self.module)][0](x, weight, bias)
        return relu_(y) if self.relu else y

    def gradients(self, x: Tensor, weight: Tensor, g: Tensor, input_needed: bool) -> Gradients:
        """Return the gradients of the operands from the gradient g of the output before the ReLU."""
        return FORMULAS[type(self.module)][1](x, weight, g, input_needed)


def layers_of(modules: Iterable[nn.Module]) -> list[SequentialLayer]:
    """Return the layers of which a sequence of modules consists.

    The list is empty if the sequence contains other modules, or no convolution. Without convolutions, there is little
    to gain.
    """
    layers: list[SequentialLayer] = []
    reshape: nn.Module | None = None
    for module in modules:
        if type(module) in FORMULAS and _computes_formula(module) and _fits(layers, reshape, module):
            layers.append(SequentialLayer(module, reshape, relu=False))
            reshape = None
        elif "forward" in vars(module):
            return []
        elif type(module) is nn.ReLU and layers and not layers[-1].relu and reshape is None:
            layers[-1] = replace(layers[-1], relu=True)
        elif type(module) in (Flatten, nn.Flatten, nn.Unflatten) and reshape is None:
            reshape = module
        else:
            return []
    found = [layer.module for layer in layers]
    distinct = len({parameter for module in found for parameter in module.parameters()}) == 2 * len(found)
    convolutional = any(isinstance(module, Conv | ConvTranspose) for module in found)
    return layers if reshape is None and distinct and convolutional else []


def _computes_formula(module: nn.Module) -> bool:
    """Return whether a layer computes the formula of its class with the parameters weight and bias.

    Its `forward` must not have been replaced, and it must not be a convolution marked as `twice_differentiable`.
    """
    if getattr(module, "twice_differentiable", False) or "forward" in vars(module):
        return False
    return [name for name, _ in module.named_parameters()] == ["weight", "bias"]


def _fits(before: Sequence[SequentialLayer], reshape: nn.Module | None, module: nn.Module) -> bool:
    """Return whether a layer can follow others: dense layers need flat examples, and convolutions need images."""
    flat = type(module) is nn.Linear
    if isinstance(reshape, nn.Flatten):
        return flat and (reshape.start_dim, reshape.end_dim) == (1, -1)
    after_dense = any(isinstance(layer.module, nn.Linear) for layer in before)
    if isinstance(module, Conv) and (after_dense or isinstance(reshape, nn.Unflatten)):
        return False  # because the size of its images is not known here, and may be odd
    if isinstance(reshape, nn.Unflatten):
        return not flat and reshape.dim == 1 and len(cast(Sequence[int], reshape.unflattened_size)) == 3
    return not before or (type(before[-1].module) is nn.Linear) == flat


class SequentialFunction(Function):
    """The output of a `FastSequential`. The arguments are the network, its input, and the parameters of its layers."""

    @staticmethod
    def forward(ctx: Any, network: FastSequential, x: Tensor, *parameters: Tensor) -> Tensor:
        operands: list[Tensor] = []
        ctx.network, ctx.outputs, y = network, [], x
        for layer, weight, bias in zip(network.fast_layers, parameters[::2], parameters[1::2], strict=True):
            used = layer.operands(y, weight, bias)
            y = layer.output(*used)
            operands += used[:2]
            ctx.outputs.append((y.shape, y.dtype))
        # Without a ReLU at its end, the network does not need its output, which others may then change in place.
        ctx.save_for_backward(x, y if network.fast_layers[-1].relu else None, *parameters, *operands)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        layers, (x, y, *saved) = ctx.network.fast_layers, ctx.saved_tensors
        parameters, operands = saved[: 2 * len(layers)], saved[2 * len(layers) :]
        # The gradients will be differentiated, or computed for several vectors at once.
        if torch.is_grad_enabled() or torch._C._functorch.is_legacy_batchedtensor(g):
            return None, *ctx.network.differentiable_gradients(x, parameters, g, ctx.needs_input_grad[1:])
        inputs, weights = operands[::2], operands[1::2]
        g = g.clone() if layers[-1].relu else g  # because it is changed in place
        found: list[Tensor] = []
        for i in reversed(range(len(layers))):
            # The input of the next layer has the same positive values as the output, perhaps in another shape.
            g = relu_gradient_(g, [*inputs, y][i + 1]) if layers[i].relu else g
            shape, dtype = ctx.outputs[i]
            needed = i > 0 or ctx.needs_input_grad[1]
            gx, *others = layers[i].gradients(inputs[i], weights[i], g.reshape(shape).to(dtype), needed)
            found[:0] = [other.to(parameters[2 * i].dtype) for other in others]
            g = cast(Tensor, gx)
        return None, g.reshape(x.shape).to(x.dtype) if ctx.needs_input_grad[1] else None, *found


class FastSequential(nn.Sequential):
    """A sequence of modules that a CPU computes by one autograd function.

    On other devices, inside transforms of `torch.func` and autocast, for images of odd size, and if a module has hooks,
    it computes its modules one after another, as an `nn.Sequential` does. The modules must not be replaced by others.

    Attributes:
        fast_layers: The layers of the sequence, or an empty list if the autograd function cannot compute it.
    """

    fast_layers: list[SequentialLayer]

    def __init__(self, *modules: Any) -> None:
        super().__init__(*modules)
        self.fast_layers = layers_of(self)

    def forward(self, x: Tensor) -> Tensor:
        if not self._is_fast(x):
            return cast(Tensor, super().forward(x))  # type: ignore[no-untyped-call]
        parameters = [getattr(layer.module, name) for layer in self.fast_layers for name in ("weight", "bias")]
        return cast(Tensor, SequentialFunction.apply(self, x, *parameters))  # type: ignore[no-untyped-call]

    def _is_fast(self, x: Tensor) -> bool:
        """Return whether the autograd function can compute the output for x."""
        if not self.fast_layers or x.device.type != "cpu" or torch._C._are_functorch_transforms_active():
            return False
        if torch.is_autocast_enabled("cpu"):
            return False
        first, halvings = self.fast_layers[0], sum(isinstance(layer.module, Conv) for layer in self.fast_layers)
        even = not halvings or all(side % 2**halvings == 0 for side in x.shape[2:])
        flat = isinstance(first.module, nn.Linear) or isinstance(first.reshape, nn.Unflatten)
        return even and x.dim() == (2 if flat else 4) and not any(map(has_hooks, self))

    def differentiable_gradients(
        self, x: Tensor, parameters: Sequence[Tensor], g: Tensor, needed: Sequence[bool]
    ) -> list[Tensor | None]:
        """Return the gradients of the input and the parameters, computed so that they can be differentiated."""
        ordinary = nn.Sequential(*self)
        names = [name for name, _ in ordinary.named_parameters()]
        with torch.enable_grad():
            y = functional_call(ordinary, dict(zip(names, parameters, strict=True)), (x,))
        inputs = [value for value, wanted in zip((x, *parameters), needed, strict=True) if wanted]
        found = iter(torch.autograd.grad(y, inputs, g, create_graph=True))
        return [next(found) if wanted else None for wanted in needed]


def has_hooks(module: nn.Module) -> bool:
    """Return whether other functions are to be called before or after a module or its gradient."""
    own = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return bool(_has_any_global_hook()) or any(own)


def use_fast_sequences(net: nn.Module) -> None:
    """Turn each `nn.Sequential` inside a network into a `FastSequential` if that has a faster way to compute it.

    The objects stay the same, with their attributes and the names of their modules.
    """
    for module in list(net.modules()):
        if type(module) is nn.Sequential and not has_hooks(module) and (layers := layers_of(module)):
            module.__class__ = FastSequential
            cast(FastSequential, module).fast_layers = layers
