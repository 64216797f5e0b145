"""Painted sprites and blended scenes in one launch each: whole numbers from 0 to 255, over 255, as on a CPU."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from unbraid.engine.kernels.jit import kernel

COLOURED, NOISY, NEGATIVE = 0, 1, 2


@kernel
def _paint(
    TABLE: tl.tensor, INDEX: tl.tensor, BACK: tl.tensor, OUT: tl.tensor, size: tl.constexpr, KIND: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    row = TABLE + tl.load(INDEX + image) * (size // 8)
    for start in range(0, size, BLOCK):
        r = start + tl.arange(0, BLOCK)
        bit = (tl.load(row + r // 8) >> (r % 8).to(tl.uint8)) & 1
        for c in tl.static_range(3):
            if KIND == 0:
                level = bit * tl.load(BACK + image * 3 + c)
            else:
                back = tl.load(BACK + (image * 3 + c) * size + r)
                level = back | (bit * 255) if KIND == 1 else back ^ (bit * 255)
            tl.store(OUT + (image * 3 + c) * size + r, tl.div_rn(level.to(tl.float32), 255.0))


class Paint(Function):
    """Sprites as bits (n, 512), indices (*k) and what is behind or on them to images (*k, 3, 64, 64).

    COLOURED: `back` is a colour an image, (*k, 3). NOISY and NEGATIVE: it is an image, (*k, 3, 64, 64), in which the
    sprite is white or inverted.
    """

    @staticmethod
    def forward(table: Tensor, index: Tensor, back: Tensor, kind: int) -> Tensor:
        out = torch.empty(*index.shape, 3, 64, 64, device=index.device)
        _paint[(index.numel(),)](table, index.contiguous(), back.contiguous(), out, 4096, kind, 1024, num_warps=4)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        table, index, back, kind = inputs
        index, back = (
            value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)
            for value, dim in zip((index, back), in_dims[1:3], strict=True)
        )
        painted: Tensor = Paint.apply(table, index, back, kind)  # type: ignore[no-untyped-call]
        return painted, 0

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        return None, None, None, None


@kernel
def _blend(
    TABLE: tl.tensor, INDEX: tl.tensor, COLOURS: tl.tensor, OUT: tl.tensor, views: tl.tensor, hues: tl.tensor,
    size: tl.constexpr, LAYERS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """`raycast.blend` and the rounding of `Shapes3D`; the order of layers is that of `raycast`."""
    image = tl.program_id(0).to(tl.int64)
    index = tl.load(INDEX + image)
    view = TABLE + (index % views) * (LAYERS * size)
    hue = index // views
    solids = COLOURS + (hue % hues) * 3
    walls = COLOURS + (hue // hues % hues) * 3
    floors = COLOURS + (hue // hues // hues % hues) * 3
    for start in range(0, size, BLOCK):
        r = start + tl.arange(0, BLOCK)
        floor = tl.load(view + r)
        floor_share = tl.load(view + size + r)
        wall = tl.load(view + 2 * size + r)
        wall_share = tl.load(view + 3 * size + r)
        solid = tl.load(view + 4 * size + r)
        solid_share = tl.load(view + 5 * size + r)
        gloss = tl.load(view + 6 * size + r)
        for c in tl.static_range(3):
            total = tl.minimum(tl.load(floors + c) * floor, floor_share)
            total += tl.minimum(tl.load(walls + c) * wall, wall_share)
            total += tl.minimum(tl.load(solids + c) * solid + gloss, solid_share)
            total += tl.load(view + (7 + c) * size + r)
            level = (total + ((total >> 5) & 1) + 15) >> 5
            level = tl.minimum(tl.maximum(level, 0), 255)
            tl.store(OUT + (image * 3 + c) * size + r, tl.div_rn(level.to(tl.float32), 255.0))


class Blend(Function):
    """Layers (g, l, h, w), indices (*k) and the colours of hues (hues, 3), int16, to images (*k, 3, h, w)."""

    @staticmethod
    def forward(table: Tensor, index: Tensor, colours: Tensor) -> Tensor:
        views, layers, h, w = table.shape
        out = torch.empty(*index.shape, 3, h, w, device=index.device)
        given = (table, index.contiguous(), colours, out, views, len(colours))
        _blend[(index.numel(),)](*given, h * w, layers, 1024, num_warps=4)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        table, index, colours = inputs
        blended: Tensor = Blend.apply(table, index.movedim(in_dims[1], 0), colours)  # type: ignore[no-untyped-call]
        return blended, 0

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        return None, None, None
