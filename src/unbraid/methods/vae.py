"""The variational autoencoder."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.methods.method import Batch, Loss, Method
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def elbo(net: VAENet, batch: Batch, noise: Noise) -> tuple[Tensor, Tensor, Gaussian, Tensor]:
    """Compute the two terms of the evidence lower bound.

    Args:
        net: The network of one run.
        batch: The examples of the step.
        noise: The random numbers of the step.

    Returns:
        A tuple of four values: the reconstruction error (summed over pixels, averaged over the batch), the KL term
        (summed over latents, averaged over the batch), the posteriors q(z|x), and one sample z per posterior, of
        shape (b, d).
    """
    q = net.encode(batch.x)
    z = q.sample(noise)
    return net.nll(batch.x, z).mean(), q.kl().sum(1).mean(), q, z


@dataclass(frozen=True)
class VAE(Method):
    r"""A variational autoencoder, which maximises the evidence lower bound (ELBO).

    .. math:: E_q[-\log p(x|z)] + KL(q(z|x) \| p(z))

    Reference: Kingma & Welling (2014), arXiv:1312.6114, eq. 3.
    """

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, _, _ = elbo(net, batch, noise)
        return rec + kl, {"rec": rec, "kl": kl}
