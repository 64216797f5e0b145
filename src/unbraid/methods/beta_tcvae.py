"""Beta-TCVAE, a VAE with a weighted total correlation, which is estimated from each batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo, kl_weight, warmup_setting
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def weighted_log_weights(b: int, population: int, device: torch.device | None = None) -> Float[Tensor, "b b"]:
    r"""Return the log weights of minibatch-weighted sampling (Chen et al., eq. 5).

    .. math:: q(z) \approx \frac{1}{BN} \sum_j q(z|x_j)

    B is the batch size, N the number of examples in the dataset and d the number of latents. The estimate of the total
    correlation is too large by about :math:`(d - 1) \log N`. Its gradient does not depend on N.
    """
    return torch.full((b, b), -math.log(b * population), device=device)


def stratified_log_weights(b: int, population: int, device: torch.device | None = None) -> Float[Tensor, "b b"]:
    r"""Return the log weights of minibatch-stratified sampling (Chen et al., appendix C.2), with M = B - 1.

    B is the batch size and N the number of examples in the dataset. In each row, the example itself has the weight
    1 / N, one other example has the weight (N - M) / (N M), and each of the remaining M - 1 examples has the weight
    1 / M. Every row sums to 1. Published implementations put the weight 1 / N in column 0 instead of on the diagonal.
    The one of Dubois et al. (2019) also adds the log weights once per latent. Its gradients are closer to those of
    `weighted_log_weights` than to those of these weights.
    """
    m = b - 1
    if population < b:
        raise UserError(
            f"Stratified sampling needs a dataset with at least as many examples as the batch. Got {population} "
            f"examples and a batch of {b} instead. Use a smaller batch or the estimator 'weighted'."
        )
    weights = torch.full((b, b), 1 / m, device=device)
    rows = torch.arange(b, device=device)
    weights[rows, rows] = 1 / population
    weights[rows, (rows + 1) % b] = (population - m) / (population * m)
    return weights.log()


class Decomposition(NamedTuple):
    """Estimates of the three parts of the mean KL of q(z|x), in nats (Chen et al., eq. 2). Their sum is the KL.

    Attributes:
        information: The mutual information between an example and its latents, which Chen et al. call the index-code
            mutual information.
        total_correlation: The divergence of q(z) from the product of its marginals.
        dimension_wise: The divergences of the marginals of q(z) from the prior, summed over the latents.
    """

    information: Float[Tensor, ""]
    total_correlation: Float[Tensor, ""]
    dimension_wise: Float[Tensor, ""]


def decompose_kl(q: Gaussian, z: Float[Tensor, "b d"], log_weights: Float[Tensor, "b b"]) -> Decomposition:
    r"""Estimate the three parts of the KL from a batch.

    .. math:: q(z_i) \approx \sum_j w_{ij} \prod_k q(z_{ik}|x_j), \quad q(z_{ik}) \approx \sum_j w_{ij}\, q(z_{ik}|x_j)

    :math:`z_i` is a posterior sample of example i, :math:`x_j` is example j, and k is a latent. The logarithms of the
    weights w are `log_weights`.
    """
    log_q = q.log_prob(z[:, None])
    conditional = log_q.diagonal().sum(0)
    joint = (log_weights + log_q.sum(2)).logsumexp(1)
    product = (log_weights[..., None] + log_q).logsumexp(1).sum(1)
    prior = Gaussian(torch.zeros_like(z), torch.zeros_like(z)).log_prob(z).sum(1)
    return Decomposition((conditional - joint).mean(), (joint - product).mean(), (product - prior).mean())


ESTIMATORS = {"weighted": weighted_log_weights, "stratified": stratified_log_weights}


@dataclass(frozen=True)
class BetaTCVAE(Method):
    r"""A VAE with the total correlation of the latents weighted by :math:`\beta`.

    .. math:: E_q[-\log p(x|z)] + \alpha\, I_q(z; n) + \beta\, KL(q(z) \| \textstyle\prod_k q(z_k))
              + \gamma \sum_k KL(q(z_k) \| p(z_k))

    :math:`I_q(z; n)` is the mutual information between an example n and its latents. With the defaults
    :math:`\alpha = \gamma = 1`, the last three terms are :math:`KL(q(z|x) \| p(z)) + (\beta - 1)\,TC`, where TC is the
    total correlation. The KL is computed in closed form, as in arXiv:1811.12359. Weights other than 1 add multiples of
    the three terms to this KL. The added terms are estimated from each batch.

    The estimators "weighted" and "stratified" of :math:`q(z)` give different values and slightly different gradients.
    See `weighted_log_weights` and `stratified_log_weights`. If `warmup` is above 0, all three terms are multiplied by a
    factor that rises linearly from 0 to 1 over the first part of the training. The length of this part, as a fraction
    of the training steps, is `warmup`.

    Reference: Chen et al. (2018), arXiv:1802.04942, eq. 4.
    """

    beta: Hyper = setting(6.0, "weight of the total correlation", low=0)
    estimator: Literal["weighted", "stratified"] = setting("weighted", "estimator of q(z) from a batch")
    alpha: Hyper = setting(1.0, "weight of the mutual information", low=0, swept=False, optional=True)
    gamma: Hyper = setting(1.0, "weight of the dimension-wise KL", low=0, swept=False, optional=True)
    warmup: Hyper = warmup_setting()

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, q, z = elbo(net, batch, noise)
        parts = decompose_kl(q, z, ESTIMATORS[self.estimator](len(batch.x), batch.population, z.device))
        tc, w = parts.total_correlation, kl_weight(self.warmup, batch, step)
        added = (self.beta - 1) * tc + (self.alpha - 1) * parts.information + (self.gamma - 1) * parts.dimension_wise
        return rec + w * kl + w * added, {"rec": rec, "kl": kl, "tc": tc}
