"""Read the renderings of 3D chairs from the authors' archive or from the unpacked folder."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import torch

from unbraid.data.dataset import Progress
from unbraid.data.files.archives import read_tar_files
from unbraid.data.files.convert import ByteArray, cached_table
from unbraid.data.files.locate import locate_files
from unbraid.data.in_memory import ByteImages
from unbraid.data.readers.pictures import read_picture
from unbraid.data.readers.verify import Stream, expect

NAMES = ("chair", "elevation", "azimuth")
CHAIRS, ELEVATIONS, AZIMUTHS = 1393, 2, 31
SOURCE_PIXELS, CROP, PIXELS = 600, 400, 64
VIEW = re.compile(r"image_\d+_p(\d+)_t(\d+)_r\d+\.png")


class View(NamedTuple):
    """A rendering: the name of its chair, and its elevation and azimuth in degrees."""

    chair: str
    elevation: int
    azimuth: int


def chairs3d(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> ByteImages:
    """Load 3D chairs: 86,366 images 64x64x3 of 1,393 chairs, seen from 31 azimuths and 2 elevations.

    The central 400x400 square of each 600x600 rendering is resized with a Lanczos filter. Chairs are numbered in the
    order of the names of their folders. Reading the archive needs 1.1 GB of memory.
    Reference: Aubry et al. (2014), Seeing 3D chairs, CVPR, doi:10.1109/CVPR.2014.487.
    """
    (path,) = locate_files("chairs3d", root).values()
    return read_chairs3d(path.parent if path.suffix == ".mat" else path, device=device, progress=progress)


def read_chairs3d(
    path: Path, chairs: int = CHAIRS, device: str | torch.device = "cpu", progress: Progress | None = None
) -> ByteImages:
    """Read the files CHAIR/renders/image_*_p*_t*_r*.png of a folder or of a tar archive.

    In the name of a file, p is the elevation and t is the azimuth, both in degrees.
    """
    sizes, shape = (chairs, ELEVATIONS, AZIMUTHS), (3, PIXELS, PIXELS)
    table = cached_table("chairs3d", [path], (math.prod(sizes), *shape), lambda: _blocks(path, chairs, progress))
    if progress:
        progress(1.0)
    data = ByteImages("chairs3d", NAMES, sizes, shape, table.to(device))
    data.categorical, data.cyclic = ("chair",), {"azimuth": AZIMUTHS}
    return data


def parse_view(name: str) -> View | None:
    """Return the view that the path of a file describes, or None if the file is not a rendering.

    >>> parse_view("rendered_chairs/1a2b/renders/image_003_p020_t046_r096.png")
    View(chair='1a2b', elevation=20, azimuth=46)
    """
    parts = PurePosixPath(name).parts
    match = VIEW.fullmatch(parts[-1]) if len(parts) >= 3 and parts[-2] == "renders" else None
    return None if match is None else View(parts[-3], int(match[1]), int(match[2]))


def _blocks(path: Path, chairs: int, progress: Progress | None) -> Iterator[ByteArray]:
    """Yield one block per chair. All renderings are read first, because the files of an archive may be in any order."""
    images: dict[View, ByteArray] = {}
    views = chairs * ELEVATIONS * AZIMUTHS
    for name, stream in _folder_files(path) if path.is_dir() else read_tar_files(path, lambda n: bool(parse_view(n))):
        view = parse_view(name)
        assert view is not None  # because other files were skipped
        images[view] = _read_view(path, name, stream)
        if progress and len(images) % 1000 == 0:
            progress(min(len(images) / (views + 1), 1.0))
    expect(path, "number of renderings", views, len(images))
    names = sorted({view.chair for view in images})
    elevations, azimuths = (sorted({angles[i] for _, *angles in images}) for i in range(2))
    expect(path, "number of chairs, elevations and azimuths", (chairs, ELEVATIONS, AZIMUTHS),
           (len(names), len(elevations), len(azimuths)))  # fmt: skip
    for name in names:
        yield np.stack([images[View(name, e, a)] for e in elevations for a in azimuths])


def _read_view(path: Path, name: str, stream: Stream) -> ByteArray:
    expected = (SOURCE_PIXELS, SOURCE_PIXELS)
    return read_picture(path, lambda _: stream, name, expected, PIXELS, CROP)


def _folder_files(path: Path) -> Iterator[tuple[str, io.BytesIO]]:
    """Yield the relative path and the content of each rendering in a folder."""
    for file in sorted(path.glob("*/renders/*.png")):
        name = file.relative_to(path.parent).as_posix()
        if parse_view(name):
            yield name, io.BytesIO(file.read_bytes())
