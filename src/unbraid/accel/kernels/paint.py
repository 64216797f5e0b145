"""Painting sprites and blending rendered scenes, each in one launch.

The arithmetic is on integers, as on a CPU, so images are equal bit for bit on both devices. Pixels are integers from 0
to 255, divided by 255.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from unbraid.accel.kernels.constant import NonDifferentiable
from unbraid.accel.kernels.jit import kernel
from unbraid.accel.tracing import opaque

COLOURED, NOISY = 0, 1  # kinds of `Paint`


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
                level = tl.load(BACK + (image * 3 + c) * size + r) | (bit * 255)
            tl.store(OUT + (image * 3 + c) * size + r, tl.div_rn(level.to(tl.float32), 255.0))


class Paint(NonDifferentiable):
    """Images (*k, 3, 64, 64) from packed sprites (n, 512), indices (*k) and a colour or background per image.

    If `kind` is COLOURED, `back` is the colour of each sprite, (*k, 3), and the background is black. If it is NOISY,
    `back` is the background of each image, (*k, 3, 64, 64), and the sprite is white.
    """

    @staticmethod
    @opaque
    def forward(table: Tensor, index: Tensor, back: Tensor, kind: int) -> Tensor:
        out = torch.empty(*index.shape, 3, 64, 64, device=index.device)
        _paint[(index.numel(),)](table, index.contiguous(), back.contiguous(), out, 4096, kind, 1024, num_warps=4)
        return out

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        table, index, back, kind = inputs
        index, back = _move_mapped_axis_first((index, back), in_dims[1:3], info.batch_size)
        painted: Tensor = Paint.apply(table, index, back, kind)  # type: ignore[no-untyped-call]
        return painted, 0


@kernel
def _negative(
    TABLE: tl.tensor, INDEX: tl.tensor, PICTURE: tl.tensor, CORNER: tl.tensor, COLOUR: tl.tensor, OUT: tl.tensor,
    height: tl.tensor, width: tl.tensor, size: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    row = TABLE + tl.load(INDEX + image) * (size // 8)
    corner = PICTURE + tl.load(CORNER + 2 * image) * width + tl.load(CORNER + 2 * image + 1)
    for start in range(0, size, BLOCK):
        r = start + tl.arange(0, BLOCK)
        bit = (tl.load(row + r // 8) >> (r % 8).to(tl.uint8)) & 1
        for c in tl.static_range(3):
            crop = tl.load(corner + c * height * width + r // 64 * width + r % 64)
            level = ((crop >> 1) + (tl.load(COLOUR + image * 3 + c) >> 1)) ^ (bit * 255)
            tl.store(OUT + (image * 3 + c) * size + r, tl.div_rn(level.to(tl.float32), 255.0))


class Negative(NonDifferentiable):
    """Images (*k, 3, 64, 64) of sprites that invert their background.

    The arguments are packed sprites (n, 512), indices (*k), a picture (3, h, w), corners (*k, 2) and colours (*k, 3).
    The background is (crop + colour) / 2. The crop has 64x64 pixels of the picture, and its first pixel is at the
    corner.
    """

    @staticmethod
    @opaque
    def forward(table: Tensor, index: Tensor, picture: Tensor, corner: Tensor, colour: Tensor) -> Tensor:
        out = torch.empty(*index.shape, 3, 64, 64, device=index.device)
        each = (index.contiguous(), picture.contiguous(), corner.contiguous(), colour.contiguous(), out)
        _negative[(index.numel(),)](table, *each, *picture.shape[1:], 4096, 1024, num_warps=4)
        return out

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        table, index, picture, corner, colour = inputs
        index, corner, colour = _move_mapped_axis_first(
            (index, corner, colour), (in_dims[1], *in_dims[3:]), info.batch_size
        )
        painted: Tensor = Negative.apply(table, index, picture, corner, colour)  # type: ignore[no-untyped-call]
        return painted, 0


def _move_mapped_axis_first(values: tuple[Tensor, ...], dims: tuple[int | None, ...], count: int) -> tuple[Tensor, ...]:
    """Move the mapped axis of each tensor to the front. Tensors without a mapped axis are expanded."""
    pairs = zip(values, dims, strict=True)
    return tuple(v.expand(count, *v.shape) if dim is None else v.movedim(dim, 0) for v, dim in pairs)


@kernel
def _blend(
    TABLE: tl.tensor, INDEX: tl.tensor, COLOURS: tl.tensor, OUT: tl.tensor, views: tl.tensor, hues: tl.tensor,
    size: tl.constexpr, LAYERS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Compute `blend_layers` of `unbraid.data.rendered.raycast`, in the same order of layers, and round to pixels."""
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
        floor_fraction = tl.load(view + size + r)
        wall = tl.load(view + 2 * size + r)
        wall_fraction = tl.load(view + 3 * size + r)
        solid = tl.load(view + 4 * size + r)
        solid_fraction = tl.load(view + 5 * size + r)
        gloss = tl.load(view + 6 * size + r)
        for c in tl.static_range(3):
            total = tl.minimum(tl.load(floors + c) * floor, floor_fraction)
            total += tl.minimum(tl.load(walls + c) * wall, wall_fraction)
            total += tl.minimum(tl.load(solids + c) * solid + gloss, solid_fraction)
            total += tl.load(view + (7 + c) * size + r)
            level = (total + ((total >> 5) & 1) + 15) >> 5
            level = tl.minimum(tl.maximum(level, 0), 255)
            tl.store(OUT + (image * 3 + c) * size + r, tl.div_rn(level.to(tl.float32), 255.0))


class Blend(NonDifferentiable):
    """Images (*k, 3, h, w) from layers (views, layers, h, w), indices (*k) and the colours of hues (hues, 3).

    Layers and colours are int16. The index of an image determines its view and the hues of floor, walls and object.
    """

    @staticmethod
    @opaque
    def forward(table: Tensor, index: Tensor, colours: Tensor) -> Tensor:
        views, layers, h, w = table.shape
        out = torch.empty(*index.shape, 3, h, w, device=index.device)
        arguments = (table, index.contiguous(), colours, out, views, len(colours))
        _blend[(index.numel(),)](*arguments, h * w, layers, 1024, num_warps=4)
        return out

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        table, index, colours = inputs
        blended: Tensor = Blend.apply(table, index.movedim(in_dims[1], 0), colours)  # type: ignore[no-untyped-call]
        return blended, 0
