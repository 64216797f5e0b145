"""dSprites, regenerated from its geometry."""

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
SHA256 = "faaf9cf5fa6256819224cb831e7fe802f7e166a63fda58f12c5f1c6eec3f5ea0"  # of the bits of all images in order
FILE = f"dsprites-{SHA256[:16]}"


def scene() -> Scene:
    """The grid of the published set; orientations 0 and 39 are the same angle."""
    _, scales, angles, columns, rows = SIZES
    x, y = (16 + 32 * torch.linspace(0, 1, size, dtype=torch.float64) for size in (columns, rows))
    turn = torch.linspace(0, 2 * math.pi, angles, dtype=torch.float64)
    return Scene(64, torch.linspace(0.5, 1, scales, dtype=torch.float64), turn, x, y)


def dsprites(device: str | torch.device = "cpu", cache: bool = True, progress: Progress | None = None) -> BinaryImages:
    """Regenerated dSprites: 737,280 binary 64x64 images of a square, an ellipse or a heart.

    Only 715,706 images are distinct: orientations 0 and 39 coincide, and the symmetries of square and ellipse make more
    orientations equal after rasterising. Of 64,834 images of the original file 64,825 are identical to these and 9
    differ by one pixel. `cache` keeps the bits on disk; a CUDA device renders sooner than a disk reads.

    Reference: Matthey et al. (2017), github.com/deepmind/dsprites-dataset; its colour factor of one value is left out.
    """
    device = torch.device(device)
    if device.type == "cuda":
        table = render(scene(), device, progress)
    else:
        table = (_cached(progress) if cache else _rendered(progress)).to(device)
    images = BinaryImages("dsprites", NAMES, SIZES, (1, 64, 64), table)
    images.categorical = ("shape",)
    return images


def _rendered(progress: Progress | None) -> Tensor:
    return render(scene(), torch.device("cpu"), progress)


def _cached(progress: Progress | None) -> Tensor:
    table = disk.read(FILE, (ROWS, 64 * 64 // 8))
    if table is None:
        table = _rendered(progress)
        disk.write(FILE, table)
    elif progress:
        progress(1.0)
    return table
