"""Tripod, an autoencoder with quantised latents that are independent and do not interact in the decoder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.methods.derivatives import SECOND_SIZE, Decode, hessian_forms, interactions, random_signs
from unbraid.methods.fsq import FSQ
from unbraid.methods.method import Batch, Hyper, Loss, setting
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

DIRECTIONS = 2  # number of random directions of each kind (signs and normal), per example and step
SMALLEST_STD = 1e-6  # standard deviation that is used for latents that do not vary
SMALLEST_SUM = 1e-10  # added to the denominator, because all second derivatives of a linear decoder are 0


def multi_information(z: Float[Tensor, "b d"], std: Float[Tensor, " d"]) -> Float[Tensor, ""]:
    r"""Estimate the multi-information (total correlation) of latents by kernel densities, in nats.

    .. math:: \frac{1}{b} \sum_a \Big[\log \hat q(z_a) - \sum_j \log \hat q_j(z_{aj})\Big], \quad
              \hat q(z) = \frac{1}{b} \sum_c \prod_j N(z_j; z_{cj}, h_j^2), \quad
              h_j = s_j \Big(\frac{4}{(d + 2)\, b}\Big)^{1 / (d + 4)}

    :math:`\hat q_j` is the marginal density of :math:`\hat q` for latent j. The bandwidths h are those of Silverman's
    rule, where :math:`s_j` is the standard deviation of latent j. The estimate does not depend on the scales of
    latents.

    Args:
        z: Latents of b examples.
        std: The standard deviation of each latent.

    Returns:
        The estimate. It is 0 for a single latent, and at most (d - 1) log b.
    """
    b, d = z.shape
    bandwidth = std * (4 / ((d + 2) * b)) ** (1 / (d + 4))
    exponents = -0.5 * ((z[:, None] - z[None]) / bandwidth).square()
    joint, marginals = exponents.sum(2).logsumexp(1), exponents.logsumexp(1).sum(1)
    estimate: Tensor = (joint - marginals).mean() + (d - 1) * math.log(b)
    return estimate


def normalised_hessian_penalty(
    decode: Decode, z: Float[Tensor, "b d"], std: Float[Tensor, " d"], noise: Noise
) -> Float[Tensor, ""]:
    r"""Estimate the share of mixed second derivatives in all second derivatives of a decoder.

    .. math:: \frac{\sum_{a, x} \sum_{i \ne j} (s_i s_j H_{axij})^2}{\sum_{a, x} \sum_{i, j} (s_i s_j H_{axij})^2}

    :math:`H_{ax}` is the Hessian of output x at example a. Multiplying by the standard deviations s makes the share
    independent of the scale of each latent. Both sums are estimated as variances of quadratic forms over random
    directions (`interactions`), and second derivatives are central differences (`hessian_forms`).

    Args:
        decode: The decoder, a function from latents to examples.
        z: Latents of b examples.
        std: The standard deviation s of each latent.
        noise: The random numbers of the step.

    Returns:
        The estimate, which can exceed 1.
    """
    shape = (DIRECTIONS, *z.shape)
    directions = std * torch.cat([random_signs(noise, *shape), noise.normal(*shape)])
    mixed, every = hessian_forms(decode, z, directions, SECOND_SIZE).chunk(2)
    return interactions(mixed).mean() / (interactions(every).mean() + SMALLEST_SUM)


@dataclass(frozen=True)
class Tripod(FSQ):
    r"""FSQ with a penalty on dependent latents and a penalty on latents that interact in the decoder.

    .. math:: E_x[-\log p(x|\hat z)] + D\,\big[\lambda_I\, \hat I(\hat z) + \lambda_H\, P(\hat z)\big]

    Latents are quantised as in `FSQ`. :math:`\hat I` is the multi-information of the latents of a batch, estimated by
    kernel densities (`multi_information`). P is the share of mixed second derivatives in all second derivatives of the
    decoder, the normalised Hessian penalty (`normalised_hessian_penalty`). P is zero if the decoder is a sum of
    functions that depend on one latent each. The weights :math:`\lambda_I` and :math:`\lambda_H` are the fields
    `multi_information` and `hessian`. D is the number of values of an example. Multiplying by D gives the weights the
    scale of the paper, whose reconstruction error is a mean over pixels. The gradients of both penalties pass through
    the rounding unchanged.

    The defaults are those of the paper on Shapes3D, where runs have 250,000 steps, batches of 64 and twice as many
    latents as factors. For other datasets, the weights in the authors' code range from 1e-10 to 1e-4
    (:math:`\lambda_I`) and from 1e-8 to 1e-2 (:math:`\lambda_H`). The decoder is always computed in float32.

    Deviations: the term of `FSQ` that keeps tanh from saturating, with the weight `saturation`, is not in the paper.
    P is computed from the output of the decoder and is one ratio for the whole batch. The authors' code instead
    adds the penalties of four inner layers of the decoder. It averages the ratios of single examples, which are
    sometimes very large, because each is estimated from two directions. In the authors' code, marginal densities have
    the bandwidths :math:`s_j`, so :math:`\hat q_j` is not the marginal of :math:`\hat q`. The authors' code also limits
    each element of the gradient to an absolute value of 1.
    Reference: Hsu et al. (2024), "Tripod: three complementary inductive biases for disentangled representation
    learning", arXiv:2404.10282.
    """

    default_learning_rate: ClassVar[float] = 2e-4
    float32_networks: ClassVar[tuple[str, ...]] = ("decoder",)

    multi_information: Hyper = setting(1e-4, "weight of the multi-information of the latents", low=0)
    hessian: Hyper = setting(1e-2, "weight of the normalised Hessian penalty on the decoder", low=0, swept=True)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q = net.encode(batch.x)
        z = self.quantised(net, q)
        loss, terms = self.reconstruction_loss(net, batch, q, z)
        std = (self.continuous(q).var(0, correction=0) + SMALLEST_STD**2).sqrt()
        dependence = multi_information(z, std)
        interaction = normalised_hessian_penalty(net.decode, z, std, noise)
        penalty = self.multi_information * dependence + self.hessian * interaction
        terms = {**terms, "multi_information": dependence, "interaction": interaction}
        return loss + batch.x[0].numel() * penalty, terms
