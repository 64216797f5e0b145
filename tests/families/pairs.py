"""The VAEs of pairs. Limits are between methods that draw the same pairs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from families.base import Known
from unbraid.distributions import Gaussian
from unbraid.methods.ada_vae import AdaGVAE, AdaMLVAE
from unbraid.methods.pairs import Paired
from unbraid.methods.slow_vae import SlowVAE


def everything(self: AdaGVAE, q1: Gaussian, q2: Gaussian, changed: Tensor | None) -> Tensor:
    """Nothing is shared."""
    return torch.ones_like(q1.mean, dtype=torch.bool)


@dataclass(frozen=True)
class ApartGVAE(AdaGVAE):
    """Ada-GVAE that takes everything for changed."""

    stay_apart = everything


@dataclass(frozen=True)
class ApartMLVAE(AdaMLVAE):
    """Ada-ML-VAE that takes everything for changed."""

    stay_apart = everything


KNOWN: dict[str, Known] = {
    "ada_gvae": Known(AdaGVAE(beta=0.1), limits=[(ApartGVAE(beta=3.0), Paired(beta=3.0))]),
    "ada_mlvae": Known(AdaMLVAE(beta=0.1), limits=[(ApartMLVAE(beta=3.0), Paired(beta=3.0))]),
    "slow_vae": Known(
        SlowVAE(beta=0.1, gamma=0.1),
        limits=[
            (SlowVAE(beta=3.0, gamma=0.0), Paired(beta=3.0, weight=2.0, pairs="laplace")),
            (SlowVAE(beta=1.0, gamma=0.0, pairs="uniform"), Paired(beta=1.0, weight=2.0, pairs="uniform")),
        ],
    ),
}
