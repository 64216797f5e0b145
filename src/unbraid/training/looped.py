"""Training a user's own convolutional networks on a GPU.

`vmap` turns the convolutions of all runs into one grouped convolution, which is slow if no kernel of the library exists
for the network. With bf16, the runs of a stack with such a network are computed one after another, with ordinary
convolutions, on a few CUDA streams (queues of GPU work that can overlap). The work of all runs is captured in the CUDA
graph of the step. With fp32 and tf32, such networks are computed with `vmap`, because the loop gained little there: its
speed was less than 1.5 times that of `vmap`. `benchmarks/bench_own_network.py` compares the speed with an ordinary
PyTorch loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from unbraid.accel.capture import cuda_stream
from unbraid.nets.registry import NETS
from unbraid.nets.vae import VAENet
from unbraid.runs.spec import RunSpec

STREAMS = 4
FIRST_STREAM = 1000  # first index of the streams for single runs; smaller indices are streams for whole stacks
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def needs_loop(spec: RunSpec, net: VAENet) -> bool:
    """Return whether a run has the precision bf16 and a convolutional network that is not one of the presets."""
    convolutional = any(isinstance(module, CONVOLUTIONS) for module in net.modules())
    return spec.precision == "bf16" and spec.net not in NETS and convolutional


def images_to_channels_last(x: Tensor) -> Tensor:
    """Return images (b, c, h, w) in channels-last memory, which convolutions on a GPU prefer. Keep other tensors."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def reduce_precision(net: VAENet, device: torch.device, exact: Collection[str] = ()) -> None:
    """Let the encoder and the decoder multiply in bfloat16, unless `exact` names them. They take and return float32."""
    for name, part in (("encoder", net.encoder), ("decoder", net.decoder)):
        if part is not None and name not in exact:
            part.forward = functools.partial(_autocast, part.forward, device.type)


def _autocast(forward: Callable[[Tensor], Tensor], device: str, x: Tensor) -> Tensor:
    """Call a network in bfloat16. Converted weights are not cached, because a CUDA graph must convert in each step."""
    with torch.autocast(device, torch.bfloat16, cache_enabled=False):
        return forward(x).float()


class Streams:
    """The CUDA streams on which the runs of a stack are computed. On a CPU, there are none, and methods do nothing."""

    def __init__(self, device: torch.device, stream_index: int) -> None:
        first = FIRST_STREAM + STREAMS * stream_index
        on_gpu = device.type == "cuda"
        self.device = device
        self.streams = [cuda_stream(device, first + i) for i in range(STREAMS)] if on_gpu else []

    @contextmanager
    def fork(self) -> Iterator[None]:
        """Start the streams after the work of the current stream, and let the current stream wait for them at the end.

        Inside this context, `run` selects the stream of a run.
        """
        if not self.streams:
            yield
            return
        current = torch.cuda.current_stream(self.device)
        for stream in self.streams:
            stream.wait_stream(current)
        yield
        for stream in self.streams:
            current.wait_stream(stream)

    def run(self, i: int) -> torch.cuda.StreamContext | nullcontext[None]:
        """Return a context in which GPU work uses the stream of member `i`."""
        return torch.cuda.stream(self.streams[i % STREAMS]) if self.streams else nullcontext()
