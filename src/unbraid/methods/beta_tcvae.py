"""The VAE with a weighted total correlation, estimated inside the batch."""

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


def weighted(b: int, population: int, device: torch.device | None = None) -> Float[Tensor, "b b"]:
    r"""Log weights of minibatch-weighted sampling (Chen et al., eq. 5): :math:`q(z) \approx \sum_j q(z|x_j) / BN`.

    Its value is biased upwards by about :math:`(d - 1) \log N`; its gradient does not depend on N.
    """
    return torch.full((b, b), -math.log(b * population), device=device)


def stratified(b: int, population: int, device: torch.device | None = None) -> Float[Tensor, "b b"]:
    r"""Log weights of minibatch-stratified sampling (Chen et al., appendix C.2), M = B - 1.

    The example itself stands for 1 of N, one other of the batch for (N - M) / (N M), the remaining M - 1 for 1 / M;
    every row sums to one. Published implementations put 1 / N in column 0 instead of on the diagonal.
    """
    m = b - 1
    if population < b:
        raise UserError(
            f"Stratified sampling needs a population of at least the batch. Got {population} and {b} instead."
        )
    weights = torch.full((b, b), 1 / m, device=device)
    rows = torch.arange(b, device=device)
    weights[rows, rows] = 1 / population
    weights[rows, (rows + 1) % b] = (population - m) / (population * m)
    return weights.log()


def total_correlation(q: Gaussian, z: Float[Tensor, "b d"], log_weights: Float[Tensor, "b b"]) -> Float[Tensor, ""]:
    r"""A batch estimate of :math:`KL(q(z) \| \prod_k q(z_k))`.

    .. math:: \frac{1}{B} \sum_i \Big[ \log \sum_j w_{ij} \prod_k q(z_{ik}|x_j)
              - \sum_k \log \sum_j w_{ij} q(z_{ik}|x_j) \Big]
    """
    log_q = q.log_prob(z[:, None])
    joint = (log_weights + log_q.sum(2)).logsumexp(1)
    product = (log_weights[..., None] + log_q).logsumexp(1).sum(1)
    return (joint - product).mean()


ESTIMATORS = {"weighted": weighted, "stratified": stratified}


@dataclass(frozen=True)
class BetaTCVAE(Method):
    r"""The ELBO with its total-correlation part weighted by :math:`\beta`.

    .. math:: E_q[-\log p(x|z)] + KL(q(z|x) \| p(z)) + (\beta - 1)\, KL(q(z) \| \textstyle\prod_k q(z_k))

    Reference: Chen et al. (2018), arXiv:1802.04942, eq. 4 with alpha = gamma = 1 and the KL in closed form, as in
    arXiv:1811.12359. The two estimators differ in value and slightly in gradient; see `weighted` and `stratified`.
    """

    beta: Hyper = setting(6.0, "weight of the total correlation", low=0)
    estimator: Literal["weighted", "stratified"] = setting("weighted", "how q(z) is estimated from a batch")

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, q, z = elbo(net, batch, noise)
        log_weights = ESTIMATORS[self.estimator](len(batch.x), batch.population, z.device)
        tc = total_correlation(q, z, log_weights)
        return rec + kl + (self.beta - 1) * tc, {"rec": rec, "kl": kl, "tc": tc}
