"""The parameters of a run as one flat row: their places in files and in kernels, and their constants of Adam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.accel.adam import Adam
from unbraid.methods.method import Method
from unbraid.nets.vae import VAENet


@dataclass(frozen=True)
class Layout:
    """The places of named parameters in a flat row."""

    shapes: dict[str, torch.Size]

    @classmethod
    def of(cls, net: nn.Module) -> Layout:
        """The layout of the parameters of a module, in their order."""
        return cls({name: p.shape for name, p in net.named_parameters()})

    @property
    def size(self) -> int:
        """The length of a row."""
        return sum(shape.numel() for shape in self.shapes.values())

    def flatten(self, net: nn.Module) -> Float[Tensor, " p"]:
        """The parameters of a module as one row."""
        values = dict(net.named_parameters())
        return torch.cat([values[name].detach().reshape(-1) for name in self.shapes])

    def unflatten(self, row: Float[Tensor, " p"]) -> dict[str, Tensor]:
        """Named views of a row. The gradient by the row is one concatenation."""
        parts = row.split([shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)}

    def columns(self, rows: Float[Tensor, "r p"]) -> dict[str, Tensor]:
        """Named views of all rows, each (r, *shape)."""
        parts = rows.split([shape.numel() for shape in self.shapes.values()], 1)
        named = zip(parts, self.shapes.items(), strict=True)
        return {name: part.unflatten(1, shape) if shape else part[:, 0] for part, (name, shape) in named}

    def spans(self) -> dict[str, slice]:
        """The slice of the row that belongs to each parameter."""
        slices, start = {}, 0
        for name, shape in self.shapes.items():
            slices[name] = slice(start, start + shape.numel())
            start += shape.numel()
        return slices


@dataclass(frozen=True)
class Segment:
    """A part of the row whose parameters share the constants of Adam."""

    start: int
    stop: int
    adam: Adam


Constants = tuple[tuple[float, ...], float, float, float]


def adam_constants(method: Method, learning_rate: Tensor) -> Callable[[str], Constants]:
    """A function that returns the constants of Adam of a named parameter, as a value that can be compared."""

    def of(name: str) -> Constants:
        adam = method.adam(name, learning_rate)
        rates = torch.as_tensor(adam.learning_rate).flatten().tolist()
        return tuple(rates), adam.beta1, adam.beta2, adam.epsilon

    return of


def adam_segments(layout: Layout, method: Method, learning_rate: Tensor) -> list[Segment]:
    """The segments of a row: consecutive parameters with equal constants are merged."""
    merged, start = [], 0
    for _, group in groupby(layout.shapes, adam_constants(method, learning_rate)):
        names = list(group)
        stop = start + sum(layout.shapes[name].numel() for name in names)
        merged.append(Segment(start, stop, method.adam(names[0], learning_rate)))
        start = stop
    return merged


@dataclass(frozen=True)
class Storage:
    """How a stack stores its rows: in the order of files, or with whole modules rearranged for kernels.

    Attributes:
        layout: The places of parameters in a stored row.
        where: Element i of a row in the order of files is element `where[i]` of a stored row. The other elements are
            padding and stay zero. None if the order is that of files.
        adams: The constants of Adam of each parameter.
        copied: The parameters that kernels read from a copy.
    """

    layout: Layout
    where: Tensor | None
    adams: dict[str, Adam]
    copied: tuple[str, ...] = ()

    @classmethod
    def plain(cls, layout: Layout, method: Method, learning_rate: Tensor) -> Storage:
        """Store rows in the order of files."""
        return cls(layout, None, {name: method.adam(name, learning_rate) for name in layout.shapes})

    @classmethod
    def fused(
        cls, net: VAENet, method: Method, learning_rate: Tensor, shape: tuple[int, ...], likelihood: str
    ) -> Storage:
        """Store rows for kernels, and replace the children of `net` for which kernels exist.

        A child is replaced only if all its parameters share the constants of Adam, with an epsilon above zero: the
        moments of padding are zero.
        """
        from unbraid.training.fused.modules import Fused, fuse

        files, constants_of = Layout.of(net), adam_constants(method, learning_rate)
        children = {name: [p for p in files.shapes if p.startswith(f"{name}.")] for name, _ in net.named_children()}
        alike = [name for name, inside in children.items() if len({constants_of(p) for p in inside}) == 1]
        able = [name for name in alike if method.adam(children[name][0], learning_rate).epsilon > 0]
        fuse(net, shape, likelihood, able)
        layout = Layout.of(net)
        spans, where, adams = layout.spans(), [], {}
        for name in layout.shapes:
            owner = net.get_submodule(name.rpartition(".")[0])
            fused = isinstance(owner, Fused)
            inside = owner.plan.packing.where if isinstance(owner, Fused) else torch.arange(layout.shapes[name].numel())
            where.append(spans[name].start + inside)
            adams[name] = method.adam(children[name.partition(".")[0]][0] if fused else name, learning_rate)
        copied = tuple(name for name in layout.shapes if name.endswith(".row"))
        return cls(layout, torch.cat(where), adams, copied)

    def store(self, rows: Sequence[Tensor]) -> Tensor:
        """Convert rows in the order of files to stored rows."""
        stacked = torch.stack(list(rows))
        if self.where is None:
            return stacked
        stored = torch.zeros(len(stacked), self.layout.size, dtype=stacked.dtype)
        stored[:, self.where] = stacked
        return stored

    def restore(self, rows: Tensor) -> Tensor:
        """Convert stored rows to rows in the order of files, on the CPU. This is the inverse of `store`."""
        on_cpu = rows.detach().cpu()
        return on_cpu.clone() if self.where is None else on_cpu[..., self.where]
