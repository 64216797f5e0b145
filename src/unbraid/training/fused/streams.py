"""A second CUDA stream for weight gradients.

A CUDA stream is a queue of GPU work, and work on different streams can overlap. Nothing else in a backward pass depends
on the weight gradients, so the other work does not wait for them. The end of the backward pass of a network joins the
second stream, which means that the main stream waits for all work on the second stream. Inside `postponed_joins`, the
join can be postponed, so that the backward passes of other networks need not wait either.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from unbraid.training.fused.dense import Dense

MAX_POSTPONED_RUNS = 25  # maximum size of a stack whose joins are postponed; postponing makes larger stacks slower


class Product(NamedTuple):
    """The factors of the parameter gradients of a dense layer.

    Here x is the input of the layer, and g is the gradient with respect to the input of its activation. The gradient is
    x^T g for the weights, and the sum of g over the batch for the bias.
    """

    layer: Dense
    x: Tensor
    g: Tensor


class Postponed:
    """The work that a training step postpones to its end.

    Args:
        networks: Networks whose weight gradients the optimiser computes from their factors (see `Product`), if they are
            used once in the step.

    Attributes:
        arguments: Arguments of the functions on the second stream whose join was postponed. They are kept alive,
            because the GPU may still read them.
        uses: For each network, the number of its uses in the step that give a gradient to its parameters.
        products: For each network whose weight gradients the optimiser computes, its layers with the two factors of
            their weight gradients.
    """

    def __init__(self, networks: Collection[Hashable] = ()) -> None:
        self.arguments: list[Any] = []
        self.uses: Counter[Hashable] = Counter()
        self.networks = networks
        self.products: dict[Hashable, list[Product]] = {}


_current: list[Postponed] = []  # a global variable, because autograd runs backward passes on threads of its own


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the second stream of a device, which is created by the first call."""
    return torch.cuda.Stream(device)


@contextmanager
def postponed_joins(device: torch.device, networks: Collection[Hashable] = ()) -> Iterator[Postponed]:
    """Postpone joins to the end of this context, for networks that are used only once inside it.

    Joins are postponed for stacks of at most MAX_POSTPONED_RUNS runs, because such stacks leave parts of a GPU idle. If
    a network is used several times, autograd adds the gradients of its uses, so its joins are not postponed. If one of
    `networks` is used once, its weight gradients are not computed inside the context. Instead, their factors are
    collected in the attribute `products` of the context value.
    """
    postponed = Postponed(networks)
    _current.append(postponed)
    try:
        yield postponed
    finally:
        _current.pop()
        if postponed.arguments:
            torch.cuda.current_stream(device).wait_stream(_side_stream(device))


def postpones_products(network: Hashable) -> bool:
    """Return whether the weight gradients of a network are left to the optimiser.

    Call this in a backward pass, when all uses of the network in the step have been counted.
    """
    return bool(_current) and network in _current[-1].networks and _current[-1].uses[network] == 1


def postponed_products(network: Hashable) -> list[Product]:
    """Return the list that collects the factors of a network's weight gradients in this step."""
    return _current[-1].products.setdefault(network, [])


def all_postponed_products() -> dict[Hashable, list[Product]]:
    """Return the factors of weight gradients that this step has left to the optimiser, by network."""
    return _current[-1].products


def join_is_postponed(network: Hashable, runs: int) -> bool:
    """Return whether the join after the backward pass of a network is postponed.

    Call this in a backward pass, when all uses of the network in the step have been counted.
    """
    return bool(_current) and _current[-1].uses[network] == 1 and runs <= MAX_POSTPONED_RUNS


def count_use(network: Hashable, trained: bool) -> None:
    """Record a use of a network in this step, if this use gives a gradient to its parameters."""
    if _current and trained:
        _current[-1].uses[network] += 1


class SideStream:
    """Runs functions on a second CUDA stream, and keeps their arguments alive until the join.

    On a CPU, functions are called directly.
    """

    def __init__(self, device: torch.device) -> None:
        self.arguments: list[Any] = []
        self.active = device.type == "cuda"
        if self.active:
            self.main, self.side = torch.cuda.current_stream(device), _side_stream(device)

    def run(self, function: Callable[..., None], *arguments: Any) -> None:
        """Run a function after all work that has been launched on the main stream so far."""
        if not self.active:
            return function(*arguments)
        self.arguments.append(arguments)
        self.side.wait_stream(self.main)
        with torch.cuda.stream(self.side):
            return function(*arguments)

    def join(self, postponed: bool) -> None:
        """Make the main stream wait for all functions that were run on the second stream.

        If `postponed`, it waits at the end of the context `postponed_joins`. If no function was run, nothing is done.
        Waiting would then make the capture of a CUDA graph fail, because the second stream does not belong to the
        graph.
        """
        if not self.arguments:
            return
        if postponed:
            _current[-1].arguments.append(self.arguments)
            return
        self.main.wait_stream(self.side)
        self.arguments.clear()
