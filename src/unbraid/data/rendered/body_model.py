"""The body model that `bodies` and `body_images` use. It computes meshes with the package anny."""

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
VERSION = "0.6.2"  # required version of anny
INSTALL_HINT = 'Run: pip install "unbraid[bodies]"'
# Coordinates are rounded to multiples of this length in metres, because unrounded coordinates may differ between
# machines.
COORDINATE_STEP = 2.0**-16

# A joint is a chain of bones, over which its rotation is distributed equally.
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
CENTRAL_JOINTS = ("back", "neck")  # joints that exist only once, not on the left and right
# Our axes in the coordinates of anny, in which z points up and bodies look along -y.
AXES = ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, -1.0, 0.0))


class Topology(NamedTuple):
    """The name of a topology in anny, and its number of triangles."""

    name: str
    faces: int


FULL_VERTICES = 13_718
# Topologies by their number of vertices.
TOPOLOGIES = {FULL_VERTICES: Topology("anny", 27_420), 1_229: Topology("notoes_collapse10pc", 2_454)}

RotationVector: TypeAlias = tuple[float, float, float]
Pose: TypeAlias = Mapping[str, RotationVector]


def mirror_pose(pose: Pose) -> dict[str, RotationVector]:
    """Add, for every rotation of a left joint, the mirrored rotation of the right joint.

    >>> mirror_pose({"arm.L": (0, 0, -75)})
    {'arm.L': (0, 0, -75), 'arm.R': (0, 0, 75)}
    """
    mirrored = {name.replace(".L", ".R"): (x, -y, -z) for name, (x, y, z) in pose.items() if name.endswith(".L")}
    return {**pose, **mirrored}


class BodyModel:
    """A model that computes meshes of bodies with the same topology from phenotypes and poses.

    Coordinates are in metres and rounded to 2^-16 m. x points to the body's left, y up and z forward.

    A pose is a dictionary from joints to rotation vectors. The joints are "back" and "neck", and "collar", "arm",
    "elbow", "leg", "knee" and "foot" with the suffix .L or .R. The direction of a rotation vector is the axis, and its
    length is the angle in degrees. Without rotations, the body stands upright with straight arms held out sideways. The
    rotation of a joint also moves all joints further down the limb, together with their axes.

    Reference: Bregier et al. (2025), arXiv:2511.03589.
    """

    def __init__(self, vertices: int = FULL_VERTICES) -> None:
        self.model: Any = _build_model(_import_anny(quiet=vertices != FULL_VERTICES), TOPOLOGIES[vertices].name)
        self.faces: Int[Tensor, "m 3"] = self.model.faces.long()
        self.bones = {name: i for i, name in enumerate(self.model.bone_labels)}
        self.axes = torch.tensor(AXES, dtype=torch.float64)
        with torch.no_grad():
            heads = self.model()["bone_poses"][0, :, :3, 3] @ self.axes.T
        self.alignment = {side: self._arm_alignment(heads, side) for side in "LR"}

    def _arm_alignment(self, heads: Tensor, side: str) -> tuple[Tensor, Tensor]:
        """Return the rotations of upper arm and forearm that move an arm from anny's rest pose to straight sideways."""
        names = (f"upperarm01.{side}", f"lowerarm01.{side}", f"wrist.{side}")
        shoulder, elbow, wrist = (heads[self.bones[name]] for name in names)
        out = torch.tensor([1.0 if side == "L" else -1.0, 0, 0], dtype=torch.float64)
        return rotation_between(elbow - shoulder, out), rotation_between(wrist - elbow, out)

    def rest_bodies(self, phenotypes: Float[Tensor, "b 6"]) -> dict[str, Tensor]:
        """Return bodies in the rest pose of anny.

        The columns of the input are `PHENOTYPES`, with values from 0 to 1. The output is the dictionary that anny
        returns.
        """
        with torch.no_grad():
            bodies: dict[str, Tensor] = self.model(phenotype_kwargs=phenotypes.double())
        return bodies

    def pose_vertices(self, rest: Mapping[str, Tensor], pose: Pose) -> Float[Tensor, "b v 3"]:
        """Return the vertices of bodies in one pose. `rest` is the result of `rest_bodies`.

        The root of the skeleton, which is between the hips, is at the origin.
        """
        return (self.pose_vertices_unrounded(rest, pose) / COORDINATE_STEP + 0.5).floor() * COORDINATE_STEP

    def pose_vertices_unrounded(self, rest: Mapping[str, Tensor], pose: Pose) -> Float[Tensor, "b v 3"]:
        """Return the float64 vertices that `pose_vertices` rounds."""
        with torch.no_grad():
            moves, _ = self.model.get_bone_transforms(self.bone_rotations(pose)[None], rest["rest_bone_poses"])
            vertices: Tensor = self.model.get_skinned_vertices(rest["rest_vertices"], moves)
        return vertices @ self.axes.T

    def bone_rotations(self, pose: Pose) -> Float[Tensor, "j 4 4"]:
        """Return the pose parameters of anny, which are one rotation (4, 4) per bone, in the coordinates of anny."""
        rotations = torch.eye(4, dtype=torch.float64).repeat(len(self.bones), 1, 1)
        for joint, bones in _bones_by_joint().items():
            rotation = rotation_matrix(pose.get(joint, (0, 0, 0)), len(bones))
            side = joint[-1]
            if joint.startswith("arm"):
                rotation = rotation @ self.alignment[side][0]
            if joint.startswith("elbow"):
                rotation = self.alignment[side][0].T @ rotation @ self.alignment[side][1]
            for bone in bones:
                rotations[self.bones[bone], :3, :3] = self.axes.T @ rotation @ self.axes
        if unknown := pose.keys() - _bones_by_joint().keys():
            raise UserError(
                f"The joints of a pose must be among {', '.join(_bones_by_joint())}. Got {', '.join(sorted(unknown))} "
                "instead."
            )
        return rotations


