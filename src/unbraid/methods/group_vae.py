"""Group-VAE and ML-VAE, VAEs for pairs whose number of changed factors is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from unbraid.distributions import Gaussian
from unbraid.methods.ada_vae import AdaGVAE
from unbraid.methods.method import setting


def product(q1: Gaussian, q2: Gaussian) -> Gaussian:
    r"""Return the normalised product of two normals. Its precision is the sum of the two precisions.

    .. math:: \sigma^{-2} = \sigma_1^{-2} + \sigma_2^{-2}, \quad
              \mu = \sigma^2 (\mu_1 / \sigma_1^2 + \mu_2 / \sigma_2^2)
    """
    logvar = -torch.logaddexp(-q1.logvar, -q2.logvar)
    return Gaussian(q1.mean * (logvar - q1.logvar).exp() + q2.mean * (logvar - q2.logvar).exp(), logvar)


@dataclass(frozen=True)
class GroupVAE(AdaGVAE):
    r"""A beta-VAE for pairs that averages the two posteriors of a pair in all but a known number of latents.

    .. math:: \tfrac12 \textstyle\sum_{m=1,2} \big( E_{\tilde q_m}[-\log p(x_m|z)]
              + \beta\, KL(\tilde q_m \| p(z)) \big)

    .. math:: \tilde q_m(z_j) = q(z_j|x_m) \text{ if } j \in S \text{ else } N(\tfrac12(\mu_{1j} + \mu_{2j}),
              \tfrac12(\sigma_{1j}^2 + \sigma_{2j}^2))

    If c factors changed in the pair, S contains the c latents with the largest KL between the two posteriors. With
    `apart` set to "factors", S contains the latents of the changed factors, where latent i belongs to factor i. Unlike
    `AdaGVAE`, which estimates S from the images, this method uses supervision that the images do not contain. The batch
    size is the number of images, which is twice the number of pairs.

    Deviations: in the paper of Hosoya, the same latents are shared in all groups, and groups may have more than two
    examples. The choice of S by the KL is that of Locatello et al. for a known number of changes.
    Reference: Hosoya (2019), arXiv:1809.02383, for the average. Locatello et al. (2020), arXiv:2002.02886, section 4.
    """

    apart: Literal["count", "factors"] = setting(
        "count",
        "what is known about a pair: the number of changed factors (count), or which factors changed (factors)",
    )


@dataclass(frozen=True)
class MLVAE(GroupVAE):
    r"""A beta-VAE for pairs that multiplies the two posteriors of a pair in all but a known number of latents.

    .. math:: \tfrac12 \textstyle\sum_{m=1,2} \big( E_{\tilde q_m}[-\log p(x_m|z)]
              + \beta\, KL(\tilde q_m \| p(z)) \big)

    .. math:: \tilde q_m(z_j) = q(z_j|x_m) \text{ if } j \in S \text{ else } N(\sigma_j^2 (\mu_{1j} / \sigma_{1j}^2
              + \mu_{2j} / \sigma_{2j}^2), \sigma_j^2), \quad \sigma_j^{-2} = \sigma_{1j}^{-2} + \sigma_{2j}^{-2}

    S is chosen as in `GroupVAE`. The precision of the product is the sum of the two precisions. `AdaMLVAE` averages
    them instead.

    Deviations: in the paper of Bouchacourt et al., the same latents are shared in all groups, and groups may have more
    than two examples. The choice of S by the KL is that of Locatello et al. for a known number of changes.
    Reference: Bouchacourt et al. (2018), arXiv:1705.08841, eq. 5, for the product. Locatello et al. (2020),
    arXiv:2002.02886, section 4.
    """

    def average(self, q1: Gaussian, q2: Gaussian) -> Gaussian:
        return product(q1, q2)
