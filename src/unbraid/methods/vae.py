"""The variational autoencoder."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.methods.method import Batch, Loss, Method
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def elbo(net: VAENet, batch: Batch, noise: Noise) -> tuple[Tensor, Tensor, Gaussian, Tensor]:
    """Reconstruction and KL (summed over pixels and latents, averaged over the batch), q(z|x) and a sample of it."""
    q = net.encode(batch.x)
    z = q.sample(noise)
    return net.nll(batch.x, z).mean(), q.kl().sum(1).mean(), q, z


@dataclass(frozen=True)
class VAE(Method):
    r"""The evidence lower bound, nothing added.

    .. math:: E_q[-\log p(x|z)] + KL(q(z|x) \| p(z))

    Reference: Kingma & Welling (2014), arXiv:1312.6114, eq. 3.
    """

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, _, _ = elbo(net, batch, noise)
        return rec + kl, {"rec": rec, "kl": kl}
