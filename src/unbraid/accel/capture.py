"""Repeating a step as one CUDA graph: recorded once, then launched by the GPU itself."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable

import torch

EAGER = 2  # steps taken one launch at a time, in which kernels compile and libraries set themselves up


@functools.cache
def kernels_on(device: torch.device) -> bool:
    """Whether the stack's own kernels run there: an NVIDIA GPU with matrix units for bfloat16, and Triton."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)


@functools.cache
def lane_stream(device: torch.device, lane: int = 0) -> torch.cuda.Stream:
    """One for all stacks that ever take that lane: libraries keep work space for every stream they have seen.

    Graphs keep the work space of the stream they were recorded on: those that run at the same time need other lanes.
    """
    return torch.cuda.Stream(device)


class Captured:
    """A step that works in place on fixed tensors. A step that cannot be recorded goes on one launch at a time."""

    def __init__(self, device: torch.device, lane: int = 0) -> None:
        self.device = device
        self.stream = lane_stream(device, lane)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.taken, self.refused = 0, False

    def run(self, step: Callable[[], None]) -> None:
        """Take the step once; it is the same one at every call."""
        if self.graph is None and self.taken >= EAGER and not self.refused:
            self._record(step)
        if self.graph is not None:
            self.graph.replay()
        else:
            self._eagerly(step)
        self.taken += 1

    def _eagerly(self, step: Callable[[], None]) -> None:
        main = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(main)
        with torch.cuda.stream(self.stream):
            step()
        main.wait_stream(self.stream)

    def _record(self, step: Callable[[], None]) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                step()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.refused = True
            reason = str(error).strip().splitlines()[0]
            warnings.warn(
                f"This step cannot be recorded as a CUDA graph and is launched bit by bit, which is slower: {reason} "
                "Objectives and data must not move tensors between CPU and GPU or read their values.",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        self.graph = graph


def repeater(device: torch.device) -> Callable[[Callable[[], None]], None]:
    """What takes one and the same step again and again: as a CUDA graph where there are such, else by calling it."""
    return Captured(device).run if device.type == "cuda" else lambda step: step()
