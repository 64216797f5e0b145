"""The dataset dSprites, which is rendered from a description of its shapes and not read from the published file."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unbraid.data import cache as disk
from unbraid.data.dataset import BinaryImages, Progress
from unbraid.data.rendered.raster import Scene, render

NAMES = ("shape", "scale", "orientation", "x", "y")
SIZES = (3, 6, 40, 32, 32)
ROWS = math.prod(SIZES)
PERIODS = {"orientation": SIZES[2] - 1}  # the first and the last orientation look the same
# Digest of the bits of all images, in order.
SHA256 = "faaf9cf5fa6256819224cb831e7fe802f7e166a63fda58f12c5f1c6eec3f5ea0"
FILE = f"dsprites-{SHA256[:16]}"


def scene() -> Scene:
    """Return the scene, which contains the values of all factors of the published dataset except the shape.

    Orientations 0 and 39 are the angles 0 and 2 pi, which look the same.
    """
    _, scales, angles, columns, rows = SIZES
    x, y = (16 + 32 * torch.linspace(0, 1, size, dtype=torch.float64) for size in (columns, rows))
    theta = torch.linspace(0, 2 * math.pi, angles, dtype=torch.float64)
    return Scene(64, torch.linspace(0.5, 1, scales, dtype=torch.float64), theta, x, y)


def dsprites(device: str | torch.device = "cpu", cache: bool = True, progress: Progress | None = None) -> BinaryImages:
    """Render dSprites: 737,280 binary 64x64 images of a square, an ellipse or a heart.

    Only 715,706 images are distinct. Orientations 0 and 39 look the same, and because squares and ellipses are
    symmetric, some of their other orientations look the same as well. We compared 64,834 images of the published file
    with the rendered ones: 64,825 are identical, and 9 differ in one pixel. The factor colour of the published file,
    which has a single value, is omitted.
    Reference: Matthey et al. (2017), github.com/deepmind/dsprites-dataset.

    Args:
        device: Device on which to store the images.
        cache: Whether to cache the images on disk. The cache is not used for a CUDA device, because rendering is faster
            than reading the cache.
        progress: Called with the finished fraction, from 0 to 1.

    Returns:
        737,280 images of shape (1, 64, 64), with the factors shape, scale, orientation, x and y.
    """
    device = torch.device(device)
    if device.type == "cuda":
        table = render(scene(), device, progress)
    else:
        table = (_read_or_render(progress) if cache else _render(progress)).to(device)
    images = BinaryImages("dsprites", NAMES, SIZES, (1, 64, 64), table)
    images.categorical, images.cyclic = ("shape",), PERIODS
    return images


def _render(progress: Progress | None) -> Tensor:
    return render(scene(), torch.device("cpu"), progress)


def _read_or_render(progress: Progress | None) -> Tensor:
    table = disk.read(FILE, (ROWS, 64 * 64 // 8))
    if table is None:
        table = _render(progress)
        disk.write(FILE, table)
    elif progress:
        progress(1.0)
    return table
