"""Datasets that read their images from a file of modified images.

Such a file has the layout of the original file of the dataset. Zietlow, Rolinek and Martius (2021) publish their
modified dSprites and Shapes3D (doi:10.17617/3.6i) in this form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.data.manipulated import ChangedImages, add_option
from unbraid.data.manipulation_files import find_file, plain_name
from unbraid.data.readers import hdf5, npz
from unbraid.data.readers.dsprites_file import factor_values as dsprites_values
from unbraid.data.readers.shapes3d import factor_values as shapes3d_values
from unbraid.data.readers.verify import Array, check_grid
from unbraid.errors import UserError
from unbraid.noise import Noise

SUFFIXES = (".npz", ".h5", ".hdf5")
DSPRITES, SHAPES3D = ("dsprites", "dsprites_file"), ("shapes3d", "shapes3d_rendered")
PART_BYTES, PARTS = 1 << 16, 64  # size and number of the parts of a file from which its digest is computed


class ModifiedImages(ChangedImages):
    """A dataset with the factors of a base dataset and the images of a file.

    Attributes:
        images_table: Images, uint8 of shape (n, c, h, w), possibly in a memory-mapped file.
        digest: A digest of the size and of parts of the file.
    """

    def __init__(self, base: FactorData, name: str, images: UInt8[Tensor, "n c h w"], digest: str) -> None:
        super().__init__(base, name)
        self.images_table, self.digest = images.to(base.device), digest

    @property
    def fingerprint(self) -> str | None:
        """The digest of the file."""
        return self.digest

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b c h w"]:
        """Return the images of the file at `index`, with pixels in [0, 1]."""
        return self.images_table[index] / 255

    def to(self, device: str | torch.device) -> FactorData:
        """Return the same data on a different device."""
        moved = super().to(device)
        assert isinstance(moved, ModifiedImages)
        moved.images_table = self.images_table.to(device)
        return moved


def read_modified_images(data: FactorData, file: str | Path, root: str | Path | None = None) -> ModifiedImages:
    """Replace the images of dSprites or Shapes3D by those of a file in the layout of the original file.

    The file has the arrays of the published file of the dataset: imgs, latents_classes and latents_values for dSprites,
    or images and labels for Shapes3D. Images are uint8 with pixels from 0 to 255. The labels must be those
    of the grid of factor values.

    Args:
        data: dSprites or Shapes3D.
        file: The path of a .npz or HDF5 file, or its name in the folder ``modified`` of the data folder.
        root: Data folder. The default is the environment variable UNBRAID_DATA. If it is not set, the default is
            $XDG_DATA_HOME/unbraid, or else ~/.local/share/unbraid.

    Returns:
        The changed dataset, with the option ``modified=`` in its name.

    Raises:
        UserError: If the data are not dSprites or Shapes3D, or if the file does not exist or does not have this layout.
    """
    name = plain_name(data)
    if name not in DSPRITES + SHAPES3D:
        raise UserError(
            f"Files of modified images exist for {', '.join(DSPRITES + SHAPES3D)}. Got {data.name} instead. For other "
            "data, learn a manipulation with: unbraid data modify"
        )
    path = find_file(str(file), data, root)
    blocks = _dsprites_blocks if name in DSPRITES else _shapes3d_blocks
    table = cached_table(f"modified-{name}", [path], (len(data), *data.shape), lambda: blocks(path, data))
    return ModifiedImages(data, add_option(data.name, f"modified={file}"), table, file_digest(path))


def file_digest(path: Path) -> str:
    """Return a digest of the size of a file and of 64 parts of it.

    Not all bytes are read, because a file can have several gigabytes.
    """
    size, digest = path.stat().st_size, hashlib.sha256()
    digest.update(str(size).encode())
    with path.open("rb") as file:
        for i in range(PARTS):
            file.seek(max(0, size - PART_BYTES) * i // (PARTS - 1))
            digest.update(file.read(PART_BYTES))
    return digest.hexdigest()[:16]


def _dsprites_blocks(path: Path, data: FactorData) -> Iterator[ByteArray]:
    """Yield images (b, 1, h, w) from a file in the layout of dSprites."""
    n, sizes, side = len(data), data.sizes, data.shape[1]
    form, inner = (npz, "latents_") if path.suffix == ".npz" else (hdf5, "latents/")
    classes: Array = form.read_array(path, f"{inner}classes", (n, 1 + len(sizes)), "iu")
    check_grid(path, "latents_classes", classes, [np.arange(size) for size in (1, *sizes)])
    values: Array = form.read_array(path, f"{inner}values", (n, 1 + len(sizes)), "f")
    check_grid(path, "latents_values", values, dsprites_values(sizes))
    for images in form.read_blocks(path, "imgs", (n, side, side)):
        yield images[:, None]


def _shapes3d_blocks(path: Path, data: FactorData) -> Iterator[ByteArray]:
    """Yield images (b, 3, h, w) from a file in the layout of Shapes3D."""
    n, sizes, side = len(data), data.sizes, data.shape[1]
    form = npz if path.suffix == ".npz" else hdf5
    labels: Array = form.read_array(path, "labels", (n, len(sizes)), "f")
    check_grid(path, "labels", labels, shapes3d_values(sizes))
    for images in form.read_blocks(path, "images", (n, side, side, 3)):
        yield images.transpose(0, 3, 1, 2)
