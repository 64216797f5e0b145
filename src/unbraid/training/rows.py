"""The parameters of a run as one flat row.

A *row* is the concatenation of all parameters of one run, each flattened. Runs that are trained together form a
*stack*, which stores their rows as one matrix (runs, parameters). There are two orders of the elements of a row:

- *Checkpoint order* is the order of `named_parameters()`. Checkpoints and weight files use it.
- *Storage order* is the order in which a stack stores the elements during training. It differs from the checkpoint
  order only if GPU kernels compute a network. The parameters of that network are then rearranged and padded with zeros.

`Layout` gives the position of each parameter in a row. `Storage` converts between the two orders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.accel.adam import Adam
from unbraid.errors import UserError
from unbraid.methods.method import Method
from unbraid.nets.vae import VAENet

FROZEN = Adam(learning_rate=0.0, regularised=False)


def state_sources(net: nn.Module) -> dict[str, str]:
    """Return, for each name in the `state_dict` of a module, the name of its parameter or buffer.

    The two names differ if a tensor has several places in the module, such as a weight that two layers share. Buffers
    that are not persistent are left out.

    Raises:
        UserError: If the `state_dict` contains something else than parameters and buffers.
    """
    named = [*net.named_parameters(), *net.named_buffers()]
    own, names = {id(tensor): name for name, tensor in named}, {name for name, _ in named}
    sources = {}
    for name, value in net.state_dict(keep_vars=True).items():
        if name not in names and id(value) not in own:
            raise UserError(
                f"The state of a network must consist of its parameters and buffers. Got {name} in its state_dict, for "
                "example from get_extra_state or a hook. Register it as a buffer, or remove it."
            )
        sources[name] = name if name in names else own[id(value)]
    return sources


def buffer_places(net: nn.Module) -> dict[str, list[tuple[str, str]]]:
    """Return the places of each buffer, by the name that `named_buffers` gives it.

    A place is the name of a module and that of its attribute. Several modules may have the same buffer.
    """
    own = {id(buffer): name for name, buffer in net.named_buffers()}
    places: dict[str, list[tuple[str, str]]] = {name: [] for name in own.values()}
    for name, buffer in net.named_buffers(remove_duplicate=False):
        module, _, attribute = name.rpartition(".")
        places[own[id(buffer)]].append((module, attribute))
    return places


@dataclass(frozen=True)
class Layout:
    """The positions of named parameters in a row. They follow from the order and the shapes of the parameters.

    Attributes:
        shapes: The shape of each parameter, by name.
        frozen: Names of the parameters that do not require gradients. They are not trained.
    """

    shapes: dict[str, torch.Size]
    frozen: frozenset[str] = frozenset()

    @classmethod
    def from_module(cls, net: nn.Module) -> Layout:
        """Return the layout of the parameters of a module, in the order of `named_parameters()`."""
        named = dict(net.named_parameters())
        frozen = frozenset(name for name, parameter in named.items() if not parameter.requires_grad)
        return cls({name: parameter.shape for name, parameter in named.items()}, frozen)

    def adam(self, name: str, method: Method, learning_rate: Tensor) -> Adam:
        """Return the constants of Adam of a parameter. Those of a frozen parameter leave it as it is."""
        return FROZEN if name in self.frozen else method.adam(name, learning_rate)

    @property
    def size(self) -> int:
        """The number of elements of a row."""
        return sum(shape.numel() for shape in self.shapes.values())

    def flatten(self, net: nn.Module) -> Float[Tensor, " p"]:
        """Return the parameters of a module as one row."""
        values = dict(net.named_parameters())
        return torch.cat([values[name].detach().reshape(-1) for name in self.shapes])

    def unflatten(self, row: Float[Tensor, " p"]) -> dict[str, Tensor]:
        """Return the parameters of one row as views, by name. The backward pass of this split is one concatenation."""
        parts = row.split([shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}

    def columns(self, rows: Float[Tensor, "r p"]) -> dict[str, Tensor]:
        """Return the parameters of all rows as views (r, *shape), by name."""
        parts = rows.split([shape.numel() for shape in self.shapes.values()], 1)
        named = zip(parts, self.shapes.items(), strict=True)
        return {name: part.unflatten(1, shape) if shape else part[:, 0] for part, (name, shape) in named}

    def spans(self) -> dict[str, slice]:
        """Return the slice of the row that each parameter occupies, by name."""
        slices, start = {}, 0
        for name, shape in self.shapes.items():
            slices[name] = slice(start, start + shape.numel())
            start += shape.numel()
        return slices


@dataclass(frozen=True)
class Segment:
    """Consecutive elements `start` to `stop` of a row that have the same constants of Adam."""

    start: int
    stop: int
    adam: Adam


Constants = tuple[tuple[float, ...], float, float, float, bool]
"""The learning rate of each run, beta1, beta2, epsilon, and whether weight decay and gradient clipping apply."""


def adam_constants(layout: Layout, method: Method, learning_rate: Tensor) -> Callable[[str], Constants]:
    """Return a function that maps the name of a parameter to its constants of Adam, in a form that can be compared."""

    def constants_of(name: str) -> Constants:
        adam = layout.adam(name, method, learning_rate)
        rates = torch.as_tensor(adam.learning_rate).flatten().tolist()
        return tuple(rates), adam.beta1, adam.beta2, adam.epsilon, adam.regularised

    return constants_of


def adam_segments(layout: Layout, method: Method, learning_rate: Tensor) -> list[Segment]:
    """Return the segments of a row. Consecutive parameters with equal constants are merged into one segment."""
    merged, start = [], 0
    for _, group in groupby(layout.shapes, adam_constants(layout, method, learning_rate)):
        names = list(group)
        stop = start + sum(layout.shapes[name].numel() for name in names)
        merged.append(Segment(start, stop, layout.adam(names[0], method, learning_rate)))
        start = stop
    return merged


@dataclass(frozen=True)
class Storage:
    """The storage order of a stack and the conversion from and to the checkpoint order.

    Attributes:
        layout: The positions of parameters in a row in storage order.
        positions: Element i of a row in checkpoint order is element `positions[i]` of the row in storage order. The
            other elements are padding and stay zero. None if both orders are equal.
        adams: The constants of Adam of each parameter, by name.
        copied: Names of the parameters that kernels read from a copy, which may have a lower precision.
    """

    layout: Layout
    positions: Tensor | None
    adams: dict[str, Adam]
    copied: tuple[str, ...] = ()

    @classmethod
    def unfused(cls, layout: Layout, method: Method, learning_rate: Tensor) -> Storage:
        """Create a storage whose order is the checkpoint order."""
        return cls(layout, None, {name: layout.adam(name, method, learning_rate) for name in layout.shapes})

    @classmethod
    def fused(
        cls,
        net: VAENet,
        method: Method,
        learning_rate: Tensor,
        shape: tuple[int, ...],
        likelihood: str,
        without_kernels: Sequence[str] = (),
    ) -> Storage:
        """Replace networks inside `net` by modules that call GPU kernels, where these exist, and return the storage.

        See `fuse` for the networks that are replaced. A network is replaced only if all its parameters have the same
        constants of Adam and epsilon is positive. With an epsilon of 0, the padding would be divided by 0, because its
        moments are 0. Nothing inside the children in `without_kernels` is replaced.
        """
        from unbraid.training.fused.modules import Fused, fuse

        original = Layout.from_module(net)
        constants_of = adam_constants(original, method, learning_rate)

        def parameters_of(network: str) -> list[str]:
            return [name for name in original.shapes if name.startswith(f"{network}.")]

        def replaceable(network: str) -> bool:
            inside = parameters_of(network)
            uniform = len({constants_of(name) for name in inside}) == 1
            epsilon_positive = uniform and original.adam(inside[0], method, learning_rate).epsilon > 0
            return epsilon_positive and network.partition(".")[0] not in without_kernels

        fuse(net, shape, likelihood, replaceable)
        layout = Layout.from_module(net)
        spans, positions, adams, copied = layout.spans(), [], {}, []
        for name in layout.shapes:
            path = name.rpartition(".")[0]
            owner = net.get_submodule(path)
            if isinstance(owner, Fused):
                inside, first = owner.plan.packing.positions, parameters_of(path)[0]
                copied.append(name)
            else:
                inside, first = torch.arange(layout.shapes[name].numel()), name
            positions.append(spans[name].start + inside)
            adams[name] = original.adam(first, method, learning_rate)
        return cls(layout, torch.cat(positions), adams, tuple(copied))

    def to_storage_order(self, rows: Sequence[Tensor]) -> Tensor:
        """Convert r rows of p elements in checkpoint order to one matrix (r, stored elements) in storage order."""
        stacked = torch.stack(list(rows))
        if self.positions is None:
            return stacked
        stored = torch.zeros(len(stacked), self.layout.size, dtype=stacked.dtype)
        stored[:, self.positions] = stacked
        return stored

    def to_checkpoint_order(self, rows: Tensor) -> Tensor:
        """Convert rows in storage order to checkpoint order, on the CPU. This is the inverse of `to_storage_order`."""
        on_cpu = rows.detach().cpu()
        return on_cpu.clone() if self.positions is None else on_cpu[..., self.positions]
