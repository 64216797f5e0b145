"""Functions that convert tensors to pictures, draw grids of labelled tiles, and write picture files."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw
from torch import Tensor

from unbraid.runtime.files import make_folder, write_atomic

MARGIN, LABEL = 2, 84  # pixels: space between tiles, smallest width of the row labels
TILE_SIDE = 64  # small tiles are enlarged by an integer factor, up to this side in pixels
SPACE = 6  # pixels between the labels of neighbouring rows
FRAME_MILLISECONDS = 80  # duration of one frame of an animation

Row = tuple[str, Sequence[Tensor]]
"""The label of a row and its tiles, each (c, h, w) with values in [0, 1]."""


def to_image(image: Float[Tensor, "c h w"]) -> Image.Image:
    """Return a tensor with 1 or 3 channels and values in [0, 1] as an RGB picture."""
    array = (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    return Image.fromarray(np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array)


def tile_scale(height: int, width: int) -> int:
    """Return the integer by which the sides of a tile are multiplied if the tile has this height and width in pixels.

    >>> tile_scale(32, 32), tile_scale(8, 32), tile_scale(256, 256)
    (2, 2, 1)
    """
    return max(1, TILE_SIDE // max(height, width))


def labelled_grid(rows: Sequence[Row], scale: int) -> Image.Image:
    """Draw rows of tiles on white, with the label of each row on the left. Each tile is enlarged by `scale`.

    The column of labels is `LABEL` pixels wide, or wider if a label is longer. Without labels there is no such column.
    Rows are at least as high as their label.
    """
    h, w = rows[0][1][0].shape[1] * scale, rows[0][1][0].shape[2] * scale
    columns = max(len(tiles) for _, tiles in rows)
    texts = [label_size(label) for label, _ in rows]
    left = max(LABEL, max(width for width, _ in texts) + 8) if any(label for label, _ in rows) else MARGIN
    heights = [max(h, height) for _, height in texts]
    canvas = Image.new(
        "RGB", (left + columns * (w + MARGIN) + MARGIN, sum(heights) + (len(rows) + 1) * MARGIN), "white"
    )
    draw = ImageDraw.Draw(canvas)
    top = MARGIN
    for (label, tiles), height in zip(rows, heights, strict=True):
        draw.multiline_text((4, top + height // 2), label, fill="black", anchor="lm")
        for j, tile in enumerate(tiles):
            picture = to_image(tile).resize((w, h), Image.Resampling.NEAREST)
            canvas.paste(picture, (left + j * (w + MARGIN), top + (height - h) // 2))
        top += height + MARGIN
    return canvas


def label_size(label: str) -> tuple[int, int]:
    """Return the width of a label and the height of a row that contains it, in pixels."""
    _, top, right, bottom = ImageDraw.Draw(Image.new("RGB", (1, 1))).multiline_textbbox((0, 0), label, anchor="lm")
    return math.ceil(right), 2 * math.ceil(max(-top, bottom)) + SPACE


def encode_picture(frames: Sequence[Image.Image]) -> bytes:
    """Return the bytes of a PNG file for one picture, or of a GIF that repeats forever for several pictures."""
    buffer = io.BytesIO()
    if len(frames) == 1:
        frames[0].save(buffer, "PNG")
    else:
        frames[0].save(
            buffer, "GIF", save_all=True, append_images=list(frames[1:]), duration=FRAME_MILLISECONDS, loop=0
        )
    return buffer.getvalue()


def write_picture(path: str | Path, *frames: Image.Image) -> Path:
    """Write one picture as PNG, or several as a GIF that repeats forever, and return the path.

    The folder is created if it does not exist.
    """
    path = Path(path)
    make_folder(path.parent)
    write_atomic(path, encode_picture(frames))
    return path
