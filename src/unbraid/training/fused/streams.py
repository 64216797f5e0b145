"""A second CUDA stream for weight gradients, which nothing else in a backward pass waits for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """The second stream of a device, created once."""
    return torch.cuda.Stream(device)


class SideStream:
    """Runs functions on a second stream and keeps their arguments alive until `join`. On a CPU it just calls them."""

    def __init__(self, device: torch.device) -> None:
        self.arguments: list[Any] = []
        self.active = device.type == "cuda"
        if self.active:
            self.main, self.side = torch.cuda.current_stream(device), _side_stream(device)

    def run(self, function: Callable[..., None], *arguments: Any) -> None:
        """Run a function as soon as the work launched so far is done."""
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
