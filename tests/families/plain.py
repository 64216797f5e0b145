"""Deterministic autoencoders."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from families.base import MethodFacts
from unbraid.distributions import Gaussian
from unbraid.methods import AE, BetaVAE
from unbraid.methods.method import Batch, Loss
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


class ZeroVarianceNet(VAENet):
    """A network with the modules of another network, whose posteriors have variance 0."""

    def __init__(self, net: VAENet) -> None:
        nn.Module.__init__(self)
        self.encoder, self.decoder, self.likelihood = net.encoder, net.decoder, net.likelihood

    def encode(self, x: Tensor) -> Gaussian:
        q = super().encode(x)
        return Gaussian(q.mean, q.logvar - 1e3)


@dataclass(frozen=True)
class ZeroVarianceVAE(BetaVAE):
    """A beta-VAE with posteriors of variance 0."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        return super().objective(ZeroVarianceNet(net), batch, noise, step)


FACTS: dict[str, MethodFacts] = {"ae": MethodFacts(AE(), limits=[(AE(), ZeroVarianceVAE(beta=0.0))])}
