"""Finite scalar quantisation (FSQ), an autoencoder whose latents are rounded to a fixed grid."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.methods.method import Batch, Hyper, Loss, setting
from unbraid.methods.quantised import QuantisedAE, nearest_values, straight_through
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

LARGE_MEAN = 2.0  # tanh(2) is 0.96, which is rounded to 1 unless there are many levels


@dataclass(frozen=True)
class FSQ(QuantisedAE):
    r"""An autoencoder that rounds each latent to one of L equally spaced values between -1 and 1.

    .. math:: E_x\Big[-\log p(x|\hat z) + \frac{\lambda D}{d} \sum_j \max(|f_j(x)| - 2, 0)^2\Big], \quad
              \hat z_j = \arg\min_{v \in V} |\tanh f_j(x) - v|, \quad V = \{-1, -1 + \tfrac{2}{L - 1}, \dots, 1\}

    f is the mean that the encoder outputs, d the number of latents, D the number of values of an example, and L is the
    field `levels`. The gradient passes through the rounding unchanged (straight-through). There is nothing to learn
    besides encoder and decoder. The encoder's log variances are not used.

    Deviations: the paper has no second term. Without it, all means grow in the first steps on images with a dark
    background. The tanh then has no gradient, and all examples keep the same code. With `saturation` (:math:`\lambda`)
    set to 0 the loss is that of the paper. The paper shifts the tanh if L is even, so that 0 is one of the values. Here
    the values are symmetric for every L. All latents have the same number of values, and the values of an example's
    latents are not combined into one index.
    Reference: Mentzer et al. (2024), arXiv:2309.15505, section 3. Hsu et al. (2024), arXiv:2404.10282 (Tripod), use it
    with 12 values per latent.
    """

    levels: int = setting(12, "number L of values of each latent", low=2)
    saturation: Hyper = setting(0.01, "weight lambda of the penalty on means beyond 2, where tanh is flat", low=0)

    def continuous(self, q: Gaussian) -> Float[Tensor, "b d"]:
        return q.mean.tanh()

    def values(self, net: VAENet, latents: Tensor) -> Float[Tensor, "d m"]:
        row = torch.linspace(-1, 1, self.levels, dtype=latents.dtype, device=latents.device)
        return row.expand(latents.shape[-1], -1)

    def quantised(self, net: VAENet, q: Gaussian) -> Float[Tensor, "b d"]:
        """Return the quantised latents, with the gradient of the continuous latents."""
        z = self.continuous(q)
        return straight_through(z, nearest_values(z, self.values(net, z)))

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q = net.encode(batch.x)
        return self.reconstruction_loss(net, batch, q, self.quantised(net, q))

    def reconstruction_loss(self, net: VAENet, batch: Batch, q: Gaussian, z: Float[Tensor, "b d"]) -> Loss:
        """Return the loss of a batch with posteriors q and quantised latents z."""
        rec = net.nll(batch.x, z).mean()
        excess = (q.mean.abs() - LARGE_MEAN).relu().square().mean()
        return rec + self.saturation * batch.x[0].numel() * excess, {"rec": rec, "excess": excess}
