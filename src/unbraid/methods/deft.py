"""DEFT, a VAE whose groups of latents are trained in stages with decreasing weights of the KL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.accel.wrapper import NetworkWrapper
from unbraid.distributions import Gaussian
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.methods.stages import begun_stages, stages_setting
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.noise import Noise


class PartitionedEncoder(NetworkWrapper):
    """An encoder that consists of one encoder per group of latents.

    Args:
        encoders: The encoders of the groups, in the order of the latents.
    """

    def __init__(self, encoders: Sequence[nn.Module]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)

    def forward(self, x: Tensor) -> Float[Tensor, "b outputs"]:
        """Return the means of the latents of all groups, then their log variances."""
        parts = [encoder(x).chunk(2, dim=1) for encoder in self.encoders]
        return torch.cat([mean for mean, _ in parts] + [logvar for _, logvar in parts], 1)


def scale_gradient(x: Tensor, factor: Tensor) -> Tensor:
    """Return x unchanged, but with its gradient multiplied by a factor, which broadcasts against x."""
    constant = x.detach()
    return constant + factor * (x - constant)


@dataclass(frozen=True)
class DEFT(Method):
    r"""A VAE with one encoder per group of latents. Each stage trains a further group, with a smaller weight of the KL.

    .. math:: E_q[-\log p(x|z)] + \beta_{s(t)}\, KL(q(z|x) \| p(z)), \quad
              s(t) = \min\big(\lfloor t\,(G - 1) / T \rfloor, G - 1\big), \quad
              \beta_s = \beta_0 \Big(\frac{\beta_{G-1}}{\beta_0}\Big)^{s / (G - 1)}

    t is the step, s the stage, and T is `iteration_threshold`, the step at which the last stage begins. Each group
    :math:`g = 0, \dots, G - 1` has `group_size` latents and an encoder of its own. The last group is smaller if
    `group_size` does not divide the number of latents. In stage s, the gradient of the loss with respect to the encoder
    of group g is multiplied by :math:`\gamma` if g < s, by 1 if g = s, and by 0 if g > s. Encoders of later groups thus
    stay as initialised. The decoder is trained in all stages.

    The weight of the KL falls in a geometric sequence from :math:`\beta_0` (`beta`) to :math:`\beta_{G-1}`
    (`beta_last`). With a large weight, only those factors are encoded that improve the reconstruction most. Each stage
    is meant to encode further factors in its own group. The factor :math:`\gamma` makes it harder for the new
    information to spread into the latents of earlier groups. With one group, the loss is that of a beta-VAE with the
    weight :math:`\beta_0`.

    Limitations: Adam divides gradients by their recent magnitude, and each group has an encoder of its own. A factor
    :math:`\gamma > 0` therefore reduces the updates of a group only at first. With the default :math:`\gamma`, the
    updates have more than 70 % of their usual size again 5,000 steps after the stage of the group has ended. With
    :math:`\gamma = 0`, the encoder of the group stops changing within 200 steps. Suitable weights depend on the
    dataset. The authors find them by training with a falling weight and observing at which weights the KL of latents
    begins to rise.

    Deviations: the authors' code takes a list of weights, for example 70, 30, 12 and 4 for dSprites, 160, 105, 30 and 4
    for color_dsprites, and 30, 5, 3 and 1 for SmallNORB. It uses 5 groups of 2 latents, and the last weight again in
    the fifth stage. Here the weights are a geometric sequence between the first and the last of them. Encoders of
    groups have the size of an ordinary encoder. The authors' encoders have a quarter of the channels. Later code of the
    authors instead stops the training of earlier groups, learns to rescale their outputs, and replaces the posteriors
    of later groups by the prior.
    Reference: Wu et al. (2022), "DEFT: distilling entangled factors by preventing information diffusion", Machine
    Learning 111, arXiv:2102.03986. Gradients, stages of 15,000 steps and the learning rate are those of the authors'
    code in April 2021, github.com/erow/disentanglement_lib, commit b99a30f, which uses batches of 256.
    """

    default_learning_rate: ClassVar[float] = 5e-4

    beta: Hyper = setting(70.0, "weight of the KL in the first stage", low=1e-6, swept=True)
    beta_last: Hyper = setting(4.0, "weight of the KL in the last stage", low=1e-6)
    gamma: Hyper = setting(0.1, "factor on the gradients of groups of earlier stages", low=0)
    iteration_threshold: Hyper = stages_setting(60_000.0, "group")
    group_size: int = setting(2, "number of latents of each group; the last group may be smaller", low=1)

    def schedule_end(self, steps: int) -> float:
        return float(self.iteration_threshold)

    def groups(self, latents: int) -> int:
        """Return the number of groups of a run with this number of latents."""
        return math.ceil(latents / self.group_size)

    def build(self, builder: PairBuilder, shape: tuple[int, ...], latents: int, likelihood: str) -> VAENet:
        """Build one encoder per group, and one decoder."""
        encoder, decoder = builder(shape, latents)
        if self.groups(latents) > 1:
            sizes = [min(self.group_size, latents - start) for start in range(0, latents, self.group_size)]
            encoder = PartitionedEncoder([builder(shape, size)[0] for size in sizes])
        return self.extend(VAENet(encoder, decoder, likelihood), latents)

    def schedule(self, latents: int, step: Tensor) -> tuple[Tensor, Float[Tensor, " d"]]:
        """Return the weight of the KL at a step, and the factor on the gradients of each latent's posterior."""
        groups = self.groups(latents)
        begun = begun_stages(groups, step, self.iteration_threshold)
        ended = torch.cat([begun[1:], torch.zeros_like(begun[:1])])
        share = ended.sum() / max(groups - 1, 1)
        factors = torch.where(ended, self.gamma, begun.to(share))
        beta: Tensor = self.beta ** (1 - share) * self.beta_last**share
        return beta, factors[torch.arange(latents, device=step.device) // self.group_size]

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        full = net.encode(batch.x)
        beta, factors = self.schedule(full.mean.shape[1], step)
        q = Gaussian(scale_gradient(full.mean, factors), scale_gradient(full.logvar, factors))
        rec, kl = net.nll(batch.x, q.sample(noise)).mean(), q.kl().sum(1).mean()
        return rec + beta * kl, {"rec": rec, "kl": kl, "beta": beta}
