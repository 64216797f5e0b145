"""Finite scalar quantisation (FSQ), an autoencoder whose latents are rounded to a fixed grid."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.methods.method import Batch, Loss, setting
from unbraid.methods.quantised import QuantisedAE, nearest_values, straight_through
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


@dataclass(frozen=True)
class FSQ(QuantisedAE):
    r"""An autoencoder that rounds each latent to one of L equally spaced values between -1 and 1.

    .. math:: E_x[-\log p(x|\hat z)], \quad \hat z_j = \text{round to } \{-1, -1 + \tfrac{2}{L - 1}, \dots, 1\}
              \text{ of } \tanh f_j(x)

    f is the mean that the encoder outputs, and L is the field `levels`. The gradient passes through the rounding
    unchanged (straight-through). There is nothing to learn besides encoder and decoder, and no further loss. The
    encoder's log variances are not used.

    Deviations: the paper shifts the tanh if L is even, so that 0 is one of the values. Here the values are symmetric
    for every L. All latents have the same number of values, and codes are not mapped to one index.
    Reference: Mentzer et al. (2024), arXiv:2309.15505, section 3. Hsu et al. (2024), arXiv:2404.10282 (Tripod), use it
    with 12 values per latent.
    """

    levels: int = setting(12, "number L of values of each latent", low=2)

    def continuous(self, q: Gaussian) -> Float[Tensor, "b d"]:
        return q.mean.tanh()

    def values(self, net: VAENet, latents: Tensor) -> Float[Tensor, "d m"]:
        row = torch.linspace(-1, 1, self.levels, dtype=latents.dtype, device=latents.device)
        return row.expand(latents.shape[-1], -1)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        z = self.continuous(net.encode(batch.x))
        rec = net.nll(batch.x, straight_through(z, nearest_values(z, self.values(net, z)))).mean()
        return rec, {"rec": rec}
