"""InfoVAE, a VAE that matches the distribution of all latents to the prior by a maximum mean discrepancy (MMD)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.errors import UserError
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

KERNELS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rbf": lambda squares, scale: (-squares / scale).exp(),
    "imq": lambda squares, scale: scale / (scale + squares),
}
"""The kernels as functions of squared distances and of the scale C (see `InfoVAE`)."""


def squared_distances(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Return the squared Euclidean distance of each row of x from each row of y."""
    return (x[:, None] - y[None]).square().sum(2)


def squared_mmd(
    x: Float[Tensor, "n d"], y: Float[Tensor, "n d"], kernel: str = "rbf", bandwidth: Hyper = 1.0
) -> Float[Tensor, ""]:
    r"""Estimate the squared maximum mean discrepancy of two distributions from n samples of each, without bias.

    .. math:: MMD^2 = E\,k(x, x') + E\,k(y, y') - 2 E\,k(x, y)

    x and x' are different samples of the first distribution, and y and y' are different samples of the second
    distribution. The estimate can be negative.
    Reference: Gretton et al. (2012), "A kernel two-sample test", JMLR 13, eq. 3.

    Args:
        x: Samples of the first distribution.
        y: Samples of the second distribution, as many as of the first. There must be at least two of each.
        kernel: Name of the kernel k, "rbf" or "imq" (see `InfoVAE`).
        bandwidth: Width of the kernel, as a multiple of the typical distance between two samples of a standard normal.

    Returns:
        The estimate.
    """
    n, d = x.shape
    scale = 2 * d * torch.as_tensor(bandwidth, dtype=x.dtype, device=x.device) ** 2
    k, different = KERNELS[kernel], 1 - torch.eye(n, dtype=x.dtype, device=x.device)
    within = (different * (k(squared_distances(x, x), scale) + k(squared_distances(y, y), scale))).sum() / (n * (n - 1))
    return within - 2 * k(squared_distances(x, y), scale).mean()


@dataclass(frozen=True)
class InfoVAE(Method):
    r"""A VAE with an MMD between the prior and the aggregate posterior q(z), the distribution of all latents.

    .. math:: E_q[-\log p(x|z)] + (1 - \alpha)\, KL(q(z|x) \| p(z)) + (\alpha + \lambda - 1)\, MMD^2(q(z), p(z))

    :math:`\lambda` is the field `lambda_mmd`. In the paper, :math:`\alpha` is the weight of the mutual information
    between x and z. The MMD is zero only if both distributions are equal. It is estimated from the latents of a batch
    and as many samples of the prior (`squared_mmd`). With :math:`\alpha = 1` the method is the MMD-VAE, which has no KL
    term. :math:`\alpha` must be at most 1, and :math:`\alpha + \lambda` at least 1, because no weight may be negative.

    The scale of the kernel is :math:`C = 2 d s^2` for d latents, where s is the `bandwidth`. With s = 1, C is the
    mean squared distance between two samples of the prior. The kernel "rbf" is :math:`\exp(-\|z - z'\|^2 / C)`, and the
    inverse multiquadratic kernel "imq" is :math:`C / (C + \|z - z'\|^2)`.

    Deviations: the authors' code has :math:`C = d^2` and an estimator that includes the distance of each sample to
    itself. The estimator here has no bias.
    Reference: Zhao et al. (2019), arXiv:1706.02262, eq. 6.
    """

    lambda_mmd: Hyper = setting(1000.0, "lambda; the weight of the MMD is alpha + lambda - 1", low=0)
    alpha: Hyper = setting(0.0, "weight alpha of the mutual information; the weight of the KL is 1 - alpha", high=1)
    kernel: Literal["rbf", "imq"] = setting("rbf", "kernel of the MMD: Gaussian (rbf) or inverse multiquadratic (imq)")
    bandwidth: Hyper = setting(
        1.0, "width of the kernel, as a multiple of the typical distance between two samples of the prior", low=1e-6
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = (self.alpha, self.lambda_mmd)
        if not any(isinstance(weight, Tensor) for weight in weights) and sum(map(float, weights)) < 1:
            raise UserError(
                "The sum of alpha and lambda_mmd of InfoVAE must be at least 1, because the weight of the MMD must not "
                f"be negative. Got alpha {self.alpha:g} and lambda_mmd {self.lambda_mmd:g} instead."
            )

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, _, z = elbo(net, batch, noise)
        mmd = squared_mmd(z, noise.normal(*z.shape), self.kernel, self.bandwidth)
        loss = rec + (1 - self.alpha) * kl + (self.alpha + self.lambda_mmd - 1) * mmd
        return loss, {"rec": rec, "kl": kl, "mmd": mmd}
