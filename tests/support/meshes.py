"""Small meshes with two factors, an untrained run on them, and files in the format of FAUST."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import torch
from scipy.spatial import ConvexHull
from torch import Tensor

from support import formats
from support.pmp_examples import VectorTable
from unbraid.data.dataset import FactorData
from unbraid.data.readers.faust import FILES, TRIANGLES, VERTICES
from unbraid.methods import PMP
from unbraid.nets.pointnet import pointnet
from unbraid.runs.network import build_net
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec


def unit_sphere(vertices: int) -> Tensor:
    """Return the vertices of a sphere of radius 1."""
    i = torch.arange(vertices) + 0.5
    polar, turn = (1 - 2 * i / vertices).acos(), math.pi * (1 + 5**0.5) * i
    return torch.stack([polar.sin() * turn.cos(), polar.sin() * turn.sin(), polar.cos()], 1)


def bent_spheres(sphere: Tensor, count: int) -> list[Tensor]:
    """Return spheres with as many proportions (subjects) as bends (poses), the bend changing fastest."""
    meshes = []
    for subject, pose in itertools.product(torch.linspace(-1, 1, count), torch.linspace(-1, 1, count)):
        body = sphere * torch.stack([1 + 0.3 * subject, 1 - 0.2 * subject, torch.tensor(1.5)])
        bend = 0.6 * pose * body[:, 2]
        x, z = body[:, 0] * bend.cos() - body[:, 2] * bend.sin(), body[:, 0] * bend.sin() + body[:, 2] * bend.cos()
        meshes.append(torch.stack([x, body[:, 1], z], 1))
    return meshes


def write_faust(root: Path) -> Path:
    """Write bent spheres as the registrations of FAUST into a data folder, and return the data folder."""
    sphere = unit_sphere(VERTICES)
    faces = ConvexHull(sphere.numpy()).simplices
    assert len(faces) == TRIANGLES
    (root / "faust").mkdir(parents=True)
    for name, mesh in zip(FILES, bent_spheres(sphere, 10), strict=True):
        (root / "faust" / name).write_bytes(formats.ply_bytes(mesh.numpy(), faces))
    return root


def spheres() -> VectorTable:
    """Return spheres of 100 vertices: 5 subjects (proportions) in 5 poses (bends)."""
    sphere = unit_sphere(100)
    meshes = torch.stack(bent_spheres(sphere, 5)).flatten(1)
    data = VectorTable("spheres", ("subject", "pose"), (5, 5), (300,), meshes)
    faces = torch.from_numpy(ConvexHull(sphere.numpy()).simplices).long()
    a, b, c = (sphere[corner] for corner in faces.T)
    inward = (torch.linalg.cross(b - a, c - a) * a).sum(1) < 0
    data.faces = torch.where(inward[:, None], faces.flip(1), faces)  # type: ignore[attr-defined]
    return data


def untrained_run(data: FactorData) -> Run:
    """Return an untrained run of PMP on meshes."""
    spec = RunSpec(PMP(pairs="sharing", subspaces=2), "spheres", latents=4, net="pointnet", likelihood="gaussian")
    return Run(spec, build_net(spec, data.shape, pointnet).eval())
