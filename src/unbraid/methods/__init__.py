"""Methods: each a frozen dataclass of hyperparameters with one objective."""

from __future__ import annotations

from unbraid.methods.annealed_vae import AnnealedVAE
from unbraid.methods.base import Adam, Batch, Hyper, Loss, Method, setting
from unbraid.methods.beta_tcvae import BetaTCVAE
from unbraid.methods.beta_vae import BetaVAE
from unbraid.methods.dip_vae import DIPVAEI, DIPVAEII
from unbraid.methods.factor_vae import FactorVAE
from unbraid.methods.vae import VAE

METHODS: dict[str, type[Method]] = {
    "vae": VAE,
    "beta_vae": BetaVAE,
    "annealed_vae": AnnealedVAE,
    "factor_vae": FactorVAE,
    "beta_tcvae": BetaTCVAE,
    "dip_vae_i": DIPVAEI,
    "dip_vae_ii": DIPVAEII,
}

__all__ = [
    "DIPVAEI", "DIPVAEII", "METHODS", "VAE", "Adam", "AnnealedVAE", "Batch", "BetaTCVAE", "BetaVAE", "FactorVAE",
    "Hyper", "Loss", "Method", "setting",
]  # fmt: skip
