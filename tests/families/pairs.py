"""The VAEs of pairs. The two methods of a limit draw the same pairs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from families.base import MethodFacts
from unbraid.distributions import Gaussian
from unbraid.methods.ada_vae import AdaGVAE, AdaMLVAE
from unbraid.methods.pairs import Paired
from unbraid.methods.slow_vae import SlowVAE


def all_apart(self: AdaGVAE, q1: Gaussian, q2: Gaussian, changed: Tensor | None) -> Tensor:
    """Return that every latent stays apart, so that nothing is shared."""
    return torch.ones_like(q1.mean, dtype=torch.bool)


@dataclass(frozen=True)
class ApartGVAE(AdaGVAE):
    """Ada-GVAE that shares no latent."""

    stay_apart = all_apart


@dataclass(frozen=True)
class ApartMLVAE(AdaMLVAE):
    """Ada-ML-VAE that shares no latent."""

    stay_apart = all_apart


FACTS: dict[str, MethodFacts] = {
    "ada_gvae": MethodFacts(AdaGVAE(beta=0.1), limits=[(ApartGVAE(beta=3.0), Paired(beta=3.0))]),
    "ada_mlvae": MethodFacts(AdaMLVAE(beta=0.1), limits=[(ApartMLVAE(beta=3.0), Paired(beta=3.0))]),
    "slow_vae": MethodFacts(
        SlowVAE(beta=0.1, gamma=0.1),
        limits=[
            (SlowVAE(beta=3.0, gamma=0.0), Paired(beta=3.0, weight=2.0, pairs="laplace")),
            (SlowVAE(beta=1.0, gamma=0.0, pairs="uniform"), Paired(beta=1.0, weight=2.0, pairs="uniform")),
        ],
    ),
}
