"""DeVAE, a VAE with several latent spaces.

Each space is a rescaled copy of the previous space, and its KL has a larger weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.accel.wrapper import NetworkWrapper
from unbraid.distributions import Gaussian
from unbraid.methods.method import Batch, Hyper, Loss, Method, setting
from unbraid.nets.vae import PairBuilder, VAENet, check_plain_decoder
from unbraid.noise import Noise


class Rescalings(nn.Module):
    """Transformations from each latent space to the next. They scale the mean and the variance of each latent.

    They are initialised as the identity.
    """

    def __init__(self, count: int, latents: int) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(count, latents))
        self.logvar_shift = nn.Parameter(torch.zeros(count, latents))

    def forward(self, q: Gaussian) -> list[Gaussian]:
        """Return the posteriors in all spaces. The first is q itself."""
        found = [q]
        for scale, shift in zip(self.log_scale, self.logvar_shift, strict=True):
            found.append(Gaussian(found[-1].mean * scale.exp(), found[-1].logvar + shift))
        return found


class SharedDecoder(NetworkWrapper):
    """A decoder for several latent spaces. Its inputs are the latents and a learned vector of their space.

    Args:
        inner: A decoder with `2 * latents` inputs.
        spaces: The number of spaces.
        latents: The number of latents of each space.
    """

    def __init__(self, inner: nn.Module, spaces: int, latents: int) -> None:
        super().__init__()
        self.inner = inner
        self.embedding = nn.Parameter(torch.randn(spaces, latents))

    def forward(self, z: Float[Tensor, "b d"]) -> Tensor:
        """Decode latents of the first space."""
        return cast(Tensor, self.inner(torch.cat([z, self.embedding[:1].expand_as(z)], 1)))

    def decode_all(self, z: Float[Tensor, "s b d"]) -> Tensor:
        """Decode latents of all s spaces. The outputs are ordered by space, starting with the first."""
        inputs = torch.cat([z, self.embedding[:, None].expand_as(z)], 2)
        return cast(Tensor, self.inner(inputs.flatten(0, 1)))


@dataclass(frozen=True)
class DeVAE(Method):
    r"""A VAE with K latent spaces, where the KL has the smallest weight in the first space and the largest in the last.

    .. math:: \sum_{k=1}^K a^{k-1} \big( E_{q_k}[-\log p_k(x|z)] + \beta_k\, KL(q_k(z|x) \| p(z)) \big)

    .. math:: q_k = N(\mu_k, \sigma_k^2), \quad \mu_{k+1} = e^{u_k} \odot \mu_k, \quad
              \sigma_{k+1}^2 = e^{v_k} \odot \sigma_k^2

    :math:`q_1` is the output of the encoder, and the vectors :math:`u_k` and :math:`v_k` are learned. They rescale each
    latent, so all spaces have the same axes. The large weight in the last space favours disentanglement, and the small
    weight in the first space permits a good reconstruction. All spaces share one decoder. Its inputs are the latents
    and a learned vector of their space, so :math:`p_k` depends on k. Codes, traversals and reconstructions use the
    first space. K is the field `spaces`, and a is the field `scale`. The weights :math:`\beta_k` are a geometric
    sequence from `beta` to `beta_last`.

    Deviations: The authors' code takes a list of the weights :math:`\beta_k`. Its examples use 1 and 40, which are the
    defaults here, or 1, 10 and 40.
    Reference: Wu et al. (2023), "Variational autoencoders with decremental information bottleneck for disentanglement",
    arXiv:2303.12959. The loss is that of the authors' code, github.com/erow/disentanglement_lib, examples/devae.py.
    """

    beta_last: Hyper = setting(40.0, "weight of the KL in the last space", low=1e-6)
    beta: Hyper = setting(1.0, "weight of the KL in the first space, from which codes are taken", low=1e-6)
    scale: Hyper = setting(1.0, "factor a between the loss weights of successive spaces", low=0)
    spaces: int = setting(2, "number K of latent spaces", low=2)

    def build(self, builder: PairBuilder, shape: tuple[int, ...], latents: int, likelihood: str) -> VAENet:
        """Build the encoder, and a decoder with `2 * latents` inputs that all spaces share."""
        encoder, inner = builder(shape, latents)[0], builder(shape, 2 * latents)[1]
        check_plain_decoder(inner, "The decoder of DeVAE is shared by several latent spaces")
        return self.extend(VAENet(encoder, SharedDecoder(inner, self.spaces, latents), likelihood), latents)

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.rescalings = Rescalings(self.spaces - 1, latents)
        return net

    def betas(self) -> list[Hyper]:
        """Return the weight of the KL in each space."""
        shares = [k / (self.spaces - 1) for k in range(self.spaces)]
        return [self.beta ** (1 - share) * self.beta_last**share for share in shares]

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        posteriors = cast(Rescalings, net.rescalings)(net.encode(batch.x))
        z = torch.stack([q.sample(noise) for q in posteriors])
        outputs = cast(SharedDecoder, net.decoder).decode_all(z).chunk(self.spaces)
        rec = [net.likelihood.nll(batch.x, output).mean() for output in outputs]
        kl = [q.kl().sum(1).mean() for q in posteriors]
        losses = [self.scale**k * (rec[k] + beta * kl[k]) for k, beta in enumerate(self.betas())]
        last = {"rec_last": rec[-1], "kl_last": kl[-1]}
        return torch.stack(losses).sum(), {"rec": rec[0], "kl": kl[0], **last}
