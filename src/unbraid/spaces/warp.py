"""Images resampled at points of the unit square: x to the right, y down, both in [0, 1] from edge to edge."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError

PADDINGS = ("zeros", "border")


@functools.cache
def _grid(h: int, w: int, half: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Made once for each device, also where gradients and captures are under way."""
    if min(h, w) < 1:
        raise UserError(f"A grid needs at least one row and one column. Got {h} x {w} instead.")
    with torch.inference_mode(False), torch.no_grad():
        across, down = ((torch.arange(n, dtype=torch.float64) + half) / (n if half else max(n - 1, 1)) for n in (w, h))
        y, x = torch.meshgrid(down, across, indexing="ij")
        return torch.stack([x, y], -1).flatten(0, 1).to(device, dtype)


def pixel_centres(
    h: int, w: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Float[Tensor, "n 2"]:
    """The (x, y) of the centre of every pixel, row by row: the i-th of n lies at (i + 1/2) / n.

    >>> pixel_centres(1, 2)
    tensor([[0.2500, 0.5000],
            [0.7500, 0.5000]])
    """
    return _grid(h, w, 0.5, torch.device(device), dtype)


def nodes(
    h: int, w: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Float[Tensor, "n 2"]:
    """The (x, y) of a regular grid that reaches to the edges: the i-th of n lies at i / (n - 1)."""
    return _grid(h, w, 0.0, torch.device(device), dtype)


def sample(
    image: Float[Tensor, "b c h w"], points: Float[Tensor, "b n 2"], padding: str = "zeros", corners: bool = False
) -> Float[Tensor, "b c n"]:
    r"""Values between the pixels of an image, linear in each direction, with gradients for the image and the points.

    .. math:: f(p) = \sum_{ij} f_{ij} \max(0, 1 - |w p_x - \tfrac12 - j|) \max(0, 1 - |h p_y - \tfrac12 - i|)

    Beyond the outermost values lie zeros or, with `padding` "border", the nearest value. With `corners` the outermost
    values lie on the edges of the square (`nodes`) instead of half a pixel inside (`pixel_centres`).
    """
    if padding not in PADDINGS:
        raise UserError(f"The padding must be one of {', '.join(PADDINGS)}. Got {padding!r} instead.")
    if image.dtype != points.dtype:
        raise UserError(f"Image and points must have one dtype. Got {image.dtype} and {points.dtype}. Convert one.")
    grid = (2 * points - 1)[:, None]
    return F.grid_sample(image, grid, mode="bilinear", padding_mode=padding, align_corners=corners)[:, :, 0]


def warp(
    image: Float[Tensor, "b c h w"], points: Float[Tensor, "b rows cols 2"], padding: str = "zeros"
) -> Float[Tensor, "b c rows cols"]:
    """The image whose pixels are the given one's values at `points`; at its own pixel centres that is itself."""
    warped: Tensor = sample(image, points.flatten(1, 2), padding).unflatten(-1, points.shape[1:3])
    return warped
