"""A picture of changed data: original images, changed images, and their differences, magnified."""

from __future__ import annotations

from pathlib import Path

import torch

from unbraid.data.manipulated import ChangedImages
from unbraid.pictures.images import labelled_grid, tile_scale, write_picture

EXAMPLES = 8
MAGNIFICATION = 10


def draw_comparison(data: ChangedImages, out: str | Path, examples: int = EXAMPLES) -> Path:
    """Draw examples as a PNG with three rows: original, changed, and 10 times the absolute difference.

    The examples are spread evenly over the data.

    Args:
        data: Changed images, for example from `unbraid.data.manipulated.apply_manipulation`.
        out: The file to write.
        examples: Number of examples.

    Returns:
        The path of the file.
    """
    places = torch.linspace(0, 1, examples + 2, dtype=torch.float64)[1:-1]
    index = (places * (len(data) - 1)).round().long().to(data.device)
    before, after = data.base.batch(index).cpu(), data.batch(index).cpu()
    visible = (MAGNIFICATION * (after - before).abs()).clamp(max=1)
    rows = [("original", list(before)), (f"changed\neps {getattr(data, 'eps', 0):g}", list(after))]
    rows.append((f"difference\nx {MAGNIFICATION}", list(visible)))
    return write_picture(out, labelled_grid(rows, tile_scale(data.shape[1])))
