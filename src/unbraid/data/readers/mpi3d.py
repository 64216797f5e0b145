"""MPI3D from its published files."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import Bytes, converted
from unbraid.data.files.locate import locate
from unbraid.data.in_memory import ByteImages
from unbraid.data.readers import npz
from unbraid.data.readers.verify import REMEDY
from unbraid.errors import UserError

NAMES = ("object_color", "object_shape", "object_size", "camera_height", "background_color", "horizontal", "vertical")
WHOLE = (6, 6, 2, 3, 3, 40, 40)
SUBSET = (4, 4, 2, 3, 3, 40, 40)
PIXELS = 64
# The grids that a file may hold, the present one first. The challenge of 2019 gave smaller toy and realistic files.
GRIDS = {
    "mpi3d_toy": (WHOLE, SUBSET),
    "mpi3d_realistic": (WHOLE, SUBSET),
    "mpi3d_real": (WHOLE,),
    "mpi3d_complex": (SUBSET,),
}


def mpi3d_toy(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """MPI3D, simple renderings of a robot arm: 1,036,800 images 64x64x3 (12.7 GB when converted).

    The challenge's file of 460,800 images is read with its own grid, and a warning says so.
    Reference: Gondal et al. (2019), arXiv:1906.03292; sizes of github.com/rr-learning/disentanglement_dataset.
    """
    return _located("mpi3d_toy", device, root, progress)


def mpi3d_realistic(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """MPI3D, realistic renderings of a robot arm: 1,036,800 images 64x64x3 (12.7 GB when converted).

    The challenge's file of 460,800 images is read with its own grid, and a warning says so.
    Reference: Gondal et al. (2019), arXiv:1906.03292; sizes of github.com/rr-learning/disentanglement_dataset.
    """
    return _located("mpi3d_realistic", device, root, progress)


def mpi3d_real(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """MPI3D, photographs of a robot arm: 1,036,800 images 64x64x3 (12.7 GB when converted).

    Reference: Gondal et al. (2019), arXiv:1906.03292.
    """
    return _located("mpi3d_real", device, root, progress)


def mpi3d_complex(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """MPI3D, photographs of a robot arm with everyday objects: 460,800 images 64x64x3 (5.7 GB when converted).

    Reference: Gondal et al. (2019), arXiv:1906.03292.
    """
    return _located("mpi3d_complex", device, root, progress)


def _located(name: str, device: str | torch.device, root: str | Path | None, progress: Progress | None) -> ByteImages:
    (path,) = locate(name, root).values()
    return read_mpi3d(name, path, device=device, progress=progress)


def read_mpi3d(
    name: str,
    path: Path,
    grids: tuple[tuple[int, ...], ...] | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> ByteImages:
    """The npz with the array images (n, 64, 64, 3), whose n tells which of `grids` it is."""
    grids = grids or GRIDS[name]
    found = npz.shape_of(path, "images")
    matching = [sizes for sizes in grids if found == (math.prod(sizes), PIXELS, PIXELS, 3)]
    if not matching:
        known = " or ".join(f"({math.prod(sizes):,}, {PIXELS}, {PIXELS}, 3)" for sizes in grids)
        raise UserError(f"The shape of 'images' of {path} must be {known}. Got {found} instead. {REMEDY}")
    if matching[0] != grids[0]:
        warnings.warn(
            f"{path} holds the {found[0]:,} images of the challenge's subset, not the {math.prod(grids[0]):,} "
            f"distributed now: the factors have {', '.join(map(str, matching[0]))} values.",
            RuntimeWarning,
            stacklevel=4,
        )
    shape = (3, PIXELS, PIXELS)
    table = converted(name, [path], (found[0], *shape), lambda: _blocks(path, found), progress)
    return ByteImages(name, NAMES, matching[0], shape, table.to(device))


def _blocks(path: Path, shape: tuple[int, ...]) -> Iterator[Bytes]:
    for images in npz.blocks(path, "images", shape):
        yield images.transpose(0, 3, 1, 2)