def rotation_matrix(vector: RotationVector, parts: int = 1) -> Float[Tensor, "3 3"]:
    """Return the matrix of a rotation about the axis `vector`.

    The angle in degrees is the length of `vector`, divided by `parts`.
    """
    x, y, z = (math.radians(angle) / parts for angle in vector)
    rotation: Tensor = torch.linalg.matrix_exp(_cross_product_matrix(x, y, z))
    return rotation


def rotation_between(a: Float[Tensor, " 3"], b: Float[Tensor, " 3"]) -> Float[Tensor, "3 3"]:
    """Return the smallest rotation from the direction of a to the direction of b. These must not be opposite."""
    a, b = a / a.norm(), b / b.norm()
    across = _cross_product_matrix(*torch.linalg.cross(a, b).tolist())
    rotation: Tensor = torch.eye(3, dtype=torch.float64) + across + across @ across / (1 + a @ b)
    return rotation


def _cross_product_matrix(x: float, y: float, z: float) -> Tensor:
    """Return the matrix that computes the cross product with (x, y, z)."""
    return torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)


@cache
def _bones_by_joint() -> dict[str, tuple[str, ...]]:
    """Return a dictionary from each joint, with its side, to the bones over which its rotation is distributed."""
    middle = {joint: CHAINS[joint] for joint in CENTRAL_JOINTS}
    limbs = {joint: bones for joint, bones in CHAINS.items() if joint not in CENTRAL_JOINTS}
    return middle | {
        f"{joint}.{side}": tuple(f"{bone}.{side}" for bone in bones) for joint, bones in limbs.items() for side in "LR"
    }


def _import_anny(quiet: bool) -> Any:
    """Import anny, or raise an error that says how to install it.

    If `quiet` is true, the package warp does not print messages. anny uses warp for reduced topologies.
    """
    try:
        anny = importlib.import_module("anny")
        if quiet:
            importlib.import_module("warp").config.quiet = True
    except ImportError as error:
        raise UserError(
            f"Bodies need the package anny {VERSION}. Importing it failed: {error}. {INSTALL_HINT}"
        ) from error
    if (found := importlib.metadata.version("anny")) != VERSION:
        raise UserError(
            f"Bodies need version {VERSION} of anny, because other versions give different bodies. Got version {found} "
            f"instead. {INSTALL_HINT}"
        )
    return anny


def _build_model(anny: Any, topology: str) -> Any:
    """Create the model of anny.

    On first use, anny reads its assets, which takes a minute, and caches them (780 MB).
    """
    from safetensors import SafetensorError

    try:
        return anny.Anny(topology=topology, phenotype_blendshapes="original", skinning_method="lbs")
    except (OSError, SafetensorError) as error:
        folder = anny.paths.get_anny_cache_path()
        raise UserError(
            f"The package anny must be able to store 1 GB in {folder}. Got an error instead: {error}. Delete this "
            "folder if its files are damaged, or set ANNY_CACHE_DIR to a folder with enough space."
        ) from error
