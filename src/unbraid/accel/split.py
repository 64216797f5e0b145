"""Sequential networks whose batch is divided among CPU threads.

Each thread computes a part of the batch through all layers of the network, forward and backward. The gradients of the
parameters are then computed from the whole batch, and threads compute those of different layers. All results are equal
bit for bit to those of one thread: an output or an input gradient depends on one example only, and each parameter
gradient is one operation.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.func import functional_call

from unbraid.accel.cores import run_tasks, usable_cores
from unbraid.accel.layers import (
    Conv,
    ConvTranspose,
    Flatten,
    conv_input_gradient,
    conv_parameter_gradients,
    transpose_input_gradient,
    transpose_parameter_gradients,
)

UNIT = 8  # the sizes of parts are multiples of this, because libraries round other sizes differently

End = Callable[[slice, Tensor], Tensor]
"""A function of a part of the batch and the output of the network for this part, with one result per example."""


@dataclass(frozen=True)
class Block:
    """A layer with parameters, with the reshaping before it and whether a ReLU follows.

    Attributes:
        layer: An instance of `Conv`, `ConvTranspose` or `nn.Linear`.
        reshape: An instance of `Flatten` or `nn.Unflatten`, or None.
        relu: Whether a ReLU follows.
    """

    layer: nn.Module
    reshape: nn.Module | None
    relu: bool

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which the layer multiplies."""
        return torch.bfloat16 if getattr(self.layer, "reduced", False) else torch.float32

    def inputs(self, x: Tensor) -> Tensor:
        """Return the input of the layer, given the input of the block."""
        return x if self.reshape is None else self.reshape(x)

    def input_gradient(self, x: Tensor, g: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient of the input x of the block, given the gradient g of the output of the layer."""
        weight = weight.to(self.dtype)
        if isinstance(self.layer, Conv):
            gx = conv_input_gradient(g, weight)
        elif isinstance(self.layer, ConvTranspose):
            gx = transpose_input_gradient(g, weight)
        else:
            gx = g @ weight
        return gx.reshape(x.shape).to(x.dtype)

    def parameter_gradients(self, x: Tensor, g: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the weight and the bias."""
        h = self.inputs(x).to(self.dtype)
        if isinstance(self.layer, Conv):
            gradients = conv_parameter_gradients(h, g, weight)
        elif isinstance(self.layer, ConvTranspose):
            gradients = transpose_parameter_gradients(h, g, weight)
        else:
            gradients = g.t() @ h, g.sum(0)
        return gradients[0].to(weight.dtype), gradients[1].to(bias.dtype)


def find_blocks(net: nn.Module) -> list[Block]:
    """Return the blocks of a network, or an empty list if it has other layers than those of the blocks."""
    blocks: list[Block] = []
    reshape: nn.Module | None = None
    for layer in net if type(net) is nn.Sequential else ():
        if type(layer) in (Flatten, nn.Unflatten) and reshape is None:
            reshape = layer
        elif type(layer) is nn.ReLU and blocks and reshape is None and not blocks[-1].relu:
            blocks[-1] = Block(blocks[-1].layer, blocks[-1].reshape, relu=True)
        elif type(layer) in (Conv, ConvTranspose, nn.Linear) and layer.bias is not None:
            blocks.append(Block(layer, reshape, relu=False))
            reshape = None
        else:
            return []
    return blocks if reshape is None else []


def can_split(net: nn.Module) -> bool:
    """Return whether the batch of a network can be divided: it has convolutions and no layers of other kinds."""
    return any(isinstance(block.layer, Conv | ConvTranspose) for block in find_blocks(net))


def _halvings_fit(blocks: Sequence[Block], x: Tensor) -> bool:
    """Return whether every convolution halves an even side. Convolutions may only be the first layers of a network."""
    convs = sum(isinstance(block.layer, Conv) for block in blocks)
    first = all(isinstance(block.layer, Conv) and block.reshape is None for block in blocks[:convs])
    return not convs or (first and x.dim() == 4 and all(side % 2**convs == 0 for side in x.shape[2:]))


def _transformed() -> bool:
    """Return whether a transform of `torch.func` or forward-mode differentiation is active."""
    forward_level: int = torch.autograd.forward_ad._current_level
    return bool(torch._C._are_functorch_transforms_active()) or forward_level >= 0


def split_batch(n: int, parts: int) -> list[slice]:
    """Divide n examples into parts whose sizes are multiples of `UNIT`, except for the last one.

    >>> split_batch(50, 2)
    [slice(0, 24, None), slice(24, 50, None)]
    """
    bounds = [n // UNIT * i // parts * UNIT for i in range(parts)]
    return [slice(*pair) for pair in itertools.pairwise([*bounds, n])]


class Pass:
    """The activations of a network for one batch, and the gradients of the outputs of its layers.

    Args:
        blocks: The blocks of the network.
        end: Function that is applied to the output, or None.
        x: The input of the network.
        parts: The number of parts.
    """

    def __init__(self, blocks: Sequence[Block], end: End | None, x: Tensor, parts: int) -> None:
        self.blocks, self.end, self.x = blocks, end, x
        self.parts = split_batch(len(x), parts)
        self.outputs: dict[int, Tensor] = {}  # of each block, for the whole batch
        self.ends: dict[int, tuple[Tensor, Tensor]] = {}  # by first example: the output of a part, and the end of it
        self.lock = threading.Lock()

    def input(self, i: int) -> Tensor:
        """Return the input of block i for the whole batch."""
        return self.outputs[i - 1] if i else self.x

    def allocate(self, tensors: dict[int, Tensor], i: int, part: Tensor) -> Tensor:
        """Return tensor i for the whole batch. The first thread that needs it allocates it, in the layout of a part."""
        with self.lock:
            if i not in tensors:
                images = torch.channels_last if part.dim() == 4 and part.shape[1] > 1 else torch.contiguous_format
                shape = (len(self.x), *part.shape[1:])
                tensors[i] = torch.empty(shape, dtype=part.dtype, memory_format=images)
            return tensors[i]

    def forward(self, part: slice) -> Tensor:
        """Compute one part of the batch and return its result."""
        h = self.x[part]
        for i, block in enumerate(self.blocks):
            y = block.layer(block.inputs(h))
            if not block.relu and i == len(self.blocks) - 1:
                return self.finish(part, y)
            h = self.allocate(self.outputs, i, y)[part]
            torch.clamp_min(y, 0, out=h) if block.relu else h.copy_(y)
        return self.finish(part, h)

    def finish(self, part: slice, y: Tensor) -> Tensor:
        """Apply the end to the output of a part."""
        if self.end is None:
            return y
        with torch.enable_grad():
            output = y.detach().requires_grad_()
            result = self.end(part, output)
        self.ends[part.start] = output, result
        return result.detach()

    def backward(self, part: slice, g: Tensor, weights: Sequence[Tensor], gradients: dict[int, Tensor]) -> Tensor:
        """Compute the gradient of one part of the input from the gradient g of the result.

        The gradients of the outputs of all layers are written to `gradients`.
        """
        g = g[part]
        if self.end is not None:
            output, result = self.ends[part.start]
            (g,) = torch.autograd.grad(result, output, g, retain_graph=True)
        for i in reversed(range(len(self.blocks))):
            whole = self.allocate(gradients, i, g)[part]
            if self.blocks[i].relu:
                torch.ops.aten.threshold_backward.grad_input(g, self.outputs[i][part], 0, grad_input=whole)
            else:
                whole.copy_(g)
            g = whole
            if i or self.x.requires_grad:
                g = self.blocks[i].input_gradient(self.input(i)[part], g, weights[i])
        return g


class SplitNetwork(Function):
    """A sequential network, computed by several threads."""

    @staticmethod
    def forward(ctx: Any, net: nn.Sequential, end: End | None, parts: int, x: Tensor, *parameters: Tensor) -> Tensor:
        computed = Pass(find_blocks(net), end, x, parts)
        ctx.net, ctx.computed = net, computed
        ctx.save_for_backward(x, *parameters)
        return torch.cat(run_tasks([functools.partial(computed.forward, part) for part in computed.parts], parts))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        x, *parameters = ctx.saved_tensors
        if torch.is_grad_enabled():
            return None, None, None, *differentiable_gradients(ctx.net, ctx.computed.end, x, parameters, g)
        computed: Pass = ctx.computed
        weights, gradients, parts = parameters[::2], dict[int, Tensor](), len(computed.parts)
        tasks = [functools.partial(computed.backward, part, g, weights, gradients) for part in computed.parts]
        found = run_tasks(tasks, parts)
        gx = torch.cat(found) if ctx.needs_input_grad[3] else None
        return None, None, None, gx, *parameter_gradients(computed, parameters, gradients)


split_network: Callable[..., Tensor] = SplitNetwork.apply


def parameter_gradients(computed: Pass, parameters: Sequence[Tensor], gradients: dict[int, Tensor]) -> list[Tensor]:
    """Return the gradients of all parameters. Layers with the largest inputs and outputs are computed first."""

    def compute(i: int) -> tuple[Tensor, Tensor]:
        return computed.blocks[i].parameter_gradients(computed.input(i), gradients[i], *parameters[2 * i : 2 * i + 2])

    order = sorted(gradients, key=lambda i: -computed.input(i).numel() * gradients[i].shape[1])
    found = dict(
        zip(order, run_tasks([functools.partial(compute, i) for i in order], len(computed.parts)), strict=True)
    )
    return [gradient for i in range(len(order)) for gradient in found[i]]


def differentiable_gradients(
    net: nn.Module, end: End | None, x: Tensor, parameters: Sequence[Tensor], g: Tensor
) -> tuple[Tensor | None, ...]:
    """Compute the network again with ordinary operations, and return gradients that can be differentiated again."""
    named = {name: value for (name, _), value in zip(net.named_parameters(), parameters, strict=True)}
    output = functional_call(net, named, (x,))
    result = output if end is None else end(slice(None), output)
    inputs = [value for value in (x, *parameters) if value.requires_grad]
    found = iter(torch.autograd.grad(result, inputs, g, create_graph=True))
    return tuple(next(found) if value.requires_grad else None for value in (x, *parameters))


def apply_network(net: nn.Module, x: Tensor, end: End | None = None) -> Tensor:
    """Compute a network, and apply `end` to its output. Inside `shared_cores`, the batch is divided among threads.

    Args:
        net: The network.
        x: The batch.
        end: Function without parameters that maps a part of the batch and the output for it to results, or None.
    """
    cores = usable_cores()
    if cores > 1 and torch.is_grad_enabled() and not _transformed():  # one core: no branch on len(x), for torch.export
        parts, blocks = min(cores, len(x) // UNIT), find_blocks(net)
        if parts > 1 and blocks and _halvings_fit(blocks, x):
            return split_network(net, end, parts, x, *net.parameters())
    output = net(x)
    return output if end is None else end(slice(None), output)
