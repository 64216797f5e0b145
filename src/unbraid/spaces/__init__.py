"""Latent spaces that are closed manifolds, and spatial transformations of images.

The classes listed here are the latent spaces of `unbraid.methods.DiffusionVAE`. To create a space, pass the number of
latents, which is the dimension n of the ambient Euclidean space. Points are rows of n ambient coordinates, and all
methods are pure functions of these coordinates.

>>> import torch
>>> from unbraid.spaces import Sphere
>>> sphere = Sphere(latents=3)
>>> sphere.dimension, sphere.project(torch.tensor([[0.0, 3.0, 4.0]])).tolist()
(2, [[0.0, 0.6000000238418579, 0.800000011920929]])

The modules `affine`, `cpab`, `transformers` and `warp` contain the image transformations that VITAE uses.
"""

from __future__ import annotations

from unbraid.spaces.manifold import Space
from unbraid.spaces.projective import Projective
from unbraid.spaces.rotations import Rotations
from unbraid.spaces.sphere import Sphere
from unbraid.spaces.torus import FlatTorus, Torus

SPACES: dict[str, type[Space]] = {
    "sphere": Sphere,
    "flat_torus": FlatTorus,
    "torus": Torus,
    "projective": Projective,
    "rotations": Rotations,
}
"""The latent spaces by name."""

__all__ = ["SPACES", "FlatTorus", "Projective", "Rotations", "Space", "Sphere", "Torus"]
