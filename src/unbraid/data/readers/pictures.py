"""Resize pictures, and decode them from files."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from unbraid.data.files.convert import ByteArray
from unbraid.data.readers.verify import Stream, expect, read_errors


def resize_images(images: ByteArray, pixels: int) -> ByteArray:
    """Resize images (n, h, w) or (n, h, w, 3) to (n, pixels, pixels, ...) by Lanczos."""
    from PIL import Image

    out = np.empty((len(images), pixels, pixels, *images.shape[3:]), np.uint8)
    for row, image in zip(out, images, strict=True):
        row[:] = Image.fromarray(image).resize((pixels, pixels), Image.Resampling.LANCZOS)
    return out


def read_square(path: Path, file: Stream, size: tuple[int, int], pixels: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Read a colour picture of `size` (width, height); return its central square as (3, pixels, pixels)."""
    from PIL import Image

    width, height = size
    side = min(size)
    left, top = (width - side) // 2, (height - side) // 2
    with read_errors(path, "picture"), Image.open(cast(IO[bytes], file)) as picture:
        expect(path, "width and height", size, picture.size)
        middle = picture.convert("RGB").resize(
            (pixels, pixels), Image.Resampling.LANCZOS, (left, top, left + side, top + side)
        )
    return np.asarray(middle).transpose(2, 0, 1)
