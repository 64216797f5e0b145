"""VAEs on closed manifolds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from families.base import MethodFacts
from unbraid.methods.diffusion_vae import DiffusionVAE
from unbraid.methods.method import Batch, Loss
from unbraid.methods.s_vae import SVAE, log_kappa
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


@dataclass(frozen=True)
class ThreeDimensionalVAE(SVAE):
    """S-VAE with the KL of a sphere in four dimensions, in closed form."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q = net.encode(batch.x)
        kappa = log_kappa(q).exp().double()
        first, second = torch.special.i1e(kappa), torch.special.i0e(kappa) - 2 * torch.special.i1e(kappa) / kappa
        kl = (kappa * second / first + (0.5 * kappa).log() - first.log() - kappa).float().mean()
        rec = net.nll(batch.x, self.sample(q, noise)).mean()
        return rec + self.beta * kl, {"rec": rec, "kl": kl}


# With a capacity of 0, |KL - C| equals the KL, because the KL is never negative with four latents.
FACTS: dict[str, MethodFacts] = {
    "diffusion_vae": MethodFacts(
        DiffusionVAE(beta=0.1),
        limits=[(DiffusionVAE(beta=3.0, iteration_threshold=1, c_max=0.0), DiffusionVAE(beta=3.0))],
    ),
    "s_vae": MethodFacts(SVAE(beta=0.1), limits=[(SVAE(beta=2.0), ThreeDimensionalVAE(beta=2.0))]),
}
