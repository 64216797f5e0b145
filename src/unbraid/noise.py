"""Random numbers as a function of (run seed, step, draw), never of what else is running."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from unbraid.accel.capture import kernels_on

# Constants of splitmix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195), written as signed 64-bit integers.
GAMMA = 0x9E3779B97F4A7C15 - 2**64
MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
MIX_2 = 0x94D049BB133111EB - 2**64


@functools.cache
def _kernels(device: torch.device) -> Any:
    """The same draws in one launch each, where such kernels run."""
    if not kernels_on(device):
        return None
    from unbraid.accel.kernels import noise

    return noise


def _signed(n: int) -> int:
    """The 64-bit two's complement value of n, so that Python and tensor arithmetic wrap alike."""
    return (n + 2**63) % 2**64 - 2**63


def _shift(x: Tensor, n: int) -> Tensor:
    """Logical (zero-filling) right shift of int64."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def mix(x: Tensor) -> Tensor:
    """The splitmix64 finaliser: a bijection of 64-bit words that passes for random."""
    x = (x ^ _shift(x, 30)) * MIX_1
    x = (x ^ _shift(x, 27)) * MIX_2
    return x ^ _shift(x, 31)


class AsBytes(torch.autograd.Function):
    """Words (*b, n) as bytes (*b, 8 n), the lowest first; not every release of torch maps such a view by itself."""

    @staticmethod
    def forward(words: Tensor) -> Tensor:
        """The same memory."""
        return words.contiguous().view(torch.uint8)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept: whole numbers have no gradient."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], words: Tensor) -> tuple[Tensor, int]:
        """A stack of words is one more axis of them."""
        return as_bytes(words.movedim(in_dims[0], 0)), 0


as_bytes: Callable[[Tensor], Tensor] = AsBytes.apply


@dataclass
class Noise:
    """A stream of draws identified by a key; draw number i of a stream is always the same numbers.

    The n-th word of draw i is ``mix(mix(key + i * GAMMA) + n * GAMMA)``. The key is a 0-d int64 tensor, so a stack of
    runs holds one key a run and ``vmap`` maps over it.
    """

    key: Tensor
    draws: int = 0

    @classmethod
    def of(cls, seed: Tensor, step: Tensor, stream: int = 0) -> Noise:
        """The stream of one training step of one run; `stream` separates data order from the objective's noise."""
        if (kernels := _kernels(seed.device)) is not None:
            return cls(kernels.Key.apply(seed, step, _signed(stream * GAMMA)))
        return cls(mix(mix(mix(seed + GAMMA) + step * GAMMA) + _signed(stream * GAMMA)))

    def _words(self, shape: tuple[int, ...]) -> Tensor:
        self.draws += 1
        if (kernels := _kernels(self.key.device)) is not None:
            return self._drawn(kernels, kernels.WORDS, shape)
        counter = torch.arange(math.prod(shape), device=self.key.device)
        return mix(mix(self.key + _signed(self.draws * GAMMA)) + counter * GAMMA).view(shape)

    def _drawn(self, kernels: Any, kind: int, shape: tuple[int, ...], draw: int | None = None) -> Tensor:
        """One launch for the draw of a number, the latest unless said."""
        number = self.draws if draw is None else draw
        return cast(Tensor, kernels.Draw.apply(self.key, _signed(number * GAMMA), shape, kind))

    def uniform(self, *shape: int) -> Tensor:
        """Float32 in the open interval (0, 1), 2^24 equally spaced values."""
        if (kernels := _kernels(self.key.device)) is not None:
            self.draws += 1
            return self._drawn(kernels, kernels.UNIFORM, shape)
        return (_shift(self._words(shape), 40).float() + 0.5) / (1 << 24)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal by Box and Muller (1958)."""
        if (kernels := _kernels(self.key.device)) is not None:
            self.draws += 2
            return self._drawn(kernels, kernels.NORMAL, shape, self.draws - 1)
        u, v = self.uniform(*shape), self.uniform(*shape)
        return (-2 * u.log()).sqrt() * (2 * math.pi * v).cos()

    def integers(self, high: int | Tensor, *shape: int) -> Tensor:
        """Int64 uniform on 0 .. high - 1, for high up to 2^31 (bias below high / 2^32); `high` broadcasts."""
        return (_shift(self._words(shape), 32) * high) >> 32

    def bytes(self, *shape: int) -> Tensor:
        """Uint8 uniform on 0 .. 255, eight to a word; the number of them must be a multiple of 8."""
        if (kernels := _kernels(self.key.device)) is not None:
            self.draws += 1
            return self._drawn(kernels, kernels.BYTES, shape)
        return as_bytes(self._words((math.prod(shape) // 8,))).view(shape)

    def shuffle(self, z: Tensor) -> Tensor:
        """An independent permutation of the rows for every column of z."""
        return z.gather(0, self.uniform(*z.shape).argsort(0))
