"""Small sprites: a dataset like dSprites, but smaller, for demonstrations and tests."""

from __future__ import annotations

import math

import torch

from unbraid.data.dataset import BinaryImages, Progress
from unbraid.data.rendered.raster import Scene, render

NAMES = ("shape", "scale", "orientation", "x", "y")
SIZES = (3, 3, 8, 16, 8)


def scene() -> Scene:
    """Return the grid: a quarter turn in steps of pi / 16, x from 10 to 22 px and y from 12.5 to 19.5 px."""
    _, scales, angles, columns, rows = SIZES
    x = torch.linspace(10, 22, columns, dtype=torch.float64)
    y = torch.linspace(12.5, 19.5, rows, dtype=torch.float64)
    theta = math.pi / 2 / angles * torch.arange(angles, dtype=torch.float64)
    return Scene(32, torch.linspace(0.46, 0.64, scales, dtype=torch.float64), theta, x, y)


def sprites(device: str | torch.device = "cpu", progress: Progress | None = None) -> BinaryImages:
    """Small sprites: 9,216 binary 32x32 images of a square, an ellipse or a heart, all distinct.

    The shapes are those of dSprites. The dataset is designed so that a small model disentangles position within a
    minute on a CPU. A sprite at one position overlaps the same sprite at any other, so that similar codes have similar
    images. The range of x is larger than that of y, so that no rotation of the two gives an equally good code.
    Orientations stay within a quarter turn, so that no symmetry makes two of them equal.

    Args:
        device: Device of the data.
        progress: Called with the completed share, from 0 to 1.

    Returns:
        9,216 images of shape (1, 32, 32), with the factors shape, scale, orientation, x and y.
    """
    table = render(scene(), torch.device("cpu"), progress).to(device)
    images = BinaryImages("sprites", NAMES, SIZES, (1, 32, 32), table)
    images.categorical = ("shape",)
    return images
