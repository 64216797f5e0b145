"""Read FAUST from its published registrations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.data.dataset import FactorData, Progress
from unbraid.data.files.archives import read_zip_files
from unbraid.data.files.locate import locate_files
from unbraid.data.readers.ply import read_mesh
from unbraid.data.readers.verify import REMEDY, Stream, convert_read_errors, expect
from unbraid.errors import UserError
from unbraid.noise import Noise

NAMES, SIZES = ("subject", "pose"), (10, 10)
VERTICES, TRIANGLES = 6890, 13776
FILES = [f"tr_reg_{number:03d}.ply" for number in range(100)]


class Meshes(FactorData):
    """Meshes that all have the same triangles. There is one mesh for each combination of factor values.

    A row of `table` contains the coordinates x, y and z of the first vertex, then those of the second vertex, and
    so on.

    Attributes:
        faces: Vertex indices of the triangles, int64 of shape (m, 3).
    """

    def __init__(
        self, name: str, names: tuple[str, ...], sizes: tuple[int, ...], table: Tensor, faces: Int[Tensor, "m 3"]
    ) -> None:
        super().__init__(name, names, sizes, tuple(table.shape[1:]), table)
        self.faces = faces.to(table.device)

    def batch(self, index: Int[Tensor, " b"], noise: Noise | None = None) -> Float[Tensor, "b d"]:
        """Return coordinates in metres, float32 of shape (b, d)."""
        return self.table[index]

    def _examples(self, index: Tensor) -> Tensor:
        return self.table[index]

    def to(self, device: str | torch.device) -> Meshes:
        """Return the same data on a different device."""
        moved = super().to(device)
        assert isinstance(moved, Meshes)
        moved.faces = self.faces.to(device)
        return moved


def faust(
    device: str | torch.device = "cpu", root: str | Path | None = None, progress: Progress | None = None
) -> Meshes:
    """Load the registrations of FAUST: 10 people in 10 poses as vectors of 20,670 coordinates (6,890 vertices).

    A registration is a mesh with a fixed topology that was fitted to a scan. Registration 10 i + j is subject i in
    pose j.
    Reference: Bogo et al. (2014), doi:10.1109/CVPR.2014.491.
    """
    return read_faust(locate_files("faust", root), device=device, progress=progress)


def read_faust(
    files: Mapping[str, Path], device: str | torch.device = "cpu", progress: Progress | None = None
) -> Meshes:
    """Read the registrations of FAUST.

    The values of `files` are the paths of tr_reg_000.ply to tr_reg_099.ply, or the path of one zip archive that
    contains these files.
    """
    found: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = {}
    faces: np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None = None
    for path, file in _open_registrations(files):
        with file:
            vertices, triangles = read_mesh(path, file)
        expect(path, "number of vertices", VERTICES, len(vertices))
        expect(path, "number of triangles", TRIANGLES, len(triangles))
        faces = triangles if faces is None else faces
        expect(path, "number of triangles that differ from the first mesh", 0, int((triangles != faces).any(1).sum()))
        found[path.name] = vertices.ravel()
        if progress:
            progress(min(len(found) / len(FILES), 1.0))
    missing = [name for name in FILES if name not in found]
    if missing or faces is None:
        raise UserError(
            f"The registrations of FAUST must be {len(FILES)} files. {len(missing)} of them are missing, such as "
            f"{missing[0]}. {REMEDY}"
        )
    table = torch.from_numpy(np.stack([found[name] for name in FILES])).to(device)
    return Meshes("faust", NAMES, SIZES, table, torch.from_numpy(faces))


def _open_registrations(files: Mapping[str, Path]) -> Iterator[tuple[Path, Stream]]:
    for path in files.values():
        yield from _open_zip(path) if path.suffix == ".zip" else _open_file(path)


def _open_file(path: Path) -> Iterable[tuple[Path, Stream]]:
    if path.name in FILES:
        with convert_read_errors(path, "PLY"):
            file = path.open("rb")
        yield path, file


def _open_zip(path: Path) -> Iterator[tuple[Path, Stream]]:
    """Yield the registrations in an archive. Its other files, such as scans and test data, are skipped."""

    def wanted(name: str) -> bool:
        inside = PurePosixPath(name)
        return inside.name in FILES and inside.parent.name == "registrations"

    for name, file in read_zip_files(path, wanted):
        yield path / PurePosixPath(name).name, file
