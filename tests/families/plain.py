"""Autoencoders without a posterior."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from families.base import Known
from unbraid.distributions import Gaussian
from unbraid.methods import AE, BetaVAE
from unbraid.methods.method import Batch, Loss
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


class Sure(VAENet):
    """A network with the modules of another that gives its posteriors no variance."""

    def __init__(self, net: VAENet) -> None:
        nn.Module.__init__(self)
        self.encoder, self.decoder, self.likelihood = net.encoder, net.decoder, net.likelihood

    def encode(self, x: Tensor) -> Gaussian:
        q = super().encode(x)
        return Gaussian(q.mean, q.logvar - 1e3)


@dataclass(frozen=True)
class SureVAE(BetaVAE):
    """A beta-VAE whose posteriors have no variance."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        return super().objective(Sure(net), batch, noise, step)


KNOWN: dict[str, Known] = {"ae": Known(AE(), limits=[(AE(), SureVAE(beta=0.0))])}
