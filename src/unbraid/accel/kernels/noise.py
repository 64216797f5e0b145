"""The random draws of `unbraid.noise`, each in one launch. Tensor operations would need about twelve launches."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.constant import NonDifferentiable
from unbraid.accel.kernels.jit import block_count, kernel
from unbraid.accel.kernels.tuned import launch_settings
from unbraid.accel.tracing import opaque

WORDS, UNIFORM, NORMAL, BYTES = 0, 1, 2, 3  # kinds of draws
# Constants of splitmix64, as in unbraid.noise.
GAMMA: tl.constexpr = tl.constexpr(0x9E3779B97F4A7C15 - 2**64)
MIX_1: tl.constexpr = tl.constexpr(0xBF58476D1CE4E5B9 - 2**64)
MIX_2: tl.constexpr = tl.constexpr(0x94D049BB133111EB - 2**64)
LOW_34: tl.constexpr = tl.constexpr((1 << 34) - 1)
LOW_37: tl.constexpr = tl.constexpr((1 << 37) - 1)
LOW_33: tl.constexpr = tl.constexpr((1 << 33) - 1)
LOW_24: tl.constexpr = tl.constexpr((1 << 24) - 1)


@kernel
def mix(x: tl.tensor) -> tl.tensor:
    """Apply the splitmix64 finaliser."""
    x = (x ^ ((x >> 30) & LOW_34)) * MIX_1
    x = (x ^ ((x >> 27) & LOW_37)) * MIX_2
    return x ^ ((x >> 31) & LOW_33)


@kernel
def uniform(words: tl.tensor) -> tl.tensor:
    """Return the highest 24 bits of each word as a float in (0, 1)."""
    return (((words >> 40) & LOW_24).to(tl.float32) + 0.5) / 16777216.0


@kernel
def _draw(
    KEY: tl.tensor, OUT: tl.tensor, start: tl.tensor, size: tl.tensor, KIND: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    r = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    counter = r.to(tl.int64) * GAMMA
    key = tl.load(KEY + n)
    words = mix(mix(key + start) + counter)
    if KIND == 0 or KIND == 3:
        value = words
    elif KIND == 1:
        value = uniform(words)
    else:
        v = uniform(mix(mix(key + start + GAMMA) + counter))
        value = tl.sqrt(-2.0 * tl.log(uniform(words))) * tl.cos(6.283185307179586 * v)
    tl.store(OUT + n * size + r, value, mask=r < size)


class Draw(NonDifferentiable):
    """Random numbers (*k, *shape) from keys (*k).

    They are 64-bit words, uniform numbers, normal numbers, or bytes (eight per word).
    """

    @staticmethod
    @opaque
    def forward(key: Tensor, start: int, shape: tuple[int, ...], kind: int) -> Tensor:
        size, keys = math.prod(shape) // (8 if kind == BYTES else 1), key.contiguous()
        dtype = torch.int64 if kind in (WORDS, BYTES) else torch.float32
        out = torch.empty(*key.shape, size, device=key.device, dtype=dtype)
        if size:
            tuned = launch_settings("noise", 0, 0, torch.float32, keys.numel())
            # Only the first axis of a grid may have more than 65,535 programs, and there may be one key per example.
            _draw[(keys.numel(), block_count(size, tuned["BLOCK"]))](keys, out, start, size, KIND=kind, **tuned)
        return (out.view(torch.uint8) if kind == BYTES else out).view(*key.shape, *shape)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
        key, *rest = inputs
        drawn: Tensor = Draw.apply(key.movedim(in_dims[0], 0), *rest)  # type: ignore[no-untyped-call]
        return drawn, 0


@kernel
def _key(
    SEED: tl.tensor, STEP: tl.tensor, OUT: tl.tensor, stream: tl.tensor, size: tl.tensor, stride: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    r = tl.arange(0, BLOCK)
    live = r < size
    seed = tl.load(SEED + r, mask=live, other=0)
    step = tl.load(STEP + r * stride, mask=live, other=0)
    tl.store(OUT + r, mix(mix(mix(seed + GAMMA) + step * GAMMA) + stream), mask=live)


class Key(NonDifferentiable):
    """Keys (*k) of a noise stream, from seeds (*k) and either steps (*k) or a single step."""

    @staticmethod
    @opaque
    def forward(seed: Tensor, step: Tensor, stream: int) -> Tensor:
        seeds = seed.contiguous()
        out = torch.empty_like(seeds)
        steps = step.contiguous() if step.numel() == 1 else step.expand_as(seeds).contiguous()
        size = seeds.numel()
        _key[(1,)](seeds, steps, out, stream, size, int(step.numel() > 1), max(2, 1 << (size - 1).bit_length()))
        return out

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
        seed, step, stream = inputs
        seeds = seed.expand(info.batch_size, *seed.shape) if in_dims[0] is None else seed.movedim(in_dims[0], 0)
        steps = step
        if in_dims[1] is not None:
            # Put the mapped axis first, then an axis of size 1 for each axis that only the seeds have.
            moved = step.movedim(in_dims[1], 0)
            steps = moved.reshape(len(moved), *[1] * (seeds.ndim - moved.ndim), *moved.shape[1:])
        keys: Tensor = Key.apply(seeds, steps, stream)  # type: ignore[no-untyped-call]
        return keys, 0
