"""Random numbers that depend only on the seed of the run, the step, the stream and the number of the draw."""

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
def _kernels(device: torch.device) -> Any:
    """The module of kernels that compute a draw in one launch, or None if the device does not support them."""
    if not supports_kernels(device):
        return None
    from unbraid.accel.kernels import noise

    return noise


def _signed(n: int) -> int:
    """The 64-bit two's complement value of n, so that Python and tensor arithmetic overflow in the same way."""
    return (n + 2**63) % 2**64 - 2**63


def _shift(x: Tensor, n: int) -> Tensor:
    """The logical (zero-filling) right shift of int64."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def mix(x: Tensor) -> Tensor:
    """The splitmix64 finaliser: a bijection of 64-bit words whose output looks random."""
    x = (x ^ _shift(x, 30)) * MIX_1
    x = (x ^ _shift(x, 27)) * MIX_2
    return x ^ _shift(x, 31)


class AsBytes(torch.autograd.Function):
    """Words (*b, n) as bytes (*b, 8 n), lowest byte first. Some releases of torch cannot `vmap` such a view."""

    @staticmethod
    def forward(words: Tensor) -> Tensor:
        """A view of the same memory."""
        return words.contiguous().view(torch.uint8)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Save nothing, because integers have no gradient."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], words: Tensor) -> tuple[Tensor, int]:
        """The mapped axis becomes an ordinary leading axis."""
        return as_bytes(words.movedim(in_dims[0], 0)), 0


as_bytes: Callable[[Tensor], Tensor] = AsBytes.apply


@dataclass
class Noise:
    """A stream of random draws with a key. Draw number i of a stream always gives the same numbers.

    The n-th word of draw i is ``mix(mix(key + i * GAMMA) + n * GAMMA)``. The key is a 0-d int64 tensor. A stack of runs
    has one key per run, and ``vmap`` maps over the keys.
    """

    key: Tensor
    draws: int = 0

    @classmethod
    def of(cls, seed: Tensor, step: Tensor, stream: int = 0) -> Noise:
        """The stream of one training step of one run. `stream` separates, for example, data order from latent noise."""
        if (kernels := _kernels(seed.device)) is not None:
            return cls(kernels.Key.apply(seed, step, _signed(stream * GAMMA)))
        return cls(mix(mix(mix(seed + GAMMA) + step * GAMMA) + _signed(stream * GAMMA)))

    def _words(self, shape: tuple[int, ...]) -> Tensor:
        """Random 64-bit words."""
        self.draws += 1
        if (kernels := _kernels(self.key.device)) is not None:
            return self._draw_in_kernel(kernels, kernels.WORDS, shape)
        counter = torch.arange(math.prod(shape), device=self.key.device)
        return mix(mix(self.key + _signed(self.draws * GAMMA)) + counter * GAMMA).view(shape)

    def _draw_in_kernel(self, kernels: Any, kind: int, shape: tuple[int, ...], draw: int | None = None) -> Tensor:
        """Compute a draw in one kernel launch; `draw` is its number, by default that of the latest draw."""
        number = self.draws if draw is None else draw
        return cast(Tensor, kernels.Draw.apply(self.key, _signed(number * GAMMA), shape, kind))

    def uniform(self, *shape: int) -> Tensor:
        """Float32 numbers in the open interval (0, 1), from 2^24 equally spaced values."""
        if (kernels := _kernels(self.key.device)) is not None:
            self.draws += 1
            return self._draw_in_kernel(kernels, kernels.UNIFORM, shape)
        return (_shift(self._words(shape), 40).float() + 0.5) / (1 << 24)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers by the method of Box and Muller (1958). This counts as two draws."""
        if (kernels := _kernels(self.key.device)) is not None:
            self.draws += 2
            return self._draw_in_kernel(kernels, kernels.NORMAL, shape, self.draws - 1)
        u, v = self.uniform(*shape), self.uniform(*shape)
        return (-2 * u.log()).sqrt() * (2 * math.pi * v).cos()

    def integers(self, high: int | Tensor, *shape: int) -> Tensor:
        """Int64 numbers, uniform on 0 .. high - 1, for high up to 2^31 (bias below high / 2^32). `high` broadcasts."""
        return (_shift(self._words(shape), 32) * high) >> 32

    def bytes(self, *shape: int) -> Tensor:
        """Uint8 numbers, uniform on 0 .. 255, eight per word. Their total number must be a multiple of 8."""
        if (kernels := _kernels(self.key.device)) is not None:
            self.draws += 1
            return self._draw_in_kernel(kernels, kernels.BYTES, shape)
        return as_bytes(self._words((math.prod(shape) // 8,))).view(shape)

    def shuffle(self, z: Tensor) -> Tensor:
        """Permute the rows of z at random, independently for each column."""
        return z.gather(0, self.uniform(*z.shape).argsort(0))
