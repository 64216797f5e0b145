"""The body behind `bodies` and `body_images`: the package anny, its phenotypes, and poses as turns of joints."""

from __future__ import annotations

import importlib
import importlib.metadata
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.errors import UserError

PHENOTYPES = ("gender", "age", "muscle", "weight", "height", "proportions")
VERSION = "0.6.2"
REMEDY = 'Give: pip install "unbraid[bodies]"'
GRAIN = 2.0**-16  # metres to which coordinates are rounded, so that every machine gets the same numbers

# A joint is a chain of bones that share its turn equally.
CHAINS = {
    "back": ("spine05", "spine04", "spine03", "spine02", "spine01"),
    "neck": ("neck01", "neck02", "neck03", "head"),
    "collar": ("clavicle",),
    "arm": ("upperarm01",),
    "elbow": ("lowerarm01",),
    "leg": ("upperleg01",),
    "knee": ("lowerleg01",),
    "foot": ("foot",),
}
MIDDLE = ("back", "neck")
OURS = ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, -1.0, 0.0))  # anny has z up and looks along -y


class Topology(NamedTuple):
    """What anny calls it, and how many triangles it has."""

    name: str
    faces: int


FULL = 13_718
TOPOLOGIES = {FULL: Topology("anny", 27_420), 1_229: Topology("notoes_collapse10pc", 2_454)}  # by vertices

Turn: TypeAlias = tuple[float, float, float]
Pose: TypeAlias = Mapping[str, Turn]


def both(pose: Pose) -> dict[str, Turn]:
    """The pose with every turn of a limb's left joint mirrored at its right.

    >>> both({"arm.L": (0, 0, -75)})
    {'arm.L': (0, 0, -75), 'arm.R': (0, 0, 75)}
    """
    mirrored = {name.replace(".L", ".R"): (x, -y, -z) for name, (x, y, z) in pose.items() if name.endswith(".L")}
    return {**pose, **mirrored}


class BodyModel:
    """Bodies of one topology from phenotypes and poses, in metres: x to the body's left, y up, z forward.

    A pose maps joints ("back", "neck", and "collar", "arm", "elbow", "leg", "knee", "foot" with .L or .R) to turns:
    vectors along the axis whose length is the angle in degrees. Turns start from the body upright with straight arms
    held out sideways and are passed down from joint to joint, about axes that move with the joint before.

    Coordinates are rounded to 2^-16 m. Reference: Bregier et al. (2025), arXiv:2511.03589.
    """

    def __init__(self, vertices: int = FULL) -> None:
        self.model: Any = _built(_anny(quiet=vertices != FULL), TOPOLOGIES[vertices].name)
        self.faces: Int[Tensor, "m 3"] = self.model.faces.long()
        self.bones = {name: i for i, name in enumerate(self.model.bone_labels)}
        self.ours = torch.tensor(OURS, dtype=torch.float64)
        with torch.no_grad():
            heads = self.model()["bone_poses"][0, :, :3, 3] @ self.ours.T
        self.aligned = {side: self._aligned(heads, side) for side in "LR"}

    def _aligned(self, heads: Tensor, side: str) -> tuple[Tensor, Tensor]:
        """The rotations that bring upper arm and forearm from where anny has them to straight out sideways."""
        names = (f"upperarm01.{side}", f"lowerarm01.{side}", f"wrist.{side}")
        shoulder, elbow, wrist = (heads[self.bones[name]] for name in names)
        out = torch.tensor([1.0 if side == "L" else -1.0, 0, 0], dtype=torch.float64)
        return between(elbow - shoulder, out), between(wrist - elbow, out)

    def rest(self, phenotypes: Float[Tensor, "b 6"]) -> dict[str, Tensor]:
        """Bodies before they are posed: columns are gender, age, muscle, weight, height, proportions, 0 to 1 each."""
        with torch.no_grad():
            made: dict[str, Tensor] = self.model(phenotype_kwargs=phenotypes.double())
        return made

    def posed(self, rest: Mapping[str, Tensor], pose: Pose) -> Float[Tensor, "b v 3"]:
        """The vertices of the bodies in one pose, the root of the skeleton (between the hips) at the origin."""
        return (self.unrounded(rest, pose) / GRAIN + 0.5).floor() * GRAIN

    def unrounded(self, rest: Mapping[str, Tensor], pose: Pose) -> Float[Tensor, "b v 3"]:
        """`posed` before its coordinates are rounded, float64."""
        with torch.no_grad():
            moves, _ = self.model.get_bone_transforms(self.turns(pose)[None], rest["rest_bone_poses"])
            vertices: Tensor = self.model.get_skinned_vertices(rest["rest_vertices"], moves)
        return vertices @ self.ours.T

    def turns(self, pose: Pose) -> Float[Tensor, "j 4 4"]:
        """What anny calls pose parameters: a turn a bone, about axes that are anny's own."""
        turns = torch.eye(4, dtype=torch.float64).repeat(len(self.bones), 1, 1)
        for joint, bones in _joints().items():
            turn = rotation(pose.get(joint, (0, 0, 0)), len(bones))
            side = joint[-1]
            if joint.startswith("arm"):
                turn = turn @ self.aligned[side][0]
            if joint.startswith("elbow"):
                turn = self.aligned[side][0].T @ turn @ self.aligned[side][1]
            for bone in bones:
                turns[self.bones[bone], :3, :3] = self.ours.T @ turn @ self.ours
        if unknown := pose.keys() - _joints().keys():
            raise UserError(f"A pose must turn the joints {', '.join(_joints())}. Got {', '.join(sorted(unknown))}.")
        return turns


