"""Draw reasoning puzzles: the matrix on the left, and the answers on the right, with a frame around the correct one."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from unbraid.data.loading import DataLike, load_data
from unbraid.pictures.examples import example_images
from unbraid.pictures.images import MARGIN, tile_scale, to_image, write_picture
from unbraid.reasoning.learning import ReasoningSettings, evaluation_puzzles
from unbraid.reasoning.panels import choose_panels
from unbraid.reasoning.puzzles import ANSWERS, CONTEXT, WIDTH

SPACE = 24  # pixels around a puzzle, and between the matrix and the answers
FRAME, MISSING = "#009E73", "#D0D0D0"


def draw_example_puzzles(
    data: DataLike, out: str | Path, settings: ReasoningSettings | None = None, count: int = 3
) -> Path:
    """Write a PNG file with some of the test puzzles, on which the accuracy is measured.

    Args:
        data: A dataset of images whose factors form a full grid, in one of the forms that `train` accepts.
        out: The path of the file.
        settings: The settings of the puzzles. By default `ReasoningSettings()`.
        count: Number of puzzles.

    Returns:
        The path.

    Raises:
        UserError: If the data are not images, or their factors are not suitable for puzzles.
    """
    settings = settings or ReasoningSettings()
    loaded = load_data(data, quiet=True)
    panels = choose_panels(loaded, settings.values)
    puzzles = evaluation_puzzles(panels, settings, count)
    drawn = []
    for context, answers, position in zip(puzzles.context, puzzles.answers, puzzles.position.tolist(), strict=True):
        index = panels.index[panels.at(torch.cat([context, answers]))]
        drawn.append(_draw_puzzle(example_images(loaded, index), position))
    width, height = drawn[0].size
    canvas = Image.new("RGB", (width, height * count), "white")
    for i, picture in enumerate(drawn):
        canvas.paste(picture, (0, i * height))
    return write_picture(out, canvas)


def _draw_puzzle(tiles: list[Tensor], position: int) -> Image.Image:
    """Draw eight panels, a grey square for the missing one, and six answers. The answer at `position` has a frame."""
    scale = tile_scale(*tiles[0].shape[-2:])
    side = tiles[0].shape[1] * scale
    pitch = side + 2 * MARGIN
    canvas = Image.new("RGB", (2 * WIDTH * pitch + 3 * SPACE, WIDTH * pitch + SPACE), "white")
    draw = ImageDraw.Draw(canvas)
    places = [
        (start + column * pitch, SPACE // 2 + row * pitch)
        for start, rows in ((SPACE, WIDTH), (2 * SPACE + WIDTH * pitch, ANSWERS // WIDTH))
        for row in range(rows)
        for column in range(WIDTH)
    ]
    left, top = places.pop(CONTEXT)
    draw.rectangle((left, top, left + side - 1, top + side - 1), fill=MISSING)
    left, top = places[CONTEXT + position]
    draw.rectangle((left - 4, top - 4, left + side + 3, top + side + 3), fill=FRAME)
    for tile, place in zip(tiles, places, strict=True):
        canvas.paste(to_image(tile).resize((side, side), Image.Resampling.NEAREST), place)
    return canvas
