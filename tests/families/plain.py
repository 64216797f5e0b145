"""Deterministic autoencoders."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from families.base import MethodFacts
from unbraid.distributions import Gaussian
from unbraid.methods import AE, AEICA, FSQ, ICA, PCA, QLAE, SAE, BetaVAE, Tripod
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


def round_through(z: Tensor, low: float, high: float, values: int) -> Tensor:
    """Return z rounded to equally spaced values, with the gradient of z."""
    index = ((values - 1) * (z.clamp(low, high) - low) / (high - low)).round().long()
    return z + (torch.linspace(low, high, values)[index] - z).detach()


@dataclass(frozen=True)
class RoundedTanhAE(AE):
    """An autoencoder that passes its latents through tanh and rounds them to halves."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec = net.nll(batch.x, round_through(net.encode(batch.x).mean.tanh(), -1, 1, 5)).mean()
        return rec, {"rec": rec}


@dataclass(frozen=True)
class RoundedAE(AE):
    """An autoencoder that rounds its latents to tenths between -0.5 and 0.5."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec = net.nll(batch.x, round_through(net.encode(batch.x).mean, -0.5, 0.5, 11)).mean()
        return rec, {"rec": rec}


@dataclass(frozen=True)
class ReluAE(SAE):
    """An autoencoder with an affine encoder, a ReLU and a linear decoder."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec = net.nll(batch.x, net.encode(batch.x).mean.relu()).mean()
        return rec, {"rec": rec}


@dataclass(frozen=True)
class LinearAE(PCA):
    """A linear autoencoder with squared errors."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        encode, decode = net.encoder.linear, net.decoder[0]  # type: ignore[union-attr,index]
        x = batch.x.flatten(1)
        decoded = (x @ encode.weight.T + encode.bias) @ decode.weight.T + decode.bias  # type: ignore[operator,union-attr]
        rec = 0.5 * (x - decoded).square().sum(1).mean()
        return rec, {"rec": rec}


FACTS: dict[str, MethodFacts] = {
    "ae": MethodFacts(AE(), limits=[(AE(), ZeroVarianceVAE(beta=0.0))]),
    "pca": MethodFacts(PCA(), limits=[(PCA(), LinearAE())]),
    "ica": MethodFacts(ICA(), limits=[(ICA(), PCA())]),
    "ae_ica": MethodFacts(AEICA(), limits=[(AEICA(), AE())]),
    "tripod": MethodFacts(
        Tripod(),
        vmap_tolerance=1e-2,  # because second differences enlarge rounding errors by a factor of 100
        limits=[(Tripod(levels=7, saturation=0.1, multi_information=0.0, hessian=0.0), FSQ(levels=7, saturation=0.1))],
    ),
    "fsq": MethodFacts(FSQ(), limits=[(FSQ(levels=5, saturation=0.0), RoundedTanhAE())]),
    "qlae": MethodFacts(QLAE(), limits=[(QLAE(count=11, quantisation=0.0, commitment=0.0), RoundedAE())]),
    "sae": MethodFacts(
        SAE(),
        limits=[
            (SAE(activation="relu", sparsity=0.0), ReluAE()),
            (SAE(k=4), ReluAE()),
            (SAE(activation="jumprelu", sparsity=0.0, threshold=1e-6), ReluAE()),
        ],
    ),
}
