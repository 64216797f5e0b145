"""A small cousin of dSprites for demonstrations and tests."""

from __future__ import annotations

import math

import torch

from unbraid.data.dataset import BinaryImages, Progress
from unbraid.data.rendered.raster import Scene, render

NAMES = ("shape", "scale", "orientation", "x", "y")
SIZES = (3, 3, 8, 16, 8)


def scene() -> Scene:
    """A quarter turn in steps of pi / 16, centres from 10 to 22 px across and from 12.5 to 19.5 px down."""
    _, scales, angles, columns, rows = SIZES
    x = torch.linspace(10, 22, columns, dtype=torch.float64)
    y = torch.linspace(12.5, 19.5, rows, dtype=torch.float64)
    turn = math.pi / 2 / angles * torch.arange(angles, dtype=torch.float64)
    return Scene(32, torch.linspace(0.46, 0.64, scales, dtype=torch.float64), turn, x, y)


def sprites(device: str | torch.device = "cpu", progress: Progress | None = None) -> BinaryImages:
    """Small sprites: 9,216 binary 32x32 images of a square, an ellipse or a heart, all distinct.

    The shapes are those of dSprites. Made so that a small model untangles position within a minute on a CPU: a sprite
    overlaps itself wherever it moves, so neighbouring codes have neighbouring images, and x spans more than y, so
    that no rotation of the two codes it as well. Orientations stay within a quarter turn, so that no symmetry makes
    two of them equal.
    """
    table = render(scene(), torch.device("cpu"), progress).to(device)
    images = BinaryImages("sprites", NAMES, SIZES, (1, 32, 32), table)
    images.categorical = ("shape",)
    return images
