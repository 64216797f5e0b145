"""The VAEs for pairs. The two methods of each limit draw the same pairs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from families.base import MethodFacts
from unbraid.distributions import Gaussian
from unbraid.methods.ada_vae import AdaGVAE, AdaMLVAE
from unbraid.methods.group_vae import MLVAE, GroupVAE
from unbraid.methods.pairs import Paired
from unbraid.methods.slow_vae import SlowVAE


def mark_all_latents(self: AdaGVAE, q1: Gaussian, q2: Gaussian, changed: Tensor | None) -> Tensor:
    """Return a mask that is True for all latents, so that no posteriors are averaged."""
    return torch.ones_like(q1.mean, dtype=torch.bool)


@dataclass(frozen=True)
class UnsharedGVAE(AdaGVAE):
    """Ada-GVAE that does not average any posteriors."""

    unshared_latents = mark_all_latents


@dataclass(frozen=True)
class UnsharedMLVAE(AdaMLVAE):
    """Ada-ML-VAE that does not average any posteriors."""

    unshared_latents = mark_all_latents


@dataclass(frozen=True)
class UnsharedProductVAE(MLVAE):
    """ML-VAE that does not multiply any posteriors."""

    unshared_latents = mark_all_latents


FACTS: dict[str, MethodFacts] = {
    "ada_gvae": MethodFacts(AdaGVAE(beta=0.1), limits=[(UnsharedGVAE(beta=3.0), Paired(beta=3.0))]),
    "ada_mlvae": MethodFacts(AdaMLVAE(beta=0.1), limits=[(UnsharedMLVAE(beta=3.0), Paired(beta=3.0))]),
    "group_vae": MethodFacts(
        GroupVAE(beta=0.1),
        limits=[
            (GroupVAE(beta=3.0), AdaGVAE(beta=3.0, apart="count")),
            (GroupVAE(beta=3.0, apart="factors"), AdaGVAE(beta=3.0, apart="factors")),
        ],
    ),
    "ml_vae": MethodFacts(MLVAE(beta=0.1), limits=[(UnsharedProductVAE(beta=3.0), Paired(beta=3.0))]),
    "slow_vae": MethodFacts(
        SlowVAE(beta=0.1, gamma=0.1),
        limits=[
            (SlowVAE(beta=3.0, gamma=0.0), Paired(beta=3.0, weight=2.0, pairs="laplace")),
            (SlowVAE(beta=1.0, gamma=0.0, pairs="uniform"), Paired(beta=1.0, weight=2.0, pairs="uniform")),
        ],
    ),
}
