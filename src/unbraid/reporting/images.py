"""Pictures for a page, as data URLs with alternative texts.

Pictures are encoded when the page is written, because the encoding depends on the space that the page has for them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from unbraid.pictures.images import to_image
from unbraid.runtime.embedding import data_url

GAP = 2  # number of transparent pixels between tiles


@dataclass(frozen=True)
class Picture:
    """A picture that is not encoded yet."""

    image: Image.Image

    @cached_property
    def png(self) -> bytes:
        """The picture as a PNG file."""
        return png_bytes(self.image)


@dataclass(frozen=True)
class Encoding:
    """How pictures are encoded: as PNG, or as WebP if the WebP file is smaller than the PNG file.

    Attributes:
        quality: The quality of WebP, from 0 to 100. None encodes pictures as PNG, without loss.
        scale: The number by which the width and the height of a WebP picture are multiplied.
    """

    quality: int | None = None
    scale: float = 1.0

    def url(self, picture: Picture) -> str:
        """Return a picture as a data URL."""
        if self.quality is None:
            return data_url(picture.png)
        size = [max(1, round(side * self.scale)) for side in picture.image.size]
        buffer = io.BytesIO()
        picture.image.convert("RGBA").resize((size[0], size[1])).save(buffer, "WEBP", quality=self.quality, method=2)
        small = buffer.getvalue()
        return data_url(picture.png) if len(picture.png) <= len(small) else data_url(small, "image/webp")


ENCODINGS = (Encoding(), Encoding(90), Encoding(75), Encoding(50), Encoding(50, 0.5), Encoding(40, 0.25))
"""Encodings, from the largest to the smallest files."""


def encode_pictures(facts: Any, max_bytes: int) -> Any:
    """Replace all pictures in `facts`, which may be nested lists and dictionaries, by data URLs.

    Returns:
        The facts with data URLs in the first of `ENCODINGS` in which all pictures together have at most `max_bytes`
        characters, or None if there is no such encoding.
    """
    best, low, high = None, 0, len(ENCODINGS)
    at = 0  # The bisection starts with PNG, because the PNG files of most pages are small enough.
    while low < high:
        encoded, size = _encoded(facts, ENCODINGS[at])
        if size <= max_bytes:
            best, high = encoded, at
        else:
            low = at + 1
        at = (low + high) // 2
    return best


def _encoded(facts: Any, encoding: Encoding) -> tuple[Any, int]:
    """Return the facts with pictures in one encoding, and the number of characters of all pictures."""
    urls: list[str] = []

    def url(picture: Picture) -> str:
        urls.append(encoding.url(picture))
        return urls[-1]

    return replace_pictures(facts, url), sum(map(len, urls))


def replace_pictures(facts: Any, url: Callable[[Picture], str]) -> Any:
    """Replace each picture in `facts`, which may be nested lists and dictionaries, by the result of `url` for it."""
    if isinstance(facts, Picture):
        return url(facts)
    if isinstance(facts, dict):
        return {key: replace_pictures(value, url) for key, value in facts.items()}
    return [replace_pictures(one, url) for one in facts] if isinstance(facts, list) else facts


def png_bytes(picture: Image.Image) -> bytes:
    """Encode a picture as a PNG file."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def picture_row(tiles: Sequence[Tensor], alt: str) -> dict[str, Any]:
    """Draw images (c, h, w) in [0, 1] side by side. Return the picture, its size and the alternative text."""
    h, w = tiles[0].shape[1:]
    canvas = Image.new("RGBA", (len(tiles) * (w + GAP) - GAP, h), (0, 0, 0, 0))
    for i, tile in enumerate(tiles):
        canvas.paste(to_image(tile), (i * (w + GAP), 0))
    return _picture_json(_drop_unused_colours(canvas), canvas.size, alt)


def figure_picture(figure: Any, alt: str) -> dict[str, Any]:
    """Draw a matplotlib figure. Return the picture, its size and the alternative text."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=96)
    picture = Image.open(buffer).convert("RGB")
    return _picture_json(picture.quantize(128), picture.size, alt)


def _picture_json(picture: Image.Image, size: tuple[int, int], alt: str) -> dict[str, Any]:
    return {"src": Picture(picture), "width": size[0], "height": size[1], "alt": alt}


def _drop_unused_colours(canvas: Image.Image) -> Image.Image:
    """Convert a grey picture to one grey channel and alpha, which takes half the bytes. Return others unchanged."""
    red, green, blue, _ = (np.asarray(band) for band in canvas.split())
    grey = bool((red == green).all() and (green == blue).all())
    return canvas.convert("LA") if grey else canvas
