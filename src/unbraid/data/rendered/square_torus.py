"""A square that moves over an image whose opposite edges are connected."""

from __future__ import annotations

import torch

from unbraid.data.dataset import Progress
from unbraid.data.in_memory import ByteImages
from unbraid.errors import UserError

NAMES = ("x", "y")


def square_torus(device: str | torch.device = "cpu", progress: Progress | None = None, size: int = 64) -> ByteImages:
    """Render a white square at every position of an image whose opposite edges are connected: 4,096 images 64x64x1.

    The side of the square is a quarter of the width of the image. A square that leaves the image on one side comes back
    on the opposite side, so both factors are cyclic, and the images form a torus. This is the dataset that the
    reference calls Square.
    Reference: Tonnaer et al. (2022), arXiv:2011.06070, section 6.

    Args:
        device: Device on which to store the images.
        progress: Called with the finished fraction, from 0 to 1.
        size: Width and height of the images in pixels, and number of values of each factor. It must be at least 4.

    Returns:
        size * size images of shape (1, size, size), with the factors x and y.

    Raises:
        UserError: If the size is below 4.

    >>> square_torus(size=4)[5][0][0].int().tolist()  # the square is one pixel, at x = 1 and y = 1
    [[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    """
    if size < 4:
        raise UserError(f"The option 'size' of square_torus must be at least 4. Got {size} instead.")
    position = torch.arange(size)
    inside = (position - position[:, None]) % size < size // 4  # (value of the factor, pixel)
    images = (inside[None, :, :, None] & inside[:, None, None, :]).to(torch.uint8) * 255
    if progress:
        progress(1.0)
    data = ByteImages("square_torus", NAMES, (size, size), (1, size, size), images.view(-1, 1, size, size).to(device))
    data.cyclic = dict.fromkeys(NAMES, size)
    return data
