"""HFS, a beta-VAE whose latents are pushed to a factorised support."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

POINTS = 100  # default number of random points for each pair of latents


def support_distance(z: Float[Tensor, "b d"], rows: Int[Tensor, "n p 2"]) -> Float[Tensor, ""]:
    r"""Return the distance of latents from a factorised support, summed over all pairs of latents.

    .. math:: \sum_{i < j} \max_{(a, c) \in R_{ij}} \min_b\, (z_{ai} - z_{bi})^2 + (z_{cj} - z_{bj})^2

    The supports of latents i and j are the values that occur in the batch. A point of the product of both supports has
    latent i of example a and latent j of example c, where (a, c) is an entry of :math:`R_{ij}`. The term of a pair of
    latents is the squared Hausdorff distance from these points to the examples. It is zero if all combinations of
    values of the two latents occur.

    Args:
        z: Latents of b examples.
        rows: The entries of all :math:`R_{ij}`: the examples a and c of n points, for each of the p = d (d - 1) / 2
            pairs of latents.

    Returns:
        The sum of the distances over all pairs of latents.
    """
    first, second = torch.triu_indices(z.shape[1], z.shape[1], 1, device=z.device)
    joint = torch.stack([z[:, first], z[:, second]], 2)
    points = joint.gather(0, rows)
    squares = (points[:, None] - joint[None]).square().sum(3)
    return squares.amin(1).amax(0).sum()


def sampled_support_distance(z: Float[Tensor, "b d"], noise: Noise, points: int = POINTS) -> Float[Tensor, ""]:
    """Return the `support_distance` of a batch. `points` is the number of random points for each pair of latents."""
    b, d = z.shape
    return support_distance(z, noise.integers(b, points, d * (d - 1) // 2, 2))


def low_deviations(z: Float[Tensor, "b d"]) -> Float[Tensor, ""]:
    r"""Return :math:`\sum_j \max(1 - \sqrt{Var_b(z_j) + 10^{-6}}, 0)`, with the batch size minus 1 as the divisor."""
    return (1 - (z.var(0) + 1e-6).sqrt()).relu().sum()


@dataclass(frozen=True)
class HFS(Method):
    r"""A beta-VAE with a penalty if some combinations of the values of two latents do not occur.

    .. math:: E_q[-\log p(x|z)] + \beta\, KL(q(z|x) \| p(z)) + \gamma\, H(\mu) + \delta \sum_j \max(1 - s_j, 0)

    H is a sum over all pairs of latents. The term of a pair is the squared Hausdorff distance between the product of
    the supports of the two latents and their joint support. It is computed from the posterior means :math:`\mu` of a
    batch, with `points` random points of each product (`support_distance`). Unlike a total correlation, H is zero also
    for correlated latents, if all combinations occur. The method is therefore suited to data with correlated factors.
    :math:`s_j` is the standard deviation of :math:`\mu_j` over the batch. The last term keeps latents from shrinking,
    which is necessary only if :math:`\beta` is 0 or small.

    Deviations: all pairs of latents are used in each step. The authors' code draws up to 25 pairs, so with 10 latents,
    which have 45 pairs, the same :math:`\gamma` is 1.8 times as strong here. It computes the standard deviations over
    latents instead of examples.
    Reference: Roth et al. (2023), "Disentanglement of correlated factors via Hausdorff factorized support",
    arXiv:2210.07347, section 3.
    """

    gamma: Hyper = setting(10.0, "weight of the distance from a factorised support", low=0)
    beta: Hyper = setting(1.0, "weight of the KL term", low=0)
    delta: Hyper = setting(0.0, "weight of the penalty on standard deviations below 1", low=0)
    points: int = setting(POINTS, "number of random points of the product of supports, for each pair of latents", low=1)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, q, _ = elbo(net, batch, noise)
        support = sampled_support_distance(q.mean, noise, self.points)
        scale = low_deviations(q.mean)
        loss = rec + self.beta * kl + self.gamma * support + self.delta * scale
        return loss, {"rec": rec, "kl": kl, "support": support, "scale": scale}
