"""Unpacking images that are stored with one bit per pixel into float32 pixels, in one launch."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.constant import NonDifferentiable
from unbraid.accel.kernels.jit import kernel
from unbraid.accel.tracing import opaque


@kernel
def _unpack(TABLE: tl.tensor, INDEX: tl.tensor, OUT: tl.tensor, size: tl.constexpr, BLOCK: tl.constexpr) -> None:
    image = tl.program_id(0).to(tl.int64)
    row = TABLE + tl.load(INDEX + image) * (size // 8)
    for start in range(0, size, BLOCK):
        r = start + tl.arange(0, BLOCK)
        byte = tl.load(row + r // 8, mask=r < size, other=0)
        tl.store(OUT + image * size + r, ((byte >> (r % 8).to(tl.uint8)) & 1).to(tl.float32), mask=r < size)


class Unpack(NonDifferentiable):
    """Images (*k, *shape) with pixels 0 or 1, from packed images (n, size / 8) and indices (*k).

    Pixel j of an image is bit j % 8 of byte j // 8, and size is the number of pixels of an image.
    """

    @staticmethod
    @opaque
    def forward(table: Tensor, index: Tensor, shape: tuple[int, ...]) -> Tensor:
        out = torch.empty(*index.shape, *shape, device=index.device)
        _unpack[(index.numel(),)](table, index.contiguous(), out, math.prod(shape), 2048, num_warps=4)
        return out

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
        table, index, shape = inputs
        unpacked: Tensor = Unpack.apply(table, index.movedim(in_dims[1], 0), shape)  # type: ignore[no-untyped-call]
        return unpacked, 0
