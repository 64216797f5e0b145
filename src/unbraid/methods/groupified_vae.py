"""The Groupified VAE, whose latents are angles on which moves by a fixed step act as a cyclic group."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unbraid.accel.wrapper import NetworkWrapper
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.vae import elbo
from unbraid.nets.vae import PairBuilder, VAENet, check_plain_decoder
from unbraid.noise import Noise

Reencode = Callable[[Tensor], Tensor]
"""A function that decodes latents (n, d), encodes the result, and returns its posterior means (n, d)."""


class CircleDecoder(NetworkWrapper):
    """A decoder whose output is the same for z and z + n, because it gets the sine and the cosine of 2 pi z / n.

    Args:
        inner: A module that maps (b, 2 * latents) to examples.
        order: The number n.
    """

    def __init__(self, inner: nn.Module, order: int) -> None:
        super().__init__()
        self.inner, self.order = inner, order

    def coordinates(self, z: Float[Tensor, "b d"]) -> Float[Tensor, "b dd"]:
        """Return the sines of all latents, followed by their cosines."""
        angles = 2 * math.pi / self.order * z
        return torch.cat([angles.sin(), angles.cos()], 1)

    def forward(self, z: Tensor) -> Tensor:
        return cast(Tensor, self.inner(self.coordinates(z)))


def random_pairs(noise: Noise, active: Bool[Tensor, " d"], b: int) -> Int[Tensor, "2 b"]:
    """Draw two different active latents for each of b examples, with equal probabilities of all pairs.

    If there are fewer than two active latents, latents that are not active are drawn too.
    """
    return (noise.uniform(b, len(active)) + active.float()).argsort(1, descending=True)[:, :2].T


def squared_distance(difference: Float[Tensor, "b d"], active: Bool[Tensor, " d"], order: int) -> Float[Tensor, ""]:
    r"""Return :math:`\Delta(u) = \frac1k \sum_j 2 \sin^2(\pi u_j / n)`, averaged over b examples.

    This is the mean squared difference between the sines and cosines of angles that differ by :math:`2 \pi u_j / n`.
    The sum is over the k active latents.
    """
    squares = 2 * (math.pi / order * difference).sin().square()
    return (squares * active).sum(1).mean() / active.sum().clamp(min=1)


def isomorphism_loss(
    reencode: Reencode, z: Float[Tensor, "b d"], active: Bool[Tensor, " d"], pairs: Int[Tensor, "2 b"], order: int
) -> Float[Tensor, ""]:
    r"""Estimate the isomorphism loss (see `GroupifiedVAE`) from one pair of active latents per example.

    The estimate is unbiased if all pairs of active latents are equally likely. With fewer than two active latents, it
    is zero.

    Args:
        reencode: The function :math:`\mu(g(z))`.
        z: Posterior means of b examples.
        active: Whether each latent is active.
        pairs: Two different active latents for each example.
        order: The order n of the cyclic groups.
    """
    axes = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)[pairs.flatten()]
    points = torch.cat([z, z, z, z]) + torch.cat([axes, -axes])
    residuals = (reencode(points) - points).chunk(4)
    distances = [squared_distance(r, active, order) for r in residuals]
    abel = squared_distance(residuals[0] - residuals[1], active, order) + distances[0] + distances[1]
    count = active.sum()
    return (count > 1) * (0.5 * count * (count - 1) * abel + count * torch.stack(distances).sum())


@dataclass(frozen=True)
class GroupifiedVAE(Method):
    r"""A beta-VAE in which moves of the latents by a fixed step act on examples like a product of cyclic groups.

    .. math:: E_q[-\log p(x|z)] + \beta\, KL(q(z|x) \| p(z)) + \gamma\, E_x[L_A + L_O]

    .. math:: L_A = \sum_{i < j} \big[\Delta(r_i^+ - r_j^+) + \Delta(r_i^+) + \Delta(r_j^+)\big], \quad
        L_O = 2 \sum_i \big[\Delta(r_i^+) + \Delta(r_i^-)\big]

    .. math:: r_i^\pm = \mu(g(z \pm e_i)) - (z \pm e_i), \quad \Delta(u) = \frac1k \sum_i 2 \sin^2(\pi u_i / n)

    The decoder g takes the sine and the cosine of :math:`2 \pi z_i / n` for each latent, so :math:`z_i` and
    :math:`z_i + n` are decoded to the same example. n is the field `order`. An action moves latent i of an example by
    one step: the example is encoded to its posterior mean :math:`z = \mu(x)`, :math:`z \pm e_i` is decoded, and
    :math:`r_i^\pm` is what encoding the result changes. The actions must commute (Abel loss :math:`L_A`), and an action
    and its inverse must cancel (order loss :math:`L_O`). :math:`\Delta(u)` is the mean squared difference between the
    sines and cosines of two results whose latents differ by u. The losses are 0 if every decoded example is encoded to
    the latents from which it was decoded.

    All sums are over the k active latents, whose mean KL over the batch is above `min_kl`. The isomorphism loss
    :math:`L_A + L_O` is 0 in the first `start` steps, and whenever there are fewer than two active latents. In each
    step, one random pair of active latents per example gives an unbiased estimate, for which four examples are decoded
    and encoded again. With :math:`\gamma` = 0, the method is a beta-VAE with this decoder.

    The defaults are those of the authors' code for the beta-VAE, where :math:`\beta` is 10, 20 or 30, and a batch of
    32 has a KL above 30 in active latents. Their runs have 50,000 steps.

    Deviations: the authors' code uses all pairs of active latents in each step, and selects the active latents only
    every 200 steps. It compares only the sines, which are the same for two angles on a circle. Here both coordinates
    are compared, and some of the terms of the code are then equal. The paper adds the loss to other VAEs too.
    Reference: Yang et al. (2022), "Towards Building A Group-based Unsupervised Representation Disentanglement
    Framework", arXiv:2102.10303. The loss is that of the authors' code, github.com/ThomasMrY/Groupified-VAE,
    model/share.py.
    """

    beta: Hyper = setting(10.0, "weight of the KL term", low=0, swept=True)
    isomorphism: Hyper = setting(1.0, "weight gamma of the isomorphism loss", low=0)
    order: int = setting(15, "order n of the cyclic groups; z and z + n are decoded to the same example", low=3)
    start: int = setting(2_000, "number of training steps without the isomorphism loss", low=0)
    min_kl: Hyper = setting(30 / 32, "mean KL in nats above which a latent is active", low=0)

    def check(self, data: FactorData, batch: int, latents: int) -> None:
        if latents < 2:
            raise UserError(f"GroupifiedVAE compares pairs of latents, so it needs at least 2. Got {latents} instead.")

    def schedule_end(self, steps: int) -> float:
        return float(self.start)

    def build(self, builder: PairBuilder, shape: tuple[int, ...], latents: int, likelihood: str) -> VAENet:
        """Build the encoder, and a decoder with two inputs per latent."""
        encoder, inner = builder(shape, latents)[0], builder(shape, 2 * latents)[1]
        check_plain_decoder(inner, "The decoder of GroupifiedVAE takes two numbers per latent")
        return self.extend(VAENet(encoder, CircleDecoder(inner, self.order), likelihood), latents)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, q, _ = elbo(net, batch, noise)
        active = q.kl().detach().mean(0) > self.min_kl
        pairs = random_pairs(noise, active, len(batch.x))
        loss = isomorphism_loss(lambda z: net.encode(net.decode(z)).mean, q.mean, active, pairs, self.order)
        isomorphism = (step >= self.start) * loss
        terms = {"rec": rec, "kl": kl, "isomorphism": isomorphism, "active": active.float().sum()}
        return rec + self.beta * kl + self.isomorphism * isomorphism, terms
