"""A dataset of small sprites, which is like dSprites but smaller, for demonstrations and tests."""

from __future__ import annotations

import math

import torch

from unbraid.data.dataset import BinaryImages, Progress
from unbraid.data.rendered.raster import Scene, render

NAMES = ("shape", "scale", "orientation", "x", "y")
SIZES = (3, 3, 8, 16, 8)


def scene() -> Scene:
    """Return the scene, which contains the values of all factors except the shape.

    There are 3 scales from 0.46 to 0.64 and 8 orientations from 0 in steps of pi / 16, which cover a quarter turn.
    There are 16 values of x from 10 to 22 pixels, and 8 values of y from 12.5 to 19.5 pixels.
    """
    _, scales, angles, columns, rows = SIZES
    x = torch.linspace(10, 22, columns, dtype=torch.float64)
    y = torch.linspace(12.5, 19.5, rows, dtype=torch.float64)
    theta = math.pi / 2 / angles * torch.arange(angles, dtype=torch.float64)
    return Scene(32, torch.linspace(0.46, 0.64, scales, dtype=torch.float64), theta, x, y)


def sprites(device: str | torch.device = "cpu", progress: Progress | None = None) -> BinaryImages:
    """Render small sprites: 9,216 binary 32x32 images of a square, an ellipse or a heart, all distinct.

    The shapes are those of dSprites. On this dataset, a small model learns to disentangle the position within a minute
    on a CPU. Sprites at any two positions overlap, so the images of near positions are more similar than the images of
    distant positions. The range of x is larger than the range of y because, with equal ranges, any rotation of the
    (x, y) plane would be an equally good encoding. Orientations cover only a quarter turn, because rotating a square by
    a quarter turn does not change it.

    Args:
        device: Device on which to store the images.
        progress: Called with the finished fraction, from 0 to 1.

    Returns:
        9,216 images of shape (1, 32, 32), with the factors shape, scale, orientation, x and y.
    """
    table = render(scene(), torch.device("cpu"), progress).to(device)
    images = BinaryImages("sprites", NAMES, SIZES, (1, 32, 32), table)
    images.categorical = ("shape",)
    return images
