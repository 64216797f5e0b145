"""A second CUDA stream for weight gradients.

A CUDA stream is a queue of GPU work, and work on different streams can overlap. Nothing else in a backward pass depends
on the weight gradients, so they need not delay the other work.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the second stream of a device. It is created once."""
    return torch.cuda.Stream(device)


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

    def join(self) -> None:
        """Make the main stream wait for all functions."""
        if self.active:
            self.main.wait_stream(self.side)
        self.arguments.clear()
