"""Random numbers as a pure function of a seed, a training step, a stream and a draw number.

Nothing is stored between steps, so a resumed run draws the same numbers as an uninterrupted one, and runs that train
together do not affect each other. A *stream* is an independent sequence of draws within one step. For example, the data
order and the latent noise of a step come from different streams. A *draw* is one array of random numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from unbraid.accel.capture import supports_kernels

# Constants of splitmix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195), written as signed 64-bit integers.
GAMMA = 0x9E3779B97F4A7C15 - 2**64
MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
MIX_2 = 0x94D049BB133111EB - 2**64


@functools.cache
def noise_kernels(device: torch.device) -> Any:
    """Return the module whose GPU kernels compute a draw in one launch, or None if the device does not support them."""
    if not supports_kernels(device):
        return None
    from unbraid.accel.kernels import noise

    return noise


def _wrap_to_int64(n: int) -> int:
    """Wrap n to a signed 64-bit integer (two's complement), as arithmetic on int64 tensors does when it overflows."""
    return (n + 2**63) % 2**64 - 2**63


def _shift_right(x: Tensor, n: int) -> Tensor:
    """Shift int64 values right by n bits and fill with zeros. The operator `>>` would copy the sign bit instead."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def mix(x: Tensor) -> Tensor:
    """Apply the splitmix64 finaliser, which is a bijection of 64-bit words whose output looks random."""
    x = (x ^ _shift_right(x, 30)) * MIX_1
    x = (x ^ _shift_right(x, 27)) * MIX_2
    return x ^ _shift_right(x, 31)


class AsBytes(torch.autograd.Function):
    """View 64-bit words (*b, n) as bytes (*b, 8 n), lowest byte first.

    This is an autograd function with its own rule for `vmap`, because some releases of torch cannot apply `vmap` to a
    view with another data type.
    """

    @staticmethod
    def forward(words: Tensor) -> Tensor:
        """Return a view of the same memory."""
        return words.contiguous().view(torch.uint8)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Save nothing, because integers have no gradient."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], words: Tensor) -> tuple[Tensor, int]:
        """Move the mapped axis to the front and treat it as an ordinary axis."""
        return as_bytes(words.movedim(in_dims[0], 0)), 0


as_bytes: Callable[[Tensor], Tensor] = AsBytes.apply


@dataclass
class Noise:
    """One stream of random draws, identified by a key. Draw number i of a stream always gives the same numbers.

    Word n of draw i is the 64-bit integer ``mix(mix(key + i * GAMMA) + n * GAMMA)``. Words are counted from 0, and
    draws from 1. When many runs train at once, there is one key per run, and ``vmap`` maps over the keys.

    Attributes:
        key: The key of the stream, a 0-d int64 tensor.
        draws: The number of draws so far.
    """

    key: Tensor
    draws: int = 0

    @classmethod
    def from_seed(cls, seed: Tensor, step: Tensor, stream: int = 0) -> Noise:
        """Create a stream of one training step of one run.

        Args:
            seed: The random seed of the run, an int64 tensor.
            step: The training step, an int64 tensor.
            stream: Index of the stream. Streams with different indices are independent.
        """
        if (kernels := noise_kernels(seed.device)) is not None:
            return cls(kernels.Key.apply(seed, step, _wrap_to_int64(stream * GAMMA)))
        return cls(mix(mix(mix(seed + GAMMA) + step * GAMMA) + _wrap_to_int64(stream * GAMMA)))

    def _words(self, shape: tuple[int, ...]) -> Tensor:
        """Draw uniform 64-bit words of the given shape, as int64."""
        self.draws += 1
        if (kernels := noise_kernels(self.key.device)) is not None:
            return self._draw_in_kernel(kernels, kernels.WORDS, shape)
        counter = torch.arange(math.prod(shape), device=self.key.device)
        return mix(mix(self.key + _wrap_to_int64(self.draws * GAMMA)) + counter * GAMMA).view(shape)

    def _draw_in_kernel(self, kernels: Any, kind: int, shape: tuple[int, ...], draw: int | None = None) -> Tensor:
        """Compute draw number `draw` (default: the latest) in one kernel launch. `kind` is a constant of `kernels`."""
        number = self.draws if draw is None else draw
        return cast(Tensor, kernels.Draw.apply(self.key, _wrap_to_int64(number * GAMMA), shape, kind))

    def uniform(self, *shape: int) -> Tensor:
        """Draw float32 numbers above 0 and up to 1.

        They are the centres of 2^24 intervals of equal length, rounded to float32. The last centre is rounded to 1.
        """
        if (kernels := noise_kernels(self.key.device)) is not None:
            self.draws += 1
            return self._draw_in_kernel(kernels, kernels.UNIFORM, shape)
        return (_shift_right(self._words(shape), 40).float() + 0.5) / (1 << 24)

    def normal(self, *shape: int) -> Tensor:
        """Draw standard normal numbers by the method of Box and Muller (1958). This counts as two draws."""
        if (kernels := noise_kernels(self.key.device)) is not None:
            self.draws += 2
            return self._draw_in_kernel(kernels, kernels.NORMAL, shape, self.draws - 1)
        u, v = self.uniform(*shape), self.uniform(*shape)
        return (-2 * u.log()).sqrt() * (2 * math.pi * v).cos()

    def integers(self, high: int | Tensor, *shape: int) -> Tensor:
        """Draw int64 numbers uniformly from 0 .. high - 1, for high <= 2^31.

        The probability of each number has a relative error below high / 2^32. If `high` is a tensor, it broadcasts
        against the shape.
        """
        return (_shift_right(self._words(shape), 32) * high) >> 32

    def bytes(self, *shape: int) -> Tensor:
        """Draw uint8 numbers uniformly from 0 .. 255. Their total number must be a multiple of 8."""
        if (kernels := noise_kernels(self.key.device)) is not None:
            self.draws += 1
            return self._draw_in_kernel(kernels, kernels.BYTES, shape)
        return as_bytes(self._words((math.prod(shape) // 8,))).view(shape)

    def shuffle(self, z: Tensor) -> Tensor:
        """Return z with each column permuted at random, independently of the other columns."""
        return z.gather(0, self.uniform(*z.shape).argsort(0))
