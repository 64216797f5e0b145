"""Blend ray-cast layers into images on a CPU, with functions that numba compiles.

These functions make one pass over the pixels, whereas `Shapes3D._blend` makes about a dozen. Import this module only
when images are blended, because importing numba takes time. The arithmetic is that of `raycast.blend_layers` and
`Shapes3D._blend`. Every step is computed in int16, so the images are bitwise identical to those of `Shapes3D._blend`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbraid.data.rendered.raycast import (
    FLOOR,
    FLOOR_COVERAGE,
    GLOSS,
    SKY_RED,
    SOLID,
    SOLID_COVERAGE,
    WALL,
    WALL_COVERAGE,
)
from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]


class Blend(torch.autograd.Function):
    """Blend the images (n, 3, h, w) at `index` (n,). This is an autograd function so that it can define vmap.

    `table` (g, l, h, w) contains the l layers of each of g views, and `colours` (hues, 3) contains the colours that a
    surface can have. Both are int16. In an index, the view varies fastest, followed by the hues of solid, wall and
    floor.
    `white` is the value of a white pixel, which is 255 for uint8 images and 1 for float32 images.
    """

    @staticmethod
    def forward(index: Tensor, table: Tensor, colours: Tensor, white: int) -> Tensor:
        """Blend the images. `index` may have any number of axes."""
        flat = index.reshape(-1).contiguous()
        dtype = torch.uint8 if white == 255 else torch.float32
        image = torch.empty(len(flat), 3, *table.shape[2:], dtype=dtype)
        unit = np.float32(255 / white)
        fill_images(table.flatten(2).numpy(), flat.numpy(), colours.numpy(), unit, image.flatten(2).numpy())
        return image.view(*index.shape, *image.shape[1:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Save nothing, because integers have no gradient."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], index: Tensor, *shared: Any) -> tuple[Tensor, int]:
        """Move the mapped axis of `index` to the front, and blend all images in one call.

        The other arguments must not be mapped.
        """
        axis, *others = in_dims
        if axis is None or any(other is not None for other in others):
            raise NotImplementedError("Only the index of blended images can be mapped with vmap.")
        return blend_images(index.movedim(axis, 0), *shared), 0


blend_images: Callable[..., Tensor] = Blend.apply


@kernel()
def fill_images(table: Array, index: Array, colours: Array, unit: Any, image: Array) -> None:
    """Write the images at `index` to `image` (n, 3, pixels), as levels from 0 to 255 divided by `unit`."""
    views, hues = len(table), len(colours)
    for i in range(len(index)):
        layers, hue = table[index[i] % views], index[i] // views
        for c in range(3):
            solid, wall = colours[hue % hues, c], colours[hue // hues % hues, c]
            floor = colours[hue // hues**2 % hues, c]
            fill_channel(layers, floor, wall, solid, layers[SKY_RED + c], unit, image[i, c])


@kernel()
def fill_channel(layers: Array, floor: Any, wall: Any, solid: Any, sky: Array, unit: Any, image: Array) -> None:
    """Write one channel of one image.

    The result of each step is cast to int16, because numba would otherwise compute in 64 bits.
    """
    for p in range(len(image)):
        total = min(np.int16(floor * layers[FLOOR, p]), layers[FLOOR_COVERAGE, p])
        total = np.int16(total + min(np.int16(wall * layers[WALL, p]), layers[WALL_COVERAGE, p]))
        glossy = np.int16(np.int16(solid * layers[SOLID, p]) + layers[GLOSS, p])
        total = np.int16(np.int16(total + min(glossy, layers[SOLID_COVERAGE, p])) + sky[p])
        odd = np.int16((total >> 5) & 1)
        level = np.int16(np.int16(np.int16(total + odd) + 15) >> 5)
        image[p] = np.float32(max(np.int16(0), min(np.int16(255), level))) / unit
