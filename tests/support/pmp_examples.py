"""Data, codes and networks for the tests of product manifold projection."""

from __future__ import annotations

import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.methods import PMP
from unbraid.nets.registry import resolve_net
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec

ALL_TERMS = PMP(subspaces=4, horizon=4.0)  # every term has a positive weight from the third step on


class VectorTable(FactorData):
    """A table of vectors over a grid of factors."""

    def batch(self, index: Tensor, noise: Noise | None = None) -> Tensor:
        return self.table[index]

    def _examples(self, index: Tensor) -> Tensor:
        return self.table[index]


def make_noise(seed: int = 0) -> Noise:
    """Return the noise of step 0 of a seed."""
    return Noise.from_seed(torch.tensor(seed), torch.tensor(0))


def random_codes(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Return normal random numbers in float64."""
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build_pmp(data: FactorData, method: PMP, latents: int = 4) -> VAENet:
    """Build an untrained network for vectors."""
    spec = RunSpec(method, data.name, latents=latents, net="mlp", likelihood="gaussian")
    return build_net(spec, data.shape, resolve_net("mlp")[1])
