"""Beta-TCVAE, a VAE with a weighted total correlation, which is estimated from each batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def weighted_log_weights(b: int, population: int, device: torch.device | None = None) -> Float[Tensor, "b b"]:
    r"""Return the log weights of minibatch-weighted sampling (Chen et al., eq. 5).

    .. math:: q(z) \approx \frac{1}{BN} \sum_j q(z|x_j)

    B is the batch size and N the number of examples in the dataset. The estimate of the total correlation is too large
    by about :math:`(d - 1) \log N`. Its gradient does not depend on N.
    """
    return torch.full((b, b), -math.log(b * population), device=device)


def stratified_log_weights(b: int, population: int, device: torch.device | None = None) -> Float[Tensor, "b b"]:
    r"""Return the log weights of minibatch-stratified sampling (Chen et al., appendix C.2), with M = B - 1.

    B is the batch size and N the number of examples in the dataset. In each row, the example itself has the weight
    1 / N, one other example has the weight (N - M) / (N M), and each of the remaining M - 1 examples has the weight
    1 / M. Every row sums to 1. Published implementations put the weight 1 / N in column 0 instead of on the diagonal.
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


def total_correlation(q: Gaussian, z: Float[Tensor, "b d"], log_weights: Float[Tensor, "b b"]) -> Float[Tensor, ""]:
    r"""Estimate :math:`KL(q(z) \| \prod_k q(z_k))` from a batch.

    .. math:: \frac{1}{B} \sum_i \Big[ \log \sum_j w_{ij} \prod_k q(z_{ik}|x_j)
              - \sum_k \log \sum_j w_{ij} q(z_{ik}|x_j) \Big]
    """
    log_q = q.log_prob(z[:, None])
    joint = (log_weights + log_q.sum(2)).logsumexp(1)
    product = (log_weights[..., None] + log_q).logsumexp(1).sum(1)
    return (joint - product).mean()


ESTIMATORS = {"weighted": weighted_log_weights, "stratified": stratified_log_weights}


@dataclass(frozen=True)
class BetaTCVAE(Method):
    r"""A VAE with the total correlation of the latents weighted by :math:`\beta`.

    .. math:: E_q[-\log p(x|z)] + KL(q(z|x) \| p(z)) + (\beta - 1)\, KL(q(z) \| \textstyle\prod_k q(z_k))

    The estimators "weighted" and "stratified" of :math:`q(z)` give different values and slightly different gradients.
    See `weighted_log_weights` and `stratified_log_weights`.

    Reference: Chen et al. (2018), arXiv:1802.04942, eq. 4 with alpha = gamma = 1. As in arXiv:1811.12359, the KL is
    computed in closed form.
    """

    beta: Hyper = setting(6.0, "weight of the total correlation", low=0)
    estimator: Literal["weighted", "stratified"] = setting("weighted", "estimator of q(z) from a batch")

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, q, z = elbo(net, batch, noise)
        log_weights = ESTIMATORS[self.estimator](len(batch.x), batch.population, z.device)
        tc = total_correlation(q, z, log_weights)
        return rec + kl + (self.beta - 1) * tc, {"rec": rec, "kl": kl, "tc": tc}
