"""A picture of a dataset with one row per factor. In each row only that factor changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.pictures.examples import example_images
from unbraid.pictures.images import labelled_grid, tile_scale, write_picture

COLUMNS = 10  # maximum number of values that are shown for each factor
MAX_LABELS = 40  # maximum number of labels that are shown for data without a grid


def draw_dataset(data: FactorData, out: str | Path) -> Path:
    """Write a PNG file with one row per factor.

    Args:
        data: Data with images or meshes. If the data are a full grid of factors, each row changes one factor of the
            example in the middle of the grid. Otherwise the first row shows examples spread over the data, and each
            further row shows one example for each of the first 10 values, or bins, of one label.
        out: The path of the file.

    Returns:
        The path.

    Raises:
        UserError: If the data have neither images nor meshes.
    """
    rows = factor_rows(data) if data.gridded else label_rows(data)
    return write_picture(out, labelled_grid(rows, tile_scale(*rows[0][1][0].shape[1:])))


def factor_rows(data: FactorData) -> list[tuple[str, list[Tensor]]]:
    """Return one labelled row per factor. It shows the middle example of the grid with several values of the factor."""
    middle = torch.tensor([size // 2 for size in data.sizes])
    rows = []
    for j, (name, size) in enumerate(zip(data.names, data.sizes, strict=True)):
        values = np.unique(np.linspace(0, size - 1, min(size, COLUMNS)).round().astype(int))
        factors = middle.repeat(len(values), 1)
        factors[:, j] = torch.from_numpy(values)
        rows.append((f"{name}\n{size} values", example_images(data, data.index(factors))))
    return rows


def label_rows(data: FactorData) -> list[tuple[str, list[Tensor]]]:
    """Return a row of examples spread over the data, and one row per label with an example of each of its first values.

    At most `COLUMNS` examples are in a row.
    """
    spread = np.linspace(0, len(data) - 1, min(len(data), COLUMNS)).round().astype(int)
    rows = [("examples", example_images(data, torch.from_numpy(np.unique(spread))))]
    labels = data.factors(slice(None)).cpu()
    for name, column in list(zip(data.names, labels.unbind(1), strict=True))[:MAX_LABELS]:
        values = column[column >= 0].unique()
        first = [int((column == value).nonzero()[0]) for value in values[:COLUMNS]]
        kind = "bins" if name in data.continuous else "values"
        rows.append((f"{name}\n{len(values)} {kind}", example_images(data, torch.tensor(first))))
    return rows
