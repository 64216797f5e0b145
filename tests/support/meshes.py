"""Small meshes with two factors, and an untrained run on them."""

from __future__ import annotations

import itertools
import math

import torch
from scipy.spatial import ConvexHull

from support.pmp_examples import VectorTable
from unbraid.data.dataset import FactorData
from unbraid.methods import PMP
from unbraid.nets.pointnet import pointnet
from unbraid.runs.network import build_net
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec


def spheres() -> VectorTable:
    """Return spheres of 100 vertices: 5 subjects (proportions) in 5 poses (bends)."""
    i = torch.arange(100) + 0.5
    polar, turn = (1 - i / 50).acos(), math.pi * (1 + 5**0.5) * i
    sphere = torch.stack([polar.sin() * turn.cos(), polar.sin() * turn.sin(), polar.cos()], 1)
    meshes = []
    for subject, pose in itertools.product(torch.linspace(-1, 1, 5), torch.linspace(-1, 1, 5)):
        body = sphere * torch.stack([1 + 0.3 * subject, 1 - 0.2 * subject, torch.tensor(1.5)])
        bend = 0.6 * pose * body[:, 2]
        x, z = body[:, 0] * bend.cos() - body[:, 2] * bend.sin(), body[:, 0] * bend.sin() + body[:, 2] * bend.cos()
        meshes.append(torch.stack([x, body[:, 1], z], 1).flatten())
    data = VectorTable("spheres", ("subject", "pose"), (5, 5), (300,), torch.stack(meshes))
    faces = torch.from_numpy(ConvexHull(sphere.numpy()).simplices).long()
    a, b, c = (sphere[corner] for corner in faces.T)
    inward = (torch.linalg.cross(b - a, c - a) * a).sum(1) < 0
    data.faces = torch.where(inward[:, None], faces.flip(1), faces)  # type: ignore[attr-defined]
    return data


def untrained_run(data: FactorData) -> Run:
    """Return an untrained run of PMP on meshes."""
    spec = RunSpec(PMP(pairs="sharing", subspaces=2), "spheres", latents=4, net="pointnet", likelihood="gaussian")
    return Run(spec, build_net(spec, data.shape, pointnet).eval())
