"""Beta-VAE, a VAE with a weighted KL term."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo, kl_weight, warmup_setting
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


@dataclass(frozen=True)
class BetaVAE(Method):
    r"""A VAE with the KL term of the ELBO weighted by :math:`\beta`.

    .. math:: E_q[-\log p(x|z)] + \beta\, KL(q(z|x) \| p(z))

    If `warmup` is above 0, the KL term is multiplied by a factor that rises linearly from 0 to 1 over the first part of
    the training. The length of this part, as a fraction of the training steps, is `warmup`.

    Reference: Higgins et al. (2017), "beta-VAE", ICLR, eq. 4. The study arXiv:1811.12359 sweeps beta over 1, 2, 4, 6,
    8 and 16.
    """

    beta: Hyper = setting(4.0, "weight of the KL term", low=0)
    warmup: Hyper = warmup_setting()

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, _, _ = elbo(net, batch, noise)
        return rec + kl_weight(self.warmup, batch, step) * self.beta * kl, {"rec": rec, "kl": kl}
