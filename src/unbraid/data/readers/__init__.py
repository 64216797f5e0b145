"""Datasets that are read from the files that their authors publish. `unbraid.data.files` finds these files."""

from __future__ import annotations

from unbraid.data.readers.cars3d import cars3d
from unbraid.data.readers.celeba import celeba
from unbraid.data.readers.chairs3d import chairs3d
from unbraid.data.readers.dsprites_file import dsprites_file
from unbraid.data.readers.faust import Meshes, faust
from unbraid.data.readers.kitti_masks import kitti_masks
from unbraid.data.readers.mnist import fashion_mnist, mnist
from unbraid.data.readers.mpi3d import mpi3d_complex, mpi3d_real, mpi3d_realistic, mpi3d_toy
from unbraid.data.readers.natural_sprites import natural_sprites
from unbraid.data.readers.nvidia3d import falcor3d, isaac3d
from unbraid.data.readers.shapes3d import shapes3d
from unbraid.data.readers.smallnorb import ToyPhotographs, smallnorb

__all__ = [
    "Meshes",
    "ToyPhotographs",
    "cars3d",
    "celeba",
    "chairs3d",
    "dsprites_file",
    "falcor3d",
    "fashion_mnist",
    "faust",
    "isaac3d",
    "kitti_masks",
    "mnist",
    "mpi3d_complex",
    "mpi3d_real",
    "mpi3d_realistic",
    "mpi3d_toy",
    "natural_sprites",
    "shapes3d",
    "smallnorb",
]
