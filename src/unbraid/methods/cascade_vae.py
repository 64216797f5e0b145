"""CascadeVAE-C, a VAE that reduces the weights of the KL terms of its latents one after another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.stages import begun_stages, stages_setting
from unbraid.methods.vae import elbo
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


@dataclass(frozen=True)
class CascadeVAEC(Method):
    r"""A VAE that begins to use its latents one after another, because the weights of their KL terms fall in order.

    .. math:: E_q[-\log p(x|z)] + \sum_{i=1}^d \beta_i(t)\, KL(q(z_i|x) \| p(z_i)), \quad
              \beta_i(t) = \beta_l \text{ if } t \ge \tfrac{i - 1}{d - 1} T, \text{ else } \beta_h

    t is the step, d is the number of latents, and T is `iteration_threshold`. The weight of the first latent is the low
    weight :math:`\beta_l` (`beta_low`) from the start. The weight of each further latent falls from the high weight
    :math:`\beta_h` (`beta_high`) to :math:`\beta_l` after another T / (d - 1) steps. A latent with the high weight
    encodes little, so a new latent is meant to encode what the previous latents do not encode yet. In the paper, this
    penalises the total correlation of the latents without an estimate of it. From step T on, the loss is that of a
    beta-VAE with the weight :math:`\beta_l`. With d = 1 it is this loss from the start.

    Deviations: this is CascadeVAE-C, the part of CascadeVAE for continuous latents. The discrete latents of CascadeVAE,
    which are inferred by minimum cost flow, are not implemented. The length of a stage is given by T, so it depends on
    the number of latents. The default of T is 20,000 steps for each of the 9 stages before the last one, which is the
    setting of the authors' code for 10 latents. The authors' code uses a new Adam optimiser in each stage, whose
    moments start at 0, adds an L2 penalty of weight 0.00004 on the weights of the networks, and keeps the checkpoint
    with the best FactorVAE score. Here the moments are kept, there is no L2 penalty, and the last step is used, because
    choosing a checkpoint by a score needs labels.
    Reference: Jeong & Song (2019), "Learning discrete and continuous factors of data via alternating disentanglement",
    arXiv:1905.09432. Weights and stages are those of the authors' code, github.com/snu-mllab/DisentanglementICML19,
    Dsprites_exp/CascadeVAE-C.
    """

    beta_high: Hyper = setting(10.0, "weight of the KL of a latent before its stage", low=0, swept=True)
    beta_low: Hyper = setting(0.1, "weight of the KL of a latent from its stage on", low=0)
    iteration_threshold: Hyper = stages_setting(180_000.0, "latent")

    def schedule_end(self, steps: int) -> float:
        return float(self.iteration_threshold)

    def weights(self, latents: int, step: Tensor) -> Float[Tensor, " d"]:
        """Return the weight of the KL of each latent at a step."""
        begun = begun_stages(latents, step, self.iteration_threshold)
        return torch.where(begun, self.beta_low, self.beta_high)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, q, _ = elbo(net, batch, noise)
        weights = self.weights(q.mean.shape[1], step)
        penalty = (weights * q.kl().mean(0)).sum()
        return rec + penalty, {"rec": rec, "kl": kl, "beta_mean": weights.mean()}
