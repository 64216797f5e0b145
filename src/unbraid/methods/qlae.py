"""QLAE, an autoencoder whose latents take values from learned sets, one set per latent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.accel.adam import Adam
from unbraid.methods.method import Batch, Hyper, Loss, setting
from unbraid.methods.quantised import QuantisedAE, nearest_values, straight_through
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


class Codebook(nn.Module):
    """The m values of each of d latents, initialised to equally spaced values between -0.5 and 0.5. Shape (d, m)."""

    def __init__(self, latents: int, values: int) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.linspace(-0.5, 0.5, values).repeat(latents, 1))


@dataclass(frozen=True)
class QLAE(QuantisedAE):
    r"""An autoencoder that replaces each latent by the nearest of a few learned values of this latent.

    .. math:: E_x[-\log p(x|\hat z)] + D\, E_x\Big[\frac{\lambda_q}{d} \|sg(z) - \hat z\|^2
              + \frac{\lambda_c}{d} \|z - sg(\hat z)\|^2\Big], \quad \hat z_j = \arg\min_{v \in V_j} |z_j - v|

    z is the mean that the encoder outputs, d the number of latents, and D the number of pixels of an example times its
    channels. sg stops the gradient. The set :math:`V_j` holds `count` numbers. Only the quantisation term
    (:math:`\lambda_q`) trains them. The commitment term (:math:`\lambda_c`) pulls latents to their values. The gradient
    of the reconstruction error passes through the quantisation unchanged (straight-through). The encoder's log
    variances are not used.

    Multiplying by D gives the weights the scale of the paper, whose reconstruction error is a mean over pixels. The
    paper trains with AdamW, a learning rate of 1e-3, a weight decay of 0.1 (``--weight-decay 0.1``) and twice as many
    latents as factors. Neither the weight decay nor a limit on the gradient norm applies to the learned values in
    :math:`V_j`.

    Deviations: the paper's code has no weight decay on biases. Its loss is a mean over pixels, and it limits each
    element of the gradient of this loss to an absolute value of 1. The limit rarely has an effect.
    Reference: Hsu et al. (2023), "Disentanglement via latent quantization", arXiv:2305.18378, section 3.
    """

    default_learning_rate: ClassVar[float] = 1e-3

    count: int = setting(10, "number of values of each latent", low=2)
    quantisation: Hyper = setting(0.01, "weight of the term that moves values to latents", low=0)
    commitment: Hyper = setting(0.01, "weight of the term that moves latents to values", low=0)

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.codebook = Codebook(latents, self.count)
        return net

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return Adam(learning_rate, regularised=not parameter.startswith("codebook."))

    def values(self, net: VAENet, latents: Tensor) -> Float[Tensor, "d m"]:
        return cast(Codebook, net.codebook).values

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        z = self.continuous(net.encode(batch.x))
        quantised = nearest_values(z, self.values(net, z))
        rec = net.nll(batch.x, straight_through(z, quantised)).mean()
        quantisation = (z.detach() - quantised).square().mean()
        commitment = (z - quantised.detach()).square().mean()
        size = batch.x[0].numel()
        loss = rec + size * (self.quantisation * quantisation + self.commitment * commitment)
        return loss, {"rec": rec, "quantisation": quantisation, "commitment": commitment}
