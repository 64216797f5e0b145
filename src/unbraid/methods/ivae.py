"""iVAE, a VAE whose prior depends on a known factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import DrawnExamples
from unbraid.distributions import Gaussian
from unbraid.methods.auxiliary import check_auxiliary, draw_with_labels
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


class ConditionalPrior(nn.Module):
    """A normal prior of each latent for each value of the auxiliary variable, initialised as a standard normal."""

    def __init__(self, values: int, latents: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(values, latents))
        self.logvar = nn.Parameter(torch.zeros(values, latents))

    def forward(self, u: Int[Tensor, " b"]) -> Gaussian:
        rows = u[:, None].expand(-1, self.mean.shape[1])
        return Gaussian(self.mean.gather(0, rows), self.logvar.gather(0, rows))


def kl_between(q: Gaussian, p: Gaussian) -> Float[Tensor, "b d"]:
    r"""Return the KL divergence of normals q from normals p for each dimension, in nats.

    .. math:: KL(q \| p) = \tfrac12 \Big[\frac{\sigma_q^2 + (\mu_q - \mu_p)^2}{\sigma_p^2} - 1
              - \log \frac{\sigma_q^2}{\sigma_p^2}\Big]
    """
    ratio = q.logvar - p.logvar
    return 0.5 * (ratio.exp() + (q.mean - p.mean).square() * (-p.logvar).exp() - 1 - ratio)


@dataclass(frozen=True)
class IVAE(Method):
    r"""A VAE whose prior depends on an auxiliary variable u, a factor whose value is known in training.

    .. math:: E_q[-\log p(x|z)] + \beta\, KL(q(z|x) \| p(z|u)), \quad p(z|u) = \prod_j N(m_j(u), v_j(u))

    The mean and the variance of each latent are learned for each value of u. The latents are independent only given u.
    If their distributions vary enough with u, they are identified up to simple transformations, in contrast to the
    latents of a VAE (theorem 4 of the paper). The method uses the labels of a single factor, whose index is `factor`.
    For time series, u can be the index of a segment.

    Deviations: in the paper the posterior depends on x and u. Here it depends on x only, so that examples without
    labels can be encoded. The parameters of the prior form a table with `values` rows. The paper uses a network,
    whose outputs for discrete u form such a table.
    Reference: Khemakhem et al. (2020), "Variational autoencoders and nonlinear ICA", arXiv:1907.04809, eq. 8.
    """

    kl_terms: ClassVar[tuple[str, ...]] = ()  # the prior depends on the label of the example
    conditional_prior: ClassVar[bool] = True

    beta: Hyper = setting(1.0, "weight of the KL term", low=0)
    factor: int = setting(0, "index of the factor that is the auxiliary variable u, counted from 0", low=0)
    values: int = setting(100, "maximum number of values of u", low=1)

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        check_auxiliary("IVAE", data, self.factor, self.values, "a prior")

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        return draw_with_labels(self, data, noise, batch)

    def labels_at(self, data: FactorData, examples: Int[Tensor, " n"]) -> Tensor:
        return data.factors_at(examples)[:, self.factor]

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.prior = ConditionalPrior(self.values, latents)
        return net

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q, prior = net.encode(batch.x), cast(ConditionalPrior, net.prior)
        rec = net.nll(batch.x, q.sample(noise)).mean()
        kl = kl_between(q, prior(cast(Tensor, batch.labels))).sum(1).mean()
        return rec + self.beta * kl, {"rec": rec, "kl": kl}
