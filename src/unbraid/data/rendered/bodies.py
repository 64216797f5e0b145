"""Meshes of ten people in ten poses, all with the same topology, as an open substitute for FAUST."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from unbraid.data import cache as disk
from unbraid.data.dataset import Progress
from unbraid.data.readers.faust import Meshes
from unbraid.data.rendered.body_model import (
    COORDINATE_STEP,
    FULL_VERTICES,
    TOPOLOGIES,
    VERSION,
    BodyModel,
    Pose,
    mirror_pose,
)
from unbraid.errors import UserError

# The phenotype of each subject: gender (0 male, 1 female), age (1/3 child, 2/3 young, 1 old), muscle, weight, height
# and proportions (0 ideal). All values are from 0 to 1. Heavy bodies have little muscle here, because
# with average muscle, even weight 1 does not make a body heavy.
ADULT_AGE = 2 / 3
SUBJECTS = {
    "man": (0, ADULT_AGE, 0.5, 0.5, 0.4, 0.3),
    "woman": (1, ADULT_AGE, 0.5, 0.5, 0.45, 0.3),
    "tall lean man": (0, ADULT_AGE, 0.2, 0.2, 0.6, 0.1),
    "short heavy man": (0, 0.75, 0.0, 0.9, 0.25, 0.6),
    "athlete": (0, ADULT_AGE, 1.0, 0.75, 0.45, 0.0),
    "tall slim woman": (1, ADULT_AGE, 0.3, 0.1, 0.6, 0.0),
    "heavy woman": (1, 0.75, 0.0, 1.0, 0.4, 0.7),
    "muscular woman": (1, ADULT_AGE, 1.0, 0.6, 0.5, 0.4),
    "child": (0.5, 1 / 3, 0.4, 0.5, 0.4, 0.5),
    "old man": (0.1, 1.0, 0.1, 0.4, 0.3, 0.9),
}
ARMS_DOWN = {"arm.L": (0.0, 0.0, -72.0), "elbow.L": (0.0, -15.0, 0.0)}
# Rotations of joints in degrees about x (the body's left), y (up) and z (forward). Without rotations, the body stands
# upright with the arms out sideways.
POSES: dict[str, Pose] = {
    "stand": mirror_pose(ARMS_DOWN),
    "arms out": {},
    "arms up": mirror_pose({"collar.L": (0, 0, 18), "arm.L": (0, 0, 55)}),
    "arms forward": mirror_pose({"arm.L": (0, -80, 0)}),
    "stride": {
        **mirror_pose({"arm.L": (0, 0, -72)}),
        "leg.L": (-32, 0, 0), "leg.R": (28, 0, 0), "knee.L": (8, 0, 0), "knee.R": (22, 0, 0),
        "elbow.L": (0, -25, 0), "elbow.R": (0, 60, 0),
    },
    "sit": mirror_pose({"arm.L": (-30, 0, -62), "elbow.L": (0, -45, 0), "leg.L": (-85, 0, 0), "knee.L": (85, 0, 0)}),
    "twist": {"back": (0, 55, 0), "neck": (0, 20, 0), "arm.L": (0, 0, -10), "arm.R": (0, 0, 10)},
    "bow": {"back": (65, 0, 0), "neck": (15, 0, 0), **mirror_pose({"arm.L": (0, 0, -72), "leg.L": (-15, 0, 0)})},
    "knee raised": {**mirror_pose(ARMS_DOWN), "arm.R": (0, 0, -60), "leg.L": (-80, 0, 0), "knee.L": (95, 0, 0)},
    "lean and wave": {"back": (0, 0, -22), "arm.L": (0, 0, -70), "arm.R": (0, 0, -35), "elbow.R": (0, 0, -70)},
}  # fmt: skip
NAMES, SIZES = ("subject", "pose"), (len(SUBJECTS), len(POSES))
ROWS = math.prod(SIZES)
# Digest of the float32 coordinates of all bodies with 13,718 vertices, in order. It is part of the names of cache
# files, so a file that was written for an earlier version of the data is never read.
SHA256 = "0f50b42e336687dae52ef5462fa59f3dd847457e28c364ff5babf4c6c1d9e5c0"


class Bodies(Meshes):
    """Meshes of bodies with the same topology, in metres.

    The root of the skeleton, which is between the hips, is at the origin.
    """

    categorical = NAMES
    units = "metres"

    @property
    def vertices(self) -> int:
        """The number of vertices of each body."""
        return self.shape[0] // 3


def bodies(
    device: str | torch.device = "cpu", progress: Progress | None = None, vertices: int = FULL_VERTICES
) -> Bodies:
    """Create meshes of 10 people in 10 poses, as vectors of 41,154 coordinates (13,718 vertices).

    This is an open substitute for FAUST. A vector contains x, y and z of the first vertex, then those of the second
    vertex, and so on. x points to the body's left, y up and z forward. Coordinates are in metres, and the root of the
    skeleton is at the origin. The attribute `faces` contains the triangles, which are the same for all bodies. The
    package anny creates the data on first use, which takes about a minute. The data are then cached on disk.
    Reference: Bregier et al. (2025), arXiv:2511.03589; Bogo et al. (2014), doi:10.1109/CVPR.2014.491.

    Args:
        device: Device on which to store the examples.
        progress: Called with the finished fraction, from 0 to 1.
        vertices: Number of vertices, either 13,718, or 1,229 for a coarser closed surface without toes. The coarser
            surface is meant for small networks.

    Returns:
        100 examples of shape (3 * vertices,), with the factors subject and pose.

    Raises:
        UserError: If the number of vertices is not available, or if anny is not installed.
    """
    if vertices not in TOPOLOGIES:
        raise UserError(
            f"The option 'vertices' of bodies must be one of {', '.join(map(str, TOPOLOGIES))}. Got {vertices} instead."
        )
    cached = _read_cached(vertices)
    table, faces = cached or _create_meshes(vertices, progress)
    if progress and cached:
        progress(1.0)
    return Bodies("bodies", NAMES, SIZES, table.to(device), faces)


def cache_key(*parts: object) -> str:
    """Return a digest of `parts` and of the version of the data. It has 16 hexadecimal digits and fits a file name."""
    return hashlib.sha256(repr((VERSION, COORDINATE_STEP, SHA256, *parts)).encode()).hexdigest()[:16]


def _file_names(vertices: int) -> tuple[str, str]:
    key = cache_key(list(SUBJECTS.values()), list(POSES.values()), vertices)
    return f"bodies-{vertices}-{key}", f"faces-{vertices}-{cache_key()}"


def _read_cached(vertices: int) -> tuple[Tensor, Tensor] | None:
    """Read the coordinates and triangles from the cache, where they are stored as bytes.

    Return None if they are not in the cache.
    """
    coordinate_file, face_file = _file_names(vertices)
    faces = disk.read(face_file, (TOPOLOGIES[vertices].faces, 3 * 4))
    table = None if faces is None else disk.read(coordinate_file, (ROWS, vertices * 3 * 4))
    if faces is None or table is None:
        return None
    return table.view(torch.float32), faces.view(torch.int32).long()


def _create_meshes(vertices: int, progress: Progress | None) -> tuple[Tensor, Tensor]:
    model = BodyModel(vertices)
    table = torch.empty(*SIZES, vertices * 3)
    for subject, coordinates in enumerate(_coordinates_by_subject(model)):
        table[subject] = coordinates
        if progress:
            progress((subject + 1) / len(SUBJECTS))
    table = table.flatten(0, 1)
    coordinate_file, face_file = _file_names(vertices)
    disk.write(face_file, model.faces.int().view(torch.uint8))
    disk.write(coordinate_file, table.view(torch.uint8))
    return table, model.faces


def _coordinates_by_subject(model: BodyModel) -> Iterator[Tensor]:
    """Yield the coordinates of each subject in all poses, float32 of shape (poses, 3 * vertices)."""
    for phenotype in SUBJECTS.values():
        rest = model.rest_bodies(torch.tensor([phenotype], dtype=torch.float64))
        vertices = torch.cat([model.pose_vertices(rest, pose) for pose in POSES.values()])
        yield vertices.flatten(1).float()
