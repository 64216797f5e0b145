"""Functions that convert tensors to pictures, draw grids of labelled tiles, and write picture files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw
from torch import Tensor

from unbraid.runtime.files import make_folder, write_atomic

MARGIN, LABEL = 2, 84  # pixels: space between tiles, width of the row labels
TILE_WIDTH = 64  # small tiles are enlarged by an integer factor, up to this width in pixels
FRAME_MILLISECONDS = 80  # duration of one frame of an animation

Row = tuple[str, Sequence[Tensor]]
"""The label of a row and its tiles, each (c, h, w) with values in [0, 1]."""


def to_image(image: Float[Tensor, "c h w"]) -> Image.Image:
    """Return a tensor with 1 or 3 channels and values in [0, 1] as an RGB picture."""
    array = (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    return Image.fromarray(np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array)


def tile_scale(pixels: int) -> int:
    """Return the integer by which the side of a tile is multiplied if the side has `pixels` pixels."""
    return max(1, TILE_WIDTH // pixels)


def labelled_grid(rows: Sequence[Row], scale: int) -> Image.Image:
    """Draw rows of tiles on white, with the label of each row on the left. Each tile is enlarged by `scale`."""
    h, w = rows[0][1][0].shape[1] * scale, rows[0][1][0].shape[2] * scale
    columns = max(len(tiles) for _, tiles in rows)
    canvas = Image.new("RGB", (LABEL + columns * (w + MARGIN) + MARGIN, len(rows) * (h + MARGIN) + MARGIN), "white")
    draw = ImageDraw.Draw(canvas)
    for i, (label, tiles) in enumerate(rows):
        top = MARGIN + i * (h + MARGIN)
        draw.multiline_text((4, top + h // 2), label, fill="black", anchor="lm")
        for j, tile in enumerate(tiles):
            picture = to_image(tile).resize((w, h), Image.Resampling.NEAREST)
            canvas.paste(picture, (LABEL + j * (w + MARGIN), top))
    return canvas


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
