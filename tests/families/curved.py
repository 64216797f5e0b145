"""VAEs on curved spaces."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from families.base import MethodFacts
from unbraid.distributions import Gaussian
from unbraid.methods.beta_vae import BetaVAE
from unbraid.methods.diffusion_vae import DiffusionVAE
from unbraid.methods.lsbd_vae import LSBDVAE
from unbraid.methods.method import Batch, Loss
from unbraid.methods.poincare_vae import PoincareVAE
from unbraid.methods.s_vae import SVAE, log_kappa
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.spaces import Sphere


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


@dataclass(frozen=True)
class TorusVAE(DiffusionVAE):
    """The diffusion VAE on two circles that have a diffusion time each. Both methods draw the same random numbers."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q = net.encode(batch.x)
        circle = Sphere(2)
        parts = [Gaussian(q.mean[:, i : i + 2], q.logvar[:, i : i + 2]) for i in (0, 2)]
        log_t = torch.stack([self.log_t(part) for part in parts], 1)
        start = torch.stack([circle.project(part.mean) for part in parts], 1).flatten(0, 1)
        z = circle.diffuse(start, log_t.exp().flatten(), noise, self.walk_steps).view(len(q.mean), 4)
        rec, kl = net.nll(batch.x, z).mean(), circle.kl(start, log_t.flatten()).sum() / len(z)
        return rec + self.beta * kl, {"rec": rec, "kl": kl}


# With a capacity of 0, |KL - C| equals the KL, because the KL is never negative with four latents.
FACTS: dict[str, MethodFacts] = {
    "diffusion_vae": MethodFacts(
        DiffusionVAE(beta=0.1),
        limits=[(DiffusionVAE(beta=3.0, iteration_threshold=1, c_max=0.0), DiffusionVAE(beta=3.0))],
    ),
    "poincare_vae": MethodFacts(
        PoincareVAE(beta=0.1),
        limits=[
            (PoincareVAE(beta=3.0, curvature=0.0), BetaVAE(beta=3.0)),
            (PoincareVAE(beta=3.0, curvature=0.0, first_layer="gyroplanes"), BetaVAE(beta=3.0)),
        ],
    ),
    "lsbd_vae": MethodFacts(
        LSBDVAE(beta=0.1, gamma=0.1, log_t_max=-4.0),
        cyclic=True,
        limits=[
            (LSBDVAE(circles=0, labels=0, beta=3.0), BetaVAE(beta=3.0)),
            (LSBDVAE(circles=2, labels=0, beta=3.0), TorusVAE(beta=3.0, space="flat_torus", log_t_max=-5.0)),
        ],
    ),
    "s_vae": MethodFacts(SVAE(beta=0.1), limits=[(SVAE(beta=2.0), ThreeDimensionalVAE(beta=2.0))]),
}
