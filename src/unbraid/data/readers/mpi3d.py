"""Read MPI3D from its published files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import torch

from unbraid.data.dataset import Progress
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.data.files.locate import locate_files
from unbraid.data.in_memory import ByteImages
from unbraid.data.readers import npz
from unbraid.data.readers.verify import REMEDY
from unbraid.errors import UserError, warn_user

NAMES = ("object_color", "object_shape", "object_size", "camera_height", "background_color", "horizontal", "vertical")
FULL_GRID = (6, 6, 2, 3, 3, 40, 40)
SMALL_GRID = (4, 4, 2, 3, 3, 40, 40)
PIXELS = 64
# The grids (numbers of values of the factors) that the file of each dataset may have. The first grid is that of the
# file that is distributed now. For mpi3d_toy and mpi3d_realistic, the second grid is that of the file of the NeurIPS
# 2019 Disentanglement Challenge.
GRIDS = {
    "mpi3d_toy": (FULL_GRID, SMALL_GRID),
    "mpi3d_realistic": (FULL_GRID, SMALL_GRID),
    "mpi3d_real": (FULL_GRID,),
    "mpi3d_complex": (SMALL_GRID,),
}


def mpi3d_toy(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """Load MPI3D, simple renderings of a robot arm: 1,036,800 images 64x64x3 (12.7 GB uncompressed).

    The file of the NeurIPS 2019 Disentanglement Challenge, with 460,800 images, is also accepted. Two factors then have
    fewer values, and a warning is issued.
    Reference: Gondal et al. (2019), arXiv:1906.03292; sizes from github.com/rr-learning/disentanglement_dataset.
    """
    return _load_mpi3d("mpi3d_toy", device, root, progress)


def mpi3d_realistic(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """Load MPI3D, realistic renderings of a robot arm: 1,036,800 images 64x64x3 (12.7 GB uncompressed).

    The file of the NeurIPS 2019 Disentanglement Challenge, with 460,800 images, is also accepted. Two factors then have
    fewer values, and a warning is issued.
    Reference: Gondal et al. (2019), arXiv:1906.03292; sizes from github.com/rr-learning/disentanglement_dataset.
    """
    return _load_mpi3d("mpi3d_realistic", device, root, progress)


def mpi3d_real(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """Load MPI3D, photographs of a robot arm: 1,036,800 images 64x64x3 (12.7 GB uncompressed).

    Reference: Gondal et al. (2019), arXiv:1906.03292.
    """
    return _load_mpi3d("mpi3d_real", device, root, progress)


def mpi3d_complex(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """Load MPI3D, photographs of a robot arm with everyday objects: 460,800 images 64x64x3 (5.7 GB uncompressed).

    Reference: Gondal et al. (2019), arXiv:1906.03292.
    """
    return _load_mpi3d("mpi3d_complex", device, root, progress)


def _load_mpi3d(
    name: str, device: str | torch.device, root: str | Path | None, progress: Progress | None
) -> ByteImages:
    (path,) = locate_files(name, root).values()
    return read_mpi3d(name, path, device=device, progress=progress)


def read_mpi3d(
    name: str,
    path: Path,
    grids: tuple[tuple[int, ...], ...] | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> ByteImages:
    """Read MPI3D from a .npz file with the array `images` of shape (n, 64, 64, 3).

    The number n of images determines which of the possible `grids` the file has.
    """
    grids = grids or GRIDS[name]
    found = npz.array_shape(path, "images")
    matching = [sizes for sizes in grids if found == (math.prod(sizes), PIXELS, PIXELS, 3)]
    if not matching:
        known = " or ".join(f"({math.prod(sizes):,}, {PIXELS}, {PIXELS}, 3)" for sizes in grids)
        raise UserError(f"The shape of 'images' of {path} must be {known}. Got {found} instead. {REMEDY}")
    if matching[0] != grids[0]:
        warn_user(
            f"{path} contains the {found[0]:,} images of the 2019 challenge, not the {math.prod(grids[0]):,} "
            f"images distributed now. The factors have {', '.join(map(str, matching[0]))} values."
        )
    shape = (3, PIXELS, PIXELS)
    table = cached_table(name, [path], (found[0], *shape), lambda: _blocks(path, found), progress)
    data = ByteImages(name, NAMES, matching[0], shape, table.to(device))
    data.categorical = ("object_color", "object_shape", "background_color")
    return data


def _blocks(path: Path, shape: tuple[int, ...]) -> Iterator[ByteArray]:
    for images in npz.read_blocks(path, "images", shape):
        yield images.transpose(0, 3, 1, 2)
