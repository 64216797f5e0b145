"""The variational autoencoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def elbo(net: VAENet, batch: Batch, noise: Noise) -> tuple[Tensor, Tensor, Gaussian, Tensor]:
    """Compute the two terms of the negative evidence lower bound.

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


def warmup_setting(default: float = 0.0, optional: bool = True) -> Any:
    """Return the dataclass field for the length of the KL warm-up.

    Args:
        default: The default length, as a fraction of the training steps.
        optional: Whether the field is left out of specs when it has its default.
    """
    text = "fraction of the training steps over which a factor on the KL term rises from 0 to 1"
    return setting(default, text, low=0, swept=False, optional=optional)


def kl_weight(warmup: Hyper, batch: Batch, step: Tensor) -> Tensor:
    r"""Return the weight w of the KL term at a step. It rises linearly from 0 to 1 during the warm-up.

    .. math:: w = \min\Big(\frac{\text{step}}{\text{warmup} \cdot \text{steps}}, 1\Big)

    Reference: Sonderby et al. (2016), arXiv:1602.02282; Detlefsen & Hauberg (2019), arXiv:1906.11881, section 2 of its
    supplement, where the warm-up is half of the training.

    Args:
        warmup: Length of the warm-up as a fraction of the training steps. With 0, the weight is always 1.
        batch: The examples of the step. Its attribute `steps` is the number of training steps.
        step: The index of the step, which starts at 0.

    Returns:
        The weight, a scalar.

    >>> batch = Batch(torch.zeros(1, 1), population=1, steps=100)
    >>> [float(kl_weight(0.5, batch, torch.tensor(float(step)))) for step in (0, 25, 50, 99)]
    [0.0, 0.5, 1.0, 1.0]
    """
    rising = warmup * batch.steps * torch.ones_like(step)
    return torch.where(step < rising, step / rising.clamp(min=1), 1.0)


@dataclass(frozen=True)
class VAE(Method):
    r"""A variational autoencoder, which minimises the negative evidence lower bound (ELBO).

    .. math:: E_q[-\log p(x|z)] + KL(q(z|x) \| p(z))

    If `warmup` is above 0, the KL term is multiplied by a weight that rises linearly from 0 to 1 over the first part of
    the training. The length of this part, as a fraction of the training steps, is `warmup`.

    Reference: Kingma & Welling (2014), arXiv:1312.6114, eq. 3.
    """

    warmup: Hyper = warmup_setting()

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, _, _ = elbo(net, batch, noise)
        return rec + kl_weight(self.warmup, batch, step) * kl, {"rec": rec, "kl": kl}
