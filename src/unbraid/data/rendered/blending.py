"""Ray-cast layers blended on a CPU, compiled: one pass over each pixel instead of a dozen; loaded when first called.

The arithmetic is that of `raycast.blend` and `Shapes3D._blended`, int16 at every step, so the bits are theirs too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbraid.data.rendered.raycast import FLOOR, FLOOR_SHARE, GLOSS, SKY_RED, SOLID, SOLID_SHARE, WALL, WALL_SHARE
from unbraid.errors import UserError
from unbraid.runtime.jit import kernel

Array = np.ndarray[Any, np.dtype[Any]]


class Blend(torch.autograd.Function):
    """Images (n, 3, h, w) at `index` (n,); a function of torch's own kind, because those may be told of vmap.

    `table` (g, l, h, w) are the layers of every view, `colours` (hues, 3) those of each surface, all of them int16. An
    index counts views fastest, then the hues of solid, wall and floor. White is `white`: uint8 if 255, float32 if 1.
    """

    @staticmethod
    def forward(index: Tensor, table: Tensor, colours: Tensor, white: int) -> Tensor:
        """The images of any number of axes of indices."""
        flat = index.reshape(-1).contiguous()
        dtype = torch.uint8 if white == 255 else torch.float32
        image = torch.empty(len(flat), 3, *table.shape[2:], dtype=dtype)
        unit = np.float32(255 / white)
        blended(table.flatten(2).numpy(), flat.numpy(), colours.numpy(), unit, image.flatten(2).numpy())
        return image.view(*index.shape, *image.shape[1:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept: whole numbers have no gradient."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], index: Tensor, *shared: Any) -> tuple[Tensor, int]:
        """A stack of indices is one more axis of them; all else is the same for the whole stack."""
        place, *others = in_dims
        if place is None or any(other is not None for other in others):
            raise UserError("Only the index of blended images may be mapped.")
        return images(index.movedim(place, 0), *shared), 0


images: Callable[..., Tensor] = Blend.apply


@kernel()
def blended(table: Array, index: Array, colours: Array, unit: Any, image: Array) -> None:
    """Fill `image` (n, 3, pixels) with levels from 0 to 255, divided by `unit`."""
    views, hues = len(table), len(colours)
    for i in range(len(index)):
        layers, hue = table[index[i] % views], index[i] // views
        for c in range(3):
            solid, wall = colours[hue % hues, c], colours[hue // hues % hues, c]
            floor = colours[hue // hues**2 % hues, c]
            channel(layers, floor, wall, solid, layers[SKY_RED + c], unit, image[i, c])


@kernel()
def channel(layers: Array, floor: Any, wall: Any, solid: Any, sky: Array, unit: Any, image: Array) -> None:
    """One channel of one image; each step is cut to int16, or numba would compute in 64 bits, four times as wide."""
    for p in range(len(image)):
        total = min(np.int16(floor * layers[FLOOR, p]), layers[FLOOR_SHARE, p])
        total = np.int16(total + min(np.int16(wall * layers[WALL, p]), layers[WALL_SHARE, p]))
        glossy = np.int16(np.int16(solid * layers[SOLID, p]) + layers[GLOSS, p])
        total = np.int16(np.int16(total + min(glossy, layers[SOLID_SHARE, p])) + sky[p])
        odd = np.int16((total >> 5) & 1)
        level = np.int16(np.int16(np.int16(total + odd) + 15) >> 5)
        image[p] = np.float32(max(np.int16(0), min(np.int16(255), level))) / unit
