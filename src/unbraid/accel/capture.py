"""Capturing a training step as a CUDA graph.

A CUDA graph is a recorded sequence of kernels. The GPU replays it with a single launch, which saves the time of
launching each kernel. A CUDA stream is a queue of GPU work, and work on different streams can overlap.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable

import torch

from unbraid.errors import warn_user

EAGER_STEPS = 2  # number of steps before the capture, in which kernels are compiled and libraries are initialised


@functools.cache
def supports_kernels(device: torch.device) -> bool:
    """Return whether the kernels of `unbraid.accel.kernels` run on a device.

    They need Triton and an NVIDIA GPU of compute capability 8.0 or more, because they multiply bfloat16 matrices.
    """
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)


@functools.cache
def cuda_stream(device: torch.device, index: int = 0) -> torch.cuda.Stream:
    """Return the CUDA stream with this index. A stream is created once, because libraries keep a workspace per stream.

    A graph uses the workspace of the stream on which it was captured. Graphs that run at the same time must therefore
    be captured on streams with different indices.
    """
    return torch.cuda.Stream(device)


class CapturedStep:
    """A step that updates fixed tensors in place. The first steps are eager, and later ones replay a CUDA graph.

    If a step cannot be captured, a warning is issued and all steps are eager.
    """

    def __init__(self, device: torch.device, stream_index: int = 0) -> None:
        self.device = device
        self.stream = cuda_stream(device, stream_index)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.steps, self.failed = 0, False

    def run(self, step: Callable[[], None]) -> None:
        """Take one step. `step` must be the same function in every call."""
        if self.graph is None and self.steps >= EAGER_STEPS and not self.failed:
            self._capture(step)
        if self.graph is not None:
            self.graph.replay()
        else:
            self._run_eagerly(step)
        self.steps += 1

    def _run_eagerly(self, step: Callable[[], None]) -> None:
        """Launch the kernels of a step one by one."""
        main = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(main)
        with torch.cuda.stream(self.stream):
            step()
        main.wait_stream(self.stream)

    def _capture(self, step: Callable[[], None]) -> None:
        """Record the kernels of a step as a graph, without running them."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                step()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.failed = True
            reason = str(error).strip().splitlines()[0]
            warn_user(
                f"This step cannot be captured as a CUDA graph. It runs kernel by kernel, which is slower. Error: "
                f"{reason} Objectives and datasets must not move tensors between CPU and GPU or read their values."
            )
            return
        self.graph = graph


def step_runner(device: torch.device) -> Callable[[Callable[[], None]], None]:
    """Return a function that runs a step. On a GPU it uses a CUDA graph. On other devices it calls the step."""
    return CapturedStep(device).run if device.type == "cuda" else lambda step: step()
