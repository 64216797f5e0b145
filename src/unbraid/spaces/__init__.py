"""Latent spaces with a shape of their own: closed manifolds as pure functions of ambient coordinates."""

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

__all__ = ["SPACES", "FlatTorus", "Projective", "Rotations", "Space", "Sphere", "Torus"]
