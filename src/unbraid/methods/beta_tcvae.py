"""The VAE with a weighted total correlation that is estimated within the batch."""

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

    The estimate of the total correlation is biased upwards by about :math:`(d - 1) \log N`. Its gradient does not
    depend on N.
    """
    return torch.full((b, b), -math.log(b * population), device=device)


def stratified_log_weights(b: int, population: int, device: torch.device | None = None) -> Float[Tensor, "b b"]:
    r"""Return the log weights of minibatch-stratified sampling (Chen et al., appendix C.2), with M = B - 1.

    In each row the example itself has the weight 1 / N, one other example (N - M) / (N M), and each of the remaining
    M - 1 examples 1 / M. Every row sums to one. Published implementations put 1 / N in column 0 instead of on the
    diagonal.
    """
    m = b - 1
    if population < b:
        raise UserError(
            f"Stratified sampling needs at least as many examples as the batch has. Got {population} examples and a "
            f"batch of {b}. Use a smaller batch or the estimator 'weighted'."
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
    r"""The ELBO with its total correlation weighted by :math:`\beta`.

    .. math:: E_q[-\log p(x|z)] + KL(q(z|x) \| p(z)) + (\beta - 1)\, KL(q(z) \| \textstyle\prod_k q(z_k))

    The two estimators of :math:`q(z)` differ in value and slightly in gradient; see `weighted_log_weights` and
    `stratified_log_weights`.

    Reference: Chen et al. (2018), arXiv:1802.04942, eq. 4 with alpha = gamma = 1 and the KL in closed form, as in
    arXiv:1811.12359.
    """

    beta: Hyper = setting(6.0, "weight of the total correlation", low=0)
    estimator: Literal["weighted", "stratified"] = setting("weighted", "how q(z) is estimated from a batch")

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, q, z = elbo(net, batch, noise)
        log_weights = ESTIMATORS[self.estimator](len(batch.x), batch.population, z.device)
        tc = total_correlation(q, z, log_weights)
        return rec + kl + (self.beta - 1) * tc, {"rec": rec, "kl": kl, "tc": tc}
