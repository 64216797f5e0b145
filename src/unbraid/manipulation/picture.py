"""A picture that compares original images with changed images."""

from __future__ import annotations

from pathlib import Path

import torch

from unbraid.data.manipulated import ChangedImages
from unbraid.pictures.images import labelled_grid, tile_scale, write_picture

N_EXAMPLES = 8
MAGNIFICATION = 10  # number by which differences are multiplied


def draw_comparison(data: ChangedImages, out: str | Path, examples: int = N_EXAMPLES) -> Path:
    """Draw examples as a PNG file with three rows: original images, changed images, and magnified differences.

    The differences are absolute values multiplied by 10. The examples are evenly spaced in the data.

    Args:
        data: Changed images, for example from `unbraid.data.manipulated.apply_manipulation`.
        out: The path of the file to write.
        examples: Number of examples.

    Returns:
        The path of the file.
    """
    fractions = torch.linspace(0, 1, examples + 2, dtype=torch.float64)[1:-1]
    index = (fractions * (len(data) - 1)).round().long().to(data.device)
    before, after = data.base.batch(index).cpu(), data.batch(index).cpu()
    difference = (MAGNIFICATION * (after - before).abs()).clamp(max=1)
    rows = [("original", list(before)), (f"changed\neps {getattr(data, 'eps', 0):g}", list(after))]
    rows.append((f"difference\nx {MAGNIFICATION}", list(difference)))
    return write_picture(out, labelled_grid(rows, tile_scale(*data.shape[-2:])))
