"""Pictures for a page, as PNG files in data URLs with alternative texts."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from unbraid.pictures.images import to_image
from unbraid.runtime.embedding import data_url

GAP = 2  # number of transparent pixels between tiles


def png_bytes(picture: Image.Image) -> bytes:
    """Encode a picture as a PNG file."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def picture_row(tiles: Sequence[Tensor], alt: str) -> dict[str, Any]:
    """Draw images (c, h, w) in [0, 1] side by side. Return a data URL, the size and the alternative text."""
    h, w = tiles[0].shape[1:]
    canvas = Image.new("RGBA", (len(tiles) * (w + GAP) - GAP, h), (0, 0, 0, 0))
    for i, tile in enumerate(tiles):
        canvas.paste(to_image(tile), (i * (w + GAP), 0))
    return _picture_json(_drop_unused_colours(canvas), canvas.size, alt)


def figure_picture(figure: Any, alt: str) -> dict[str, Any]:
    """Draw a matplotlib figure. Return a data URL, the size and the alternative text."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=96)
    picture = Image.open(buffer).convert("RGB")
    return _picture_json(picture.quantize(128), picture.size, alt)


def _picture_json(picture: Image.Image, size: tuple[int, int], alt: str) -> dict[str, Any]:
    return {"src": data_url(png_bytes(picture)), "width": size[0], "height": size[1], "alt": alt}


def _drop_unused_colours(canvas: Image.Image) -> Image.Image:
    """Convert a grey picture to one grey channel and alpha, which takes half the bytes. Return others unchanged."""
    red, green, blue, _ = (np.asarray(band) for band in canvas.split())
    grey = bool((red == green).all() and (green == blue).all())
    return canvas.convert("LA") if grey else canvas
