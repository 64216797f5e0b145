"""DIP-VAE-I and DIP-VAE-II, VAEs that push a covariance of the latents towards the identity."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo, kl_weight, warmup_setting
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def covariance_of_means(q: Gaussian) -> Float[Tensor, "d d"]:
    r"""Return the covariance :math:`Cov_{p(x)}[\mu(x)]` over the batch, with the batch size as the divisor."""
    centred = q.mean - q.mean.mean(0)
    return centred.T @ centred / len(centred)


def covariance_of_samples(q: Gaussian) -> Float[Tensor, "d d"]:
    r"""Return the covariance :math:`Cov_{q(z)}[z] = E[diag(\sigma^2(x))] + Cov[\mu(x)]` over the batch."""
    return covariance_of_means(q) + q.logvar.exp().mean(0).diag()


def identity_penalty(cov: Float[Tensor, "d d"], lambda_od: Hyper, lambda_d: Hyper) -> Tensor:
    r"""Return :math:`\lambda_{od} \sum_{i \ne j} C_{ij}^2 + \lambda_d \sum_i (C_{ii} - 1)^2` for the covariance C."""
    diagonal = cov.diagonal()
    off = (cov**2).sum() - (diagonal**2).sum()
    return lambda_od * off + lambda_d * ((diagonal - 1) ** 2).sum()


@dataclass(frozen=True)
class DIPVAEI(Method):
    r"""A VAE with a penalty that pushes the covariance of the posterior means towards the identity.

    .. math:: E_q[-\log p(x|z)] + KL(q(z|x) \| p(z))
              + \lambda_{od} \sum_{i \ne j} C_{ij}^2 + \lambda_d \sum_i (C_{ii} - 1)^2

    with :math:`C = Cov[\mu(x)]` and :math:`\lambda_d` = `lambda_d_factor` :math:`\lambda_{od}`.

    If `warmup` is above 0, the KL term is multiplied by a factor that rises linearly from 0 to 1 over the first part of
    the training. The length of this part, as a fraction of the training steps, is `warmup`. The weight of the penalty
    is constant.

    Reference: Kumar et al. (2018), arXiv:1711.00848, eq. 6. The default of `lambda_d_factor` is that of
    arXiv:1811.12359.
    """

    lambda_od: Hyper = setting(10.0, "weight of the off-diagonal covariances", low=0)
    lambda_d_factor: Hyper = setting(10.0, "weight of the diagonal, as a multiple of lambda_od", low=0)
    warmup: Hyper = warmup_setting()

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, q, _ = elbo(net, batch, noise)
        dip = identity_penalty(covariance_of_means(q), self.lambda_od, self.lambda_od * self.lambda_d_factor)
        return rec + kl_weight(self.warmup, batch, step) * kl + dip, {"rec": rec, "kl": kl, "dip": dip}


@dataclass(frozen=True)
class DIPVAEII(Method):
    r"""A VAE with a penalty that pushes the covariance of the posterior samples towards the identity.

    .. math:: E_q[-\log p(x|z)] + KL(q(z|x) \| p(z))
              + \lambda_{od} \sum_{i \ne j} C_{ij}^2 + \lambda_d \sum_i (C_{ii} - 1)^2

    with :math:`C = E[diag(\sigma^2(x))] + Cov[\mu(x)]` and :math:`\lambda_d` = `lambda_d_factor` :math:`\lambda_{od}`.

    If `warmup` is above 0, the KL term is multiplied by a factor that rises linearly from 0 to 1 over the first part of
    the training. The length of this part, as a fraction of the training steps, is `warmup`. The weight of the penalty
    is constant.

    Reference: Kumar et al. (2018), arXiv:1711.00848, eq. 7. The default of `lambda_d_factor` is that of
    arXiv:1811.12359.
    """

    lambda_od: Hyper = setting(10.0, "weight of the off-diagonal covariances", low=0)
    lambda_d_factor: Hyper = setting(1.0, "weight of the diagonal, as a multiple of lambda_od", low=0)
    warmup: Hyper = warmup_setting()

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, q, _ = elbo(net, batch, noise)
        dip = identity_penalty(covariance_of_samples(q), self.lambda_od, self.lambda_od * self.lambda_d_factor)
        return rec + kl_weight(self.warmup, batch, step) * kl + dip, {"rec": rec, "kl": kl, "dip": dip}
