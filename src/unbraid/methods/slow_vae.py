"""The VAE of pairs whose latents seldom change much: a Laplace prior on their differences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import PAIRS, Drawn
from unbraid.distributions import LOG_2PI, Gaussian
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.pairs import check_pairs, members
from unbraid.methods.vae import elbo
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

SPREAD = 1e-6  # added to the variance, so that the cross-entropy has a gradient where the posterior has no width


def entropy(q: Gaussian) -> Float[Tensor, "n d"]:
    r""":math:`H(q) = (\log 2 \pi e \sigma^2) / 2`, in nats, per dimension."""
    return 0.5 * (q.logvar + LOG_2PI + 1)


def laplace_cross_entropy(q: Gaussian, centre: Float[Tensor, "n d"], rate: Hyper) -> Float[Tensor, "n d"]:
    r""":math:`E_q[-\log \text{Laplace}(z; c, 1/\lambda)]`, in nats, per dimension.

    .. math:: -\log\frac{\lambda}{2} + \lambda \Big[ \sigma \sqrt{\tfrac{2}{\pi}}\, e^{-m^2 / 2\sigma^2}
              + m \,\text{erf}\Big(\frac{m}{\sigma\sqrt2}\Big) \Big], \quad m = \mu - c

    The bracket is the mean of the folded normal, :math:`E|z - c|`. The variance is that of q plus 1e-6.
    """
    m, var = q.mean - centre, q.logvar.exp() + SPREAD
    sigma = var.sqrt()
    distance = sigma * math.sqrt(2 / math.pi) * (-(m**2) / (2 * var)).exp() + m * torch.erf(m / (sigma * math.sqrt(2)))
    return rate * distance - (0.5 * rate * torch.ones_like(m)).log()


def transition_gap(q: Gaussian, rate: Hyper) -> Float[Tensor, ""]:
    """Cross-entropies to the partner's mean, both ways added, averaged over pairs, less the mean entropy of one q."""
    q1, q2 = members(q)
    there, back = laplace_cross_entropy(q1, q2.mean, rate), laplace_cross_entropy(q2, q1.mean, rate)
    return (there + back).sum(1).mean() - entropy(q).sum(1).mean()


@dataclass(frozen=True)
class SlowVAE(Method):
    r"""The VAE of pairs with a sparse prior on how the latents move within a pair.

    .. math:: 2 E_q[-\log p(x|z)] + \beta\, KL(q(z|x) \| N(0, 1))
              + \gamma\, [CE(q_1, L(\mu_2, 1/\lambda)) + CE(q_2, L(\mu_1, 1/\lambda)) - H(q)]

    :math:`q_1` and :math:`q_2` are the posteriors of the two images of a pair, CE is the cross-entropy, in closed form
    (`laplace_cross_entropy`), to a Laplace prior of rate :math:`\lambda` = `rate` around the partner's mean, and H the
    entropy. Reconstruction, KL and H are means over all images, the cross-entropies means over pairs: twice the
    reconstruction is that of a pair, and the KL stands for that of its first image. The batch counts images: half as
    many pairs. `pairs` consecutive takes each row of the data and the next one, and needs no grid of factors.
    With :math:`\gamma = 0` this is twice the loss of a beta-VAE of :math:`\beta / 2`.
    Deviations, all as in the authors' implementation: the prior stands around the partner's mean instead of a sample
    of its posterior, whose variance is thus left out; the bound has one cross-entropy, from the first image to the
    second, where here both ways are added but the entropy is subtracted once; 1e-6 is added to the variance inside the
    cross-entropy, as later versions of that implementation do.
    Reference: Klindt et al. (2021), arXiv:2007.10930, the SlowVAE objective; gamma 10 and lambda 6 are its choice
    by UDR.
    """

    beta: Hyper = setting(1.0, "weight of the KL term of single images", low=0)
    gamma: Hyper = setting(10.0, "weight of the prior on transitions", low=0, swept=True)
    rate: Hyper = setting(6.0, "rate lambda of the Laplace prior on transitions; larger is sparser", low=1e-6)
    pairs: Literal["uniform", "laplace", "walk", "consecutive"] = setting(
        "laplace", "how pairs are drawn: uniform, laplace, walk, or consecutive (a row of the data and the one before)"
    )

    def draw(self, data: FactorData, noise: Noise, batch: int) -> Drawn:
        return Drawn.of(PAIRS[self.pairs](data, noise, batch // 2))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        check_pairs(self, data, batch, series=self.pairs == "consecutive")

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, q, _ = elbo(net, batch, noise)
        transition = transition_gap(q, self.rate)
        loss = 2 * rec + self.beta * kl + self.gamma * transition
        return loss, {"rec": rec, "kl": kl, "transition": transition}
