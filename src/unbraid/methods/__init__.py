"""Methods: each a frozen dataclass of hyperparameters with one objective."""

from __future__ import annotations

from unbraid.accel.adam import Adam
from unbraid.methods.ada_vae import AdaGVAE, AdaMLVAE
from unbraid.methods.ae import AE
from unbraid.methods.annealed_vae import AnnealedVAE
from unbraid.methods.beta_tcvae import BetaTCVAE
from unbraid.methods.beta_vae import BetaVAE
from unbraid.methods.diffusion_vae import DiffusionVAE
from unbraid.methods.dip_vae import DIPVAEI, DIPVAEII
from unbraid.methods.factor_vae import FactorVAE
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.pcl import PCL
from unbraid.methods.pmp import PMP
from unbraid.methods.slow_vae import SlowVAE
from unbraid.methods.vae import VAE
from unbraid.methods.vitae import CVITAE, UVITAE

METHODS: dict[str, type[Method]] = {
    "ae": AE,
    "vae": VAE,
    "beta_vae": BetaVAE,
    "annealed_vae": AnnealedVAE,
    "factor_vae": FactorVAE,
    "beta_tcvae": BetaTCVAE,
    "dip_vae_i": DIPVAEI,
    "dip_vae_ii": DIPVAEII,
    "ada_gvae": AdaGVAE,
    "ada_mlvae": AdaMLVAE,
    "slow_vae": SlowVAE,
    "pcl": PCL,
    "pmp": PMP,
    "diffusion_vae": DiffusionVAE,
    "u_vitae": UVITAE,
    "c_vitae": CVITAE,
}

__all__ = [
    "AE", "CVITAE", "DIPVAEI", "DIPVAEII", "METHODS", "PCL", "PMP", "UVITAE", "VAE", "AdaGVAE", "AdaMLVAE", "Adam",
    "AnnealedVAE", "Batch", "BetaTCVAE", "BetaVAE", "DiffusionVAE", "FactorVAE", "Hyper", "Loss", "Method", "SlowVAE",
    "setting",
]  # fmt: skip
