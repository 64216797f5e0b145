"""The triplet VAE (TVAE), a VAE in which distances between posterior means follow distances between factors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import DrawnExamples, triplets
from unbraid.errors import UserError
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def triplet_loss(mean: Float[Tensor, "b d"], margin: Hyper) -> Float[Tensor, ""]:
    r"""Return :math:`E \max(\|\mu_a - \mu_p\|^2 - \|\mu_a - \mu_n\|^2 + m, 0)` over triplets.

    The rows of `mean` are the anchors a, then the near examples p, then the far examples n. m is the margin.
    """
    anchor, near, far = mean.chunk(3)
    return ((anchor - near).square().sum(1) - (anchor - far).square().sum(1) + margin).relu().mean()


@dataclass(frozen=True)
class TripletVAE(Method):
    r"""A beta-VAE with a triplet loss: of two examples, the one with nearer factors must have the nearer mean.

    .. math:: E_q[-\log p(x|z)] + \beta\, KL(q(z|x) \| p(z))
              + \gamma\, E \max(\|\mu_a - \mu_p\|^2 - \|\mu_a - \mu_n\|^2 + m, 0)

    A triplet is an anchor a, a near example p and a far example n. p and n are two other examples, named such that the
    factors of p are nearer to those of a. m is the `margin`. The distance between the factors of two examples is a sum
    of absolute differences, each divided by its maximum. For a categorical factor the difference is 0 or 1. The method
    uses only the order of these distances, not the factors themselves. The batch size is the number of examples. If it
    is not a multiple of 3, it is rounded down to the next multiple of 3.

    Deviations: the paper takes p from the class of a and n from another class. Ordering p and n by the distances
    between factors follows the library disent.
    Reference: Ishfaq et al. (2018), "TVAE: Triplet-based variational autoencoder using metric learning",
    arXiv:1802.04403, eq. 5.
    """

    gamma: Hyper = setting(1.0, "weight of the triplet loss", low=0)
    beta: Hyper = setting(1.0, "weight of the KL term", low=0)
    margin: Hyper = setting(
        1.0, "by how much the squared distance to the far example must exceed that to the near example", low=0
    )

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        name = type(self).__name__
        if batch < 3:
            raise UserError(f"The batch of {name} must hold a triplet. Got {batch} instead. Use at least 3.")
        if not data.sizes:
            raise UserError(f"{name} compares factors. {data.name} has none. Use a method without supervision.")
        if bool((data.factors_at(torch.arange(len(data), device=data.device)) < 0).any()):
            raise UserError(f"{name} needs all labels of every example. {data.name} lacks some. Choose other data.")

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        return DrawnExamples(triplets(data, noise, batch // 3).T.flatten(), drawn_groups=batch // 3)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, q, _ = elbo(net, batch, noise)
        triplet = triplet_loss(q.mean, self.margin)
        return rec + self.beta * kl + self.gamma * triplet, {"rec": rec, "kl": kl, "triplet": triplet}
