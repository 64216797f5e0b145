"""A second CUDA stream for weight gradients.

A CUDA stream is a queue of GPU work, and work on different streams can overlap. Nothing else in a backward pass depends
on the weight gradients, so they need not delay the other work. Inside `postponed_joins`, they do not delay the backward
passes of other networks either.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

MAX_POSTPONED_RUNS = 25  # larger stacks use the whole GPU, and were slower with postponed joins


class Postponed:
    """What a step leaves for its end.

    Args:
        networks: The networks whose weight gradients are left to the optimiser, if they are used once.

    Attributes:
        arguments: Arguments of the work on the second stream that has not been joined yet.
        uses: How often each network is used with a gradient for its parameters.
        products: By network, the layers with the two factors of their weight gradients.
    """

    def __init__(self, networks: Collection[Hashable] = ()) -> None:
        self.arguments: list[Any] = []
        self.uses: Counter[Hashable] = Counter()
        self.networks = networks
        self.products: dict[Hashable, list[Any]] = {}


_current: list[Postponed] = []  # a global variable, because autograd runs backward passes on threads of its own


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the second stream of a device. It is created once."""
    return torch.cuda.Stream(device)


@contextmanager
def postponed_joins(device: torch.device, networks: Collection[Hashable] = ()) -> Iterator[Postponed]:
    """Join the work on the second stream at the end of this context, for networks that are used once inside.

    This holds for stacks of at most MAX_POSTPONED_RUNS runs, which leave parts of a GPU idle. Autograd adds the
    gradients of networks that are used several times, so these are joined at once. For `networks` that are used once,
    the products of the weight gradients are not computed, but returned with the context.
    """
    postponed = Postponed(networks)
    _current.append(postponed)
    try:
        yield postponed
    finally:
        _current.pop()
        if any(postponed.arguments):
            torch.cuda.current_stream(device).wait_stream(_side_stream(device))


def postponed_products(network: Hashable) -> list[Any] | None:
    """Return the list for the products of a network that are left to the optimiser, or None if they are computed."""
    if not _current or network not in _current[-1].networks or _current[-1].uses[network] != 1:
        return None
    return _current[-1].products.setdefault(network, [])


def count_use(network: Hashable, trained: bool) -> None:
    """Record that a network is used in this step, if its parameters get a gradient from this use."""
    if _current and trained:
        _current[-1].uses[network] += 1


class SideStream:
    """Runs functions on a second CUDA stream and keeps their arguments alive until `join`. On a CPU it calls them."""

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

    def join(self, network: Hashable, runs: int) -> None:
        """Make the main stream wait for all functions, now or for a small stack at the end of `postponed_joins`.

        If no function was run, there is nothing to wait for. The capture of a graph would then fail, because the second
        stream does not belong to the graph.
        """
        if not self.arguments:
            return
        if _current and _current[-1].uses[network] == 1 and runs <= MAX_POSTPONED_RUNS:
            _current[-1].arguments.append(self.arguments)
            return
        self.main.wait_stream(self.side)
        self.arguments.clear()
