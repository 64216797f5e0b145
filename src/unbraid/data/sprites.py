"""A small cousin of dSprites for demonstrations and tests."""

from __future__ import annotations

import math

import torch

from unbraid.data.base import BinaryImages, Progress
from unbraid.data.raster import Scene, render

NAMES = ("shape", "scale", "orientation", "x", "y")
SIZES = (3, 3, 8, 16, 16)


def scene() -> Scene:
    """A quarter turn in steps of pi / 16, and centres from 7 to 25 px: as far as the largest square can go."""
    _, scales, angles, columns, rows = SIZES
    x, y = (torch.linspace(7, 25, size, dtype=torch.float64) for size in (columns, rows))
    turn = math.pi / 2 / angles * torch.arange(angles, dtype=torch.float64)
    return Scene(32, torch.linspace(0.35, 0.5, scales, dtype=torch.float64), turn, x, y)


def sprites(device: str | torch.device = "cpu", progress: Progress | None = None) -> BinaryImages:
    """Small sprites: 18,432 binary 32x32 images of a square, an ellipse or a heart, all distinct.

    The shapes are those of dSprites. Orientations stay within a quarter turn, so that no symmetry makes two of them
    equal, and x and y together explain more of the pixel variance than the other factors.
    """
    table = render(scene(), torch.device("cpu"), progress).to(device)
    return BinaryImages("sprites", NAMES, SIZES, (1, 32, 32), table)
