"""Crop images, and resize them with a Lanczos filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unbraid.data.files.convert import ByteArray

if TYPE_CHECKING:
    from PIL import Image


def resize_images(images: ByteArray, pixels: int) -> ByteArray:
    """Resize images of shape (n, h, w) or (n, h, w, 3) to `pixels` x `pixels`."""
    from PIL import Image

    out = np.empty((len(images), pixels, pixels, *images.shape[3:]), np.uint8)
    for row, image in zip(out, images, strict=True):
        row[:] = Image.fromarray(image).resize((pixels, pixels), Image.Resampling.LANCZOS)
    return out


def crop_and_resize(image: Image.Image, size: int) -> ByteArray:
    """Crop an image to its central square and resize it to (c, size, size), uint8.

    An image that already has this size does not change.
    """
    from PIL import Image

    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    pixels = np.asarray(image.resize((size, size), Image.Resampling.LANCZOS, box))
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
