"""SlowVAE, a VAE for pairs with a Laplace prior on the change of the latents within a pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import PAIRS, DrawnExamples
from unbraid.distributions import LOG_2PI, Gaussian
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.pairs import check_pairs, split_pairs
from unbraid.methods.vae import elbo
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

VARIANCE_OFFSET = 1e-6  # added to variances, because the gradient of the cross-entropy is infinite at variance 0


def entropy(q: Gaussian) -> Float[Tensor, "n d"]:
    r"""Return the entropy :math:`H(q) = (\log 2 \pi e \sigma^2) / 2` of each latent, in nats."""
    return 0.5 * (q.logvar + LOG_2PI + 1)


def laplace_cross_entropy(q: Gaussian, centre: Float[Tensor, "n d"], rate: Hyper) -> Float[Tensor, "n d"]:
    r"""Return :math:`E_q[-\log \text{Laplace}(z; c, 1/\lambda)]` of each latent, in nats.

    .. math:: -\log\frac{\lambda}{2} + \lambda \Big[ \sigma \sqrt{\tfrac{2}{\pi}}\, e^{-m^2 / 2\sigma^2}
              + m \,\text{erf}\Big(\frac{m}{\sigma\sqrt2}\Big) \Big], \quad m = \mu - c

    c is `centre`, :math:`\lambda` is `rate`, and :math:`\mu` is the mean of q. :math:`\sigma^2` is the variance of q
    plus 1e-6. The term in brackets is the mean of the folded normal, :math:`E|z - c|`.
    """
    m, var = q.mean - centre, q.logvar.exp() + VARIANCE_OFFSET
    sigma = var.sqrt()
    distance = sigma * math.sqrt(2 / math.pi) * (-(m**2) / (2 * var)).exp() + m * torch.erf(m / (sigma * math.sqrt(2)))
    return rate * distance - (0.5 * rate * torch.ones_like(m)).log()


def transition_loss(q: Gaussian, rate: Hyper) -> Float[Tensor, ""]:
    """Return the transition term of SlowVAE in nats: the cross-entropies with the Laplace prior minus the entropy.

    For each example of a pair, the prior is centred at the posterior mean of the other example. The two cross-entropies
    are added, and the sum is averaged over pairs. The entropy is averaged over all examples.
    """
    q1, q2 = split_pairs(q)
    forward, backward = laplace_cross_entropy(q1, q2.mean, rate), laplace_cross_entropy(q2, q1.mean, rate)
    return (forward + backward).sum(1).mean() - entropy(q).sum(1).mean()


@dataclass(frozen=True)
class SlowVAE(Method):
    r"""A VAE for pairs with a sparse prior on the change of the latents within a pair.

    .. math:: 2 E_q[-\log p(x|z)] + \beta\, KL(q(z|x) \| N(0, 1))
              + \gamma\, [CE(q_1, L(\mu_2, 1/\lambda)) + CE(q_2, L(\mu_1, 1/\lambda)) - H(q)]

    :math:`q_1` and :math:`q_2` are the posteriors of the two images of a pair. CE is the cross-entropy with the Laplace
    prior L of rate :math:`\lambda` = `rate`, centred at the partner's posterior mean. It has a closed form
    (`laplace_cross_entropy`). H is the entropy. The reconstruction error, the KL and H are means over all images, and
    the cross-entropies are means over pairs. With its weight of 2, the first term is therefore the reconstruction error
    of a pair, whereas the KL term is that of a single image.

    The batch size is the number of images, which is twice the number of pairs. With `pairs` set to "consecutive", a
    pair consists of a row of the data and the previous row, and no grid of factors is needed. On `kitti_masks` and
    `natural_sprites`, it consists of two frames of a video. With :math:`\gamma = 0`
    the loss is twice that of a beta-VAE with :math:`\beta / 2`.

    Deviations, all as in the authors' code: the prior is centred at the mean of the partner's posterior instead of a
    sample, so the variance of that posterior has no influence. The bound of the paper has one cross-entropy, from the
    first image to the second. Here the cross-entropies of both directions are added, but the entropy is subtracted
    once. 1e-6 is added to the variance inside the cross-entropy, as in later versions of the authors' code. In contrast
    to the authors' code, "laplace" pairs without a change are drawn again. Their code changes one random factor of such
    a pair.
    Reference: Klindt et al. (2021), arXiv:2007.10930, the SlowVAE objective. The paper selects gamma = 10 and
    lambda = 6 by UDR.
    """

    beta: Hyper = setting(1.0, "weight of the KL term of single images", low=0)
    gamma: Hyper = setting(10.0, "weight of the Laplace prior on transitions", low=0, swept=True)
    rate: Hyper = setting(6.0, "rate lambda of the Laplace prior on transitions; larger values are sparser", low=1e-6)
    pairs: Literal["uniform", "laplace", "walk", "consecutive"] = setting(
        "laplace",
        "distribution of pairs: several factors are redrawn (uniform), factors change by small amounts (laplace), one "
        "factor changes by one step (walk), or the examples follow each other in time (consecutive)",
    )

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        return DrawnExamples.from_pairs(PAIRS[self.pairs](data, noise, batch // 2))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        check_pairs(self, data, batch, series=self.pairs == "consecutive")

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, q, _ = elbo(net, batch, noise)
        transition = transition_loss(q, self.rate)
        loss = 2 * rec + self.beta * kl + self.gamma * transition
        return loss, {"rec": rec, "kl": kl, "transition": transition}
