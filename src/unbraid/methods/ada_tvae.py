"""The adaptive triplet VAE (Ada-TVAE), a triplet VAE that separates dissimilar examples by few latents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unbraid.methods.method import Batch, Hyper, Loss, setting
from unbraid.methods.triplet_vae import TripletVAE
from unbraid.methods.vae import elbo, kl_weight
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def mark_small_differences(difference: Float[Tensor, "n d"], ratio: Hyper | Tensor) -> Bool[Tensor, "n d"]:
    r"""Return a mask of the latents that differ little between the two examples of each pair.

    Latent j is marked if its difference :math:`\delta_j` satisfies

    .. math:: |\delta_j| < \min_i |\delta_i| + r\, (\max_i |\delta_i| - \min_i |\delta_i|)

    where r is `ratio`. With r = 0 no latent is marked. If r is at most 1, the latent with the largest difference is
    never marked.
    """
    size = difference.detach().abs()
    low, high = size.amin(1, keepdim=True), size.amax(1, keepdim=True)
    return size < low + ratio * (high - low)


def distance(difference: Float[Tensor, "n d"], form: str) -> Float[Tensor, " n"]:
    """Return the sum of the absolute differences of each row ("l1"), or of their squares ("squared")."""
    return (difference.abs() if form == "l1" else difference.square()).sum(1)


def adaptive_triplet_loss(
    mean: Float[Tensor, "b d"], margin: Hyper, scale: Hyper | Tensor, ratio: Hyper | Tensor, form: str
) -> Float[Tensor, ""]:
    """Return the mean triplet loss, in which small differences between anchors and far examples are rescaled.

    Args:
        mean: Posterior means of the anchors, then of the near examples, then of the far examples.
        margin: By how much the distance to the far example must exceed the distance to the near example.
        scale: The number by which small differences between anchors and far examples are multiplied.
        ratio: The threshold below which a difference is small, relative to the range of the differences of the pair
            (see `mark_small_differences`).
        form: The distance, "l1" or "squared".
    """
    anchor, near, far = mean.chunk(3)
    apart = anchor - far
    apart = torch.where(mark_small_differences(apart, ratio), scale * apart, apart)
    return (distance(anchor - near, form) - distance(apart, form) + margin).relu().mean()


@dataclass(frozen=True)
class AdaTVAE(TripletVAE):
    r"""A triplet VAE in which latents that differ little between the anchor and the far example count less.

    .. math:: E_q[-\log p(x|z)] + \beta\, KL(q(z|x) \| p(z))
              + \gamma\, E \max(\|\mu_a - \mu_p\| - \|s \odot (\mu_a - \mu_n)\| + m, 0)

    A triplet (a, p, n) consists of an anchor, a near example and a far example, as in `TripletVAE`. m is `margin`, and
    :math:`\mu_a`, :math:`\mu_p` and :math:`\mu_n` are the posterior means of the three examples. The weight
    :math:`s_j` is `share` if latent j appears unchanged between a and n, and 1 otherwise. A latent appears unchanged if
    :math:`|\mu_{aj} - \mu_{nj}|` is below :math:`\min_i + r\, (\max_i - \min_i)`, where the minimum and the maximum are
    taken over the absolute differences of all latents, and r is `ratio`. This rule is that of `AdaGVAE` with another
    distance, and no gradient flows through it. The far example must therefore be separated by the latents that differ
    most, so that each factor is encoded in few latents. The option `norm` is the distance: the sum of absolute
    differences ("l1"), or of their squares ("squared").

    At the start of training the method is a triplet VAE. Over the first part of the training, the weight of unchanged
    latents falls linearly from 1 to `share`, and r rises linearly from 0 to `ratio`. The length of this part, as a
    fraction of the training steps, is `ramp`.

    Deviations: in the library disent, schedules are configured separately from the method. Here they belong to the
    method, and their default is that of disent's configuration "adanegtvae_up_all". The default weights are those of
    `TripletVAE`.
    Reference: Michlo (2022), the method AdaNegTripletVae of the library disent, github.com/nmichlo/disent. The triplet
    VAE is that of Ishfaq et al. (2018), arXiv:1802.04403, and the threshold that of Locatello et al. (2020),
    arXiv:2002.02886.
    """

    share: Hyper = setting(0.5, "final weight of the differences of latents that appear unchanged", low=0)
    ratio: Hyper = setting(0.5, "final threshold below which a latent appears unchanged", low=0)
    ramp: Hyper = setting(1.0, "fraction of the training steps over which share and ratio reach their values", low=0)
    norm: Literal["l1", "squared"] = setting("l1", "distance of means: absolute differences (l1) or squares (squared)")

    def schedule_end(self, steps: int) -> float:
        return steps * float(self.ramp)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec, kl, q, _ = elbo(net, batch, noise)
        done = kl_weight(self.ramp, batch, step)
        scale, ratio = 1 + done * (self.share - 1), done * self.ratio
        triplet = adaptive_triplet_loss(q.mean, self.margin, scale, ratio, self.norm)
        return rec + self.beta * kl + self.gamma * triplet, {"rec": rec, "kl": kl, "triplet": triplet}