def rotation(turn: Turn, parts: int = 1) -> Float[Tensor, "3 3"]:
    """The rotation about the vector `turn` by its length in degrees, or one of `parts` equal parts of it."""
    x, y, z = (math.radians(angle) / parts for angle in turn)
    turned: Tensor = torch.linalg.matrix_exp(_across(x, y, z))
    return turned


def between(a: Float[Tensor, " 3"], b: Float[Tensor, " 3"]) -> Float[Tensor, "3 3"]:
    """The smallest rotation that turns the direction of a to that of b; they are not opposite."""
    a, b = a / a.norm(), b / b.norm()
    across = _across(*torch.linalg.cross(a, b).tolist())
    turn: Tensor = torch.eye(3, dtype=torch.float64) + across + across @ across / (1 + a @ b)
    return turn


def _across(x: float, y: float, z: float) -> Tensor:
    """The matrix whose product with a vector is the cross product of (x, y, z) with it."""
    return torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)


@cache
def _joints() -> dict[str, tuple[str, ...]]:
    """The bones of each joint, left and right."""
    middle = {joint: CHAINS[joint] for joint in MIDDLE}
    limbs = {joint: bones for joint, bones in CHAINS.items() if joint not in MIDDLE}
    return middle | {
        f"{joint}.{side}": tuple(f"{bone}.{side}" for bone in bones) for joint, bones in limbs.items() for side in "LR"
    }


def _anny(quiet: bool) -> Any:
    """The package, or a word on how to get it; `quiet` for topologies whose making announces itself."""
    try:
        anny = importlib.import_module("anny")
        if quiet:
            importlib.import_module("warp").config.quiet = True
    except ImportError as error:
        raise UserError(f"Bodies need the package anny {VERSION}. Importing it failed: {error}. {REMEDY}") from error
    if (found := importlib.metadata.version("anny")) != VERSION:
        raise UserError(f"Bodies need the package anny {VERSION}, for others make other bodies. Got {found}. {REMEDY}")
    return anny


def _built(anny: Any, topology: str) -> Any:
    """The model; anny reads its assets once (a minute) and keeps what it read (780 MB) in a folder of its own."""
    from safetensors import SafetensorError

    try:
        return anny.Anny(topology=topology, phenotype_blendshapes="original", skinning_method="lbs")
    except (OSError, SafetensorError) as error:
        folder = anny.paths.get_anny_cache_path()
        raise UserError(
            f"The package anny must be able to keep 1 GB in {folder}. Got: {error}. Delete that folder if its files "
            "are damaged, or set ANNY_CACHE_DIR to one with room."
        ) from error
