"""Work beside the main stream: weight gradients, which nothing in a backward pass waits for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


@functools.cache
def _beside(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class Fork:
    """Calls that run on a second stream; what they read is kept alive until `join`. On a CPU they simply run."""

    def __init__(self, device: torch.device) -> None:
        self.kept: list[Any] = []
        self.active = device.type == "cuda"
        if self.active:
            self.main, self.side = torch.cuda.current_stream(device), _beside(device)

    def __call__(self, call: Callable[..., None], *arguments: Any) -> None:
        """Run a call as soon as what has been launched so far is done."""
        if not self.active:
            return call(*arguments)
        self.kept.append(arguments)
        self.side.wait_stream(self.main)
        with torch.cuda.stream(self.side):
            return call(*arguments)

    def join(self) -> None:
        """Let the main stream wait for all of it."""
        if self.active:
            self.main.wait_stream(self.side)
        self.kept.clear()
