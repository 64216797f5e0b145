"""Pictures made smaller, and decoded from files."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from unbraid.data.files.convert import Bytes
from unbraid.data.readers.verify import Stream, expect, reading


def resized(images: Bytes, pixels: int) -> Bytes:
    """Images (n, h, w) or (n, h, w, 3) at (n, pixels, pixels, ...) by Lanczos."""
    from PIL import Image

    out = np.empty((len(images), pixels, pixels, *images.shape[3:]), np.uint8)
    for row, image in zip(out, images, strict=True):
        row[:] = Image.fromarray(image).resize((pixels, pixels), Image.Resampling.LANCZOS)
    return out


def square(path: Path, file: Stream, size: tuple[int, int], pixels: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The middle square of a colour picture of that (width, height), as (3, pixels, pixels)."""
    from PIL import Image

    width, height = size
    side = min(size)
    left, top = (width - side) // 2, (height - side) // 2
    with reading(path, "picture"), Image.open(cast(IO[bytes], file)) as picture:
        expect(path, "width and height", size, picture.size)
        middle = picture.convert("RGB").resize(
            (pixels, pixels), Image.Resampling.LANCZOS, (left, top, left + side, top + side)
        )
    return np.asarray(middle).transpose(2, 0, 1)
