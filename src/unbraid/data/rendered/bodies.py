"""Bodies: ten people in ten poses as meshes of one topology, the open stand-in for FAUST."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from unbraid.data import cache as disk
from unbraid.data.dataset import Progress
from unbraid.data.readers.faust import Meshes
from unbraid.data.rendered.body_model import FULL, GRAIN, TOPOLOGIES, VERSION, BodyModel, Pose, both
from unbraid.errors import UserError

# Gender (0 male, 1 female), age (1/3 child, 2/3 young, 1 old), muscle, weight, height and proportions (0 ideal) from 0
# to 1. Weight tells most where muscle is low: at average muscle even its largest value makes no heavy body.
ADULT = 2 / 3
SUBJECTS = {
    "man": (0, ADULT, 0.5, 0.5, 0.4, 0.3),
    "woman": (1, ADULT, 0.5, 0.5, 0.45, 0.3),
    "tall lean man": (0, ADULT, 0.2, 0.2, 0.6, 0.1),
    "short heavy man": (0, 0.75, 0.0, 0.9, 0.25, 0.6),
    "athlete": (0, ADULT, 1.0, 0.75, 0.45, 0.0),
    "tall slim woman": (1, ADULT, 0.3, 0.1, 0.6, 0.0),
    "heavy woman": (1, 0.75, 0.0, 1.0, 0.4, 0.7),
    "muscular woman": (1, ADULT, 1.0, 0.6, 0.5, 0.4),
    "child": (0.5, 1 / 3, 0.4, 0.5, 0.4, 0.5),
    "old man": (0.1, 1.0, 0.1, 0.4, 0.3, 0.9),
}
HANGING = {"arm.L": (0.0, 0.0, -72.0), "elbow.L": (0.0, -15.0, 0.0)}
# Turns in degrees about x (the body's left), y (up) and z (forward), from upright with the arms out sideways.
POSES: dict[str, Pose] = {
    "stand": both(HANGING),
    "arms out": {},
    "arms up": both({"collar.L": (0, 0, 18), "arm.L": (0, 0, 55)}),
    "arms forward": both({"arm.L": (0, -80, 0)}),
    "stride": {
        **both({"arm.L": (0, 0, -72)}),
        "leg.L": (-32, 0, 0), "leg.R": (28, 0, 0), "knee.L": (8, 0, 0), "knee.R": (22, 0, 0),
        "elbow.L": (0, -25, 0), "elbow.R": (0, 60, 0),
    },
    "sit": both({"arm.L": (-30, 0, -62), "elbow.L": (0, -45, 0), "leg.L": (-85, 0, 0), "knee.L": (85, 0, 0)}),
    "twist": {"back": (0, 55, 0), "neck": (0, 20, 0), "arm.L": (0, 0, -10), "arm.R": (0, 0, 10)},
    "bow": {"back": (65, 0, 0), "neck": (15, 0, 0), **both({"arm.L": (0, 0, -72), "leg.L": (-15, 0, 0)})},
    "knee raised": {**both(HANGING), "arm.R": (0, 0, -60), "leg.L": (-80, 0, 0), "knee.L": (95, 0, 0)},
    "lean and wave": {"back": (0, 0, -22), "arm.L": (0, 0, -70), "arm.R": (0, 0, -35), "elbow.R": (0, 0, -70)},
}  # fmt: skip
NAMES, SIZES = ("subject", "pose"), (len(SUBJECTS), len(POSES))
ROWS = math.prod(SIZES)
# Of the float32 coordinates of all bodies at full detail, in order; part of the names of files, so that a change of
# what is made never meets an old one.
SHA256 = "0f50b42e336687dae52ef5462fa59f3dd847457e28c364ff5babf4c6c1d9e5c0"


class Bodies(Meshes):
    """Posed bodies of one topology, in metres, the root of the skeleton (between the hips) at the origin."""

    categorical = NAMES
    units = "metres"

    @property
    def vertices(self) -> int:
        """How many vertices each body has."""
        return self.shape[0] // 3


def bodies(device: str | torch.device = "cpu", progress: Progress | None = None, vertices: int = FULL) -> Bodies:
    """Bodies: 10 people in 10 poses, 13,718 vertices each, as vectors of 41,154 coordinates.

    The open stand-in for FAUST. Coordinates are metres, x to the body's left, y up and z forward, vertex after vertex,
    the root of the skeleton at the origin; `faces` has the triangles of all. `vertices` may be 1,229: a coarser closed
    surface without toes, for small networks. Made once by the package anny (some minutes) and kept on disk.
    Reference: Bregier et al. (2025), arXiv:2511.03589; Bogo et al. (2014), doi:10.1109/CVPR.2014.491.
    """
    if vertices not in TOPOLOGIES:
        raise UserError(f"The 'vertices' of bodies must be one of {', '.join(map(str, TOPOLOGIES))}. Got {vertices}.")
    kept = _kept(vertices)
    table, faces = kept or _made(vertices, progress)
    if progress and kept:
        progress(1.0)
    return Bodies("bodies", NAMES, SIZES, table.to(device), faces)


def recipe(*parts: object) -> str:
    """Part of the name of a file made from `parts`."""
    return hashlib.sha256(repr((VERSION, GRAIN, SHA256, *parts)).encode()).hexdigest()[:16]


def _files(vertices: int) -> tuple[str, str]:
    key = recipe(list(SUBJECTS.values()), list(POSES.values()), vertices)
    return f"bodies-{vertices}-{key}", f"faces-{vertices}-{recipe()}"


def _kept(vertices: int) -> tuple[Tensor, Tensor] | None:
    """The coordinates and triangles on disk, where they are kept as bytes; None where one of them is missing."""
    coordinates, triangles = _files(vertices)
    faces = disk.read(triangles, (TOPOLOGIES[vertices].faces, 3 * 4))
    table = None if faces is None else disk.read(coordinates, (ROWS, vertices * 3 * 4))
    if faces is None or table is None:
        return None
    return table.view(torch.float32), faces.view(torch.int32).long()


def _made(vertices: int, progress: Progress | None) -> tuple[Tensor, Tensor]:
    model = BodyModel(vertices)
    table = torch.empty(*SIZES, vertices * 3)
    for subject, done in enumerate(_everyone(model)):
        table[subject] = done
        if progress:
            progress((subject + 1) / len(SUBJECTS))
    table = table.flatten(0, 1)
    coordinates, triangles = _files(vertices)
    disk.write(triangles, model.faces.int().view(torch.uint8))
    disk.write(coordinates, table.view(torch.uint8))
    return table, model.faces


def _everyone(model: BodyModel) -> Iterator[Tensor]:
    """The float32 coordinates (poses, 3 v) of one subject after the other."""
    for phenotype in SUBJECTS.values():
        rest = model.rest(torch.tensor([phenotype], dtype=torch.float64))
        posed = torch.cat([model.posed(rest, pose) for pose in POSES.values()])
        yield posed.flatten(1).float()
