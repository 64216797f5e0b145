"""Ada-GVAE and Ada-ML-VAE, VAEs for pairs that average the posteriors of the latents that appear unchanged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.sampling import PAIRS, DrawnExamples
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.pairs import check_pairs, split_pairs
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

ROUNDING = 1e-6  # upper limit of the error of `doubled_kl` by rounding, for equal posteriors in float32


def doubled_kl(q1: Gaussian, q2: Gaussian) -> Float[Tensor, "n d"]:
    r"""Return twice the KL divergence of the first example's posterior from its partner's posterior, for each latent.

    .. math:: \delta = 2\,KL(q_1 \| q_2) = \frac{\sigma_1^2 + (\mu_2 - \mu_1)^2}{\sigma_2^2} - 1
              + \log\sigma_2^2 - \log\sigma_1^2

    The factor 2 changes neither the order of the latents nor the result of `mark_above_midpoint`.
    """
    ratio = q1.logvar - q2.logvar
    return ratio.exp() + (q2.mean - q1.mean) ** 2 * (-q2.logvar).exp() - 1 - ratio


def mark_above_midpoint(delta: Float[Tensor, "n d"]) -> Bool[Tensor, "n d"]:
    r"""Return a mask of the latents whose :math:`\delta` is in the upper half of its range over the latents of a pair.

    .. math:: \delta_j \ge (\min_i \delta_i + \max_i \delta_i) / 2

    At least one latent of each pair is marked. If all :math:`\delta` of a pair are equal, all latents are marked.
    """
    low, high = delta.amin(1, keepdim=True), delta.amax(1, keepdim=True)
    return delta >= 0.5 * (low + high)


def mark_largest(delta: Float[Tensor, "n d"], count: Int[Tensor, " n"]) -> Bool[Tensor, "n d"]:
    """Return a mask of the latents of each pair with the largest delta. Their number is `count`.

    Latents of a pair whose delta differs by less than rounding are marked together, so more than `count` latents can be
    marked. Otherwise rounding would choose the latents of a pair of equal images.
    """
    more = (delta[:, None, :] - delta[:, :, None] > ROUNDING).sum(2)
    return more < count[:, None]


def changed_latents(changed: Bool[Tensor, "n k"], latents: int) -> Bool[Tensor, "n d"]:
    """Return a mask of the latents whose factor changed. Latent i belongs to factor i. Surplus latents are unmarked."""
    n, k = changed.shape
    return torch.cat([changed, changed.new_zeros(n, latents - k)], 1)


def arithmetic_mean(q1: Gaussian, q2: Gaussian) -> Gaussian:
    """Return the normal with the average mean and the average variance (Hosoya 2019, arXiv:1809.02383)."""
    return Gaussian(0.5 * (q1.mean + q2.mean), torch.logaddexp(q1.logvar, q2.logvar) - math.log(2))


def precision_weighted_mean(q1: Gaussian, q2: Gaussian) -> Gaussian:
    r"""Return the normalised geometric mean of two normals.

    .. math:: \sigma^2 = 2 \sigma_1^2 \sigma_2^2 / (\sigma_1^2 + \sigma_2^2), \quad
              \mu = \tfrac12 \sigma^2 (\mu_1 / \sigma_1^2 + \mu_2 / \sigma_2^2)

    Its precision is the average of the two precisions. Its mean is the average of the two means, weighted by precision.
    """
    weight = (q2.logvar - q1.logvar).sigmoid()
    logvar = math.log(2) + q1.logvar + q2.logvar - torch.logaddexp(q1.logvar, q2.logvar)
    return Gaussian(weight * q1.mean + (1 - weight) * q2.mean, logvar)


def share_posteriors(q: Gaussian, average: Gaussian, apart: Bool[Tensor, "n d"]) -> Gaussian:
    """Replace the posteriors of both examples of a pair by their average, except in the latents of the mask `apart`."""
    both = torch.cat([apart, apart])
    return Gaussian(
        torch.where(both, q.mean, torch.cat([average.mean, average.mean])),
        torch.where(both, q.logvar, torch.cat([average.logvar, average.logvar])),
    )


@dataclass(frozen=True)
class AdaGVAE(Method):
    r"""A beta-VAE for pairs that averages the two posteriors of a pair in the latents that appear unchanged.

    .. math:: \tfrac12 \textstyle\sum_{m=1,2} \big( E_{\tilde q_m}[-\log p(x_m|z)]
              + \beta\, KL(\tilde q_m \| p(z)) \big)

    .. math:: \tilde q_m(z_j) = q(z_j|x_m) \text{ if } \delta_j \ge \tau \text{ else } N(\tfrac12(\mu_{1j} + \mu_{2j}),
              \tfrac12(\sigma_{1j}^2 + \sigma_{2j}^2)), \quad \tau = \tfrac12(\min_j \delta_j + \max_j \delta_j)

    with :math:`\delta_j = 2\,KL(q(z_j|x_1) \| q(z_j|x_2))`. No gradient flows through the choice of latents to
    average. The batch size is the number of images, which is twice the number of pairs. Metrics use the posterior means
    of single images.

    The field `apart` selects the latents that are not averaged. The default, "threshold", is the rule above. With
    "count", the method is given the number of changed factors of each pair, and does not average the latents with the
    largest :math:`\delta`, one for each changed factor. With "factors", the method is given the changed factors, and
    does not average latent i if factor i changed. "count" and "factors" use supervision that the images do not contain.

    Deviations: the paper defines :math:`\delta` as the KL, and the reference implementation as twice the KL. The result
    is the same. Both use the KL in one direction only, of the first image's posterior from its partner's posterior, so
    the order of a pair can matter. The reference implementation has no counterpart of "count". In its counterpart of
    "factors", the method is given only one of the changed factors, and only the latent of that factor is not averaged.
    Reference: Locatello et al. (2020), arXiv:2002.02886, section 4.
    """

    beta: Hyper = setting(1.0, "weight of the KL term", low=0)
    pairs: Literal["pairs", "uniform", "laplace"] = setting(
        "pairs",
        "distribution of pairs: few factors are redrawn (pairs), several factors are redrawn (uniform), or factors "
        "change by small amounts (laplace)",
    )
    k: int = setting(
        0,
        "with pairs=pairs, number of factors that are redrawn in about half of the pairs, while one is redrawn in the "
        "others; 0 draws the number for each pair",
        low=0,
    )
    apart: Literal["threshold", "count", "factors"] = setting(
        "threshold",
        "how to choose the latents that are not averaged: by a threshold on the KL, by the true number of changed "
        "factors (count), or by the true changed factors (factors)",
    )

    def draw(self, data: FactorData, noise: Noise, batch: int) -> DrawnExamples:
        options = {"k": self.k} if self.k else {}
        return DrawnExamples.from_pairs(PAIRS[self.pairs](data, noise, batch // 2, **options))

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        if self.k and self.pairs != "pairs":
            raise UserError(
                f"The number k of changed factors must be 0 with pairs={self.pairs}, because these pairs do not use k. "
                f"Got {self.k} instead."
            )
        if self.apart == "factors" and latents < len(data.sizes):
            raise UserError(
                f"With apart=factors, each of the {len(data.sizes)} factors of {data.name} needs a latent. "
                f"Got {latents} latents instead. Use at least {len(data.sizes)}."
            )
        check_pairs(self, data, batch)

    def average(self, q1: Gaussian, q2: Gaussian) -> Gaussian:
        """Return the posterior that both examples of a pair use in the latents that appear unchanged."""
        return arithmetic_mean(q1, q2)

    def unshared_latents(self, q1: Gaussian, q2: Gaussian, changed: Tensor | None) -> Bool[Tensor, "n d"]:
        """Return a mask of the latents in which both examples of a pair keep their own posteriors."""
        if self.apart == "threshold":
            return mark_above_midpoint(doubled_kl(q1, q2))
        changed_factors = cast(Tensor, changed)
        if self.apart == "count":
            return mark_largest(doubled_kl(q1, q2), changed_factors.sum(1))
        return changed_latents(changed_factors, q1.mean.shape[1])

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q = net.encode(batch.x)
        q1, q2 = split_pairs(q)
        q = share_posteriors(q, self.average(q1, q2), self.unshared_latents(q1, q2, batch.changed))
        rec, kl = net.nll(batch.x, q.sample(noise)).mean(), q.kl().sum(1).mean()
        return rec + self.beta * kl, {"rec": rec, "kl": kl}


@dataclass(frozen=True)
class AdaMLVAE(AdaGVAE):
    r"""A variant of Ada-GVAE that averages the precisions of the two posteriors instead of their variances.

    .. math:: \tilde q_m(z_j) = q(z_j|x_m) \text{ if } \delta_j \ge \tau \text{ else }
              N\Big(\frac{\sigma_j^2}{2}\Big(\frac{\mu_{1j}}{\sigma_{1j}^2} + \frac{\mu_{2j}}{\sigma_{2j}^2}\Big),
              \sigma_j^2\Big), \quad \sigma_j^2 = \frac{2 \sigma_{1j}^2 \sigma_{2j}^2}{\sigma_{1j}^2 + \sigma_{2j}^2}

    Everything else is as in `AdaGVAE`.

    Deviations: ML-VAE (Bouchacourt et al. 2018, arXiv:1705.08841) multiplies the posteriors of a group, which adds
    their precisions. Here precisions are averaged, as in the reference implementation of Locatello et al. The average
    of two equal posteriors is therefore the same posterior.
    Reference: Locatello et al. (2020), arXiv:2002.02886, section 4.
    """

    def average(self, q1: Gaussian, q2: Gaussian) -> Gaussian:
        return precision_weighted_mean(q1, q2)
