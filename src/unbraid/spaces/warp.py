"""Resampling of images at points of the unit square.

The coordinate x runs from 0 at the left edge of the image to 1 at the right edge, and y from 0 at the top to 1 at the
bottom.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError

PADDINGS = ("zeros", "border")


@functools.cache
def _grid(h: int, w: int, offset: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a grid (h * w, 2), cached per device. The offset is 0.5 for pixel centres and 0 for nodes.

    The function may be called in inference mode, and while gradients or CUDA graphs are recorded. The result is always
    an ordinary tensor.
    """
    if min(h, w) < 1:
        raise UserError(f"A grid must have at least one row and one column. Got {h} x {w} instead.")
    with torch.inference_mode(False), torch.no_grad():
        columns, rows = (
            (torch.arange(n, dtype=torch.float64) + offset) / (n if offset else max(n - 1, 1)) for n in (w, h)
        )
        y, x = torch.meshgrid(rows, columns, indexing="ij")
        return torch.stack([x, y], -1).flatten(0, 1).to(device, dtype)


def pixel_centres(
    h: int, w: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Float[Tensor, "n 2"]:
    """Return the coordinates (x, y) of the centres of all pixels, row by row. Pixel i of n lies at (i + 1/2) / n.

    Args:
        h: Height of the image in pixels.
        w: Width of the image in pixels.
        device: Device on which the result is stored.
        dtype: Data type of the result.

    Returns:
        Coordinates (h * w, 2). The tensor is cached and must not be modified.

    >>> pixel_centres(1, 2)
    tensor([[0.2500, 0.5000],
            [0.7500, 0.5000]])
    """
    return _grid(h, w, 0.5, torch.device(device), dtype)


def grid_nodes(
    h: int, w: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Float[Tensor, "n 2"]:
    """Return the coordinates (h * w, 2) of a grid that reaches the edges, row by row. Node i of n lies at i / (n - 1).

    The tensor is cached and must not be modified.
    """
    return _grid(h, w, 0.0, torch.device(device), dtype)


def sample_image(
    image: Float[Tensor, "b c h w"], points: Float[Tensor, "b n 2"], padding: str = "zeros", corners: bool = False
) -> Float[Tensor, "b c n"]:
    r"""Interpolate images bilinearly at points, with gradients for the images and the points.

    .. math:: f(p) = \sum_{ij} f_{ij} \max(0, 1 - |w p_x - \tfrac12 - j|) \max(0, 1 - |h p_y - \tfrac12 - i|)

    where :math:`f_{ij}` is the pixel in row i and column j.

    Args:
        image: Images (b, c, h, w).
        points: Points (b, n, 2) as (x, y).
        padding: The values outside the image: "zeros", or "border" for the nearest value.
        corners: Whether the outermost values lie on the edges of the square, as in `grid_nodes`. Otherwise they lie
            half a pixel inside, as in `pixel_centres`, and as in the equation above.

    Returns:
        Values (b, c, n).

    Raises:
        UserError: If the padding is unknown, or if images and points have different dtypes.
    """
    if padding not in PADDINGS:
        raise UserError(f"The padding must be one of {', '.join(PADDINGS)}. Got {padding!r} instead.")
    if image.dtype != points.dtype:
        raise UserError(
            f"Images and points must have the same dtype. Got {image.dtype} and {points.dtype} instead. "
            "Convert one of them."
        )
    grid = (2 * points - 1)[:, None]
    return F.grid_sample(image, grid, mode="bilinear", padding_mode=padding, align_corners=corners)[:, :, 0]


def warp_image(
    image: Float[Tensor, "b c h w"], points: Float[Tensor, "b rows cols 2"], padding: str = "zeros"
) -> Float[Tensor, "b c rows cols"]:
    """Return images whose pixels are the values of the given images at `points`.

    If the points are the pixel centres of the given images, the result equals the given images.

    Args:
        image: Images (b, c, h, w).
        points: Points (b, rows, cols, 2) as (x, y).
        padding: The values outside the image: "zeros", or "border" for the nearest value.

    Returns:
        Images (b, c, rows, cols).

    Raises:
        UserError: If the padding is unknown, or if images and points have different dtypes.
    """
    warped: Tensor = sample_image(image, points.flatten(1, 2), padding).unflatten(-1, points.shape[1:3])
    return warped
