"""The plain autoencoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.methods.controls import Controls, along
from unbraid.methods.method import Batch, Loss, Method, Walk
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


@dataclass(frozen=True)
class AE(Method):
    r"""Reconstruction alone, from a code that is a point: the baseline that nothing asks to disentangle.

    .. math:: E_x[-\log p(x|f(x))]

    f is the encoder's mean; its log variances stay unused, nothing is sampled and there is no KL, so that the scale of
    the code is arbitrary, and so is any rotation of it that the decoder can undo.
    Deviations: the encoder has the VAE's outputs, log variances too, and pixels have the run's likelihood (the papers:
    one output a latent; a squared error).
    Reference: Hinton & Salakhutdinov (2006), "Reducing the dimensionality of data with neural networks", Science 313;
    as the baseline of Zietlow et al. (2021), arXiv:2102.06822.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("mean",)

    def information(self, q: Gaussian) -> Tensor | None:
        """Not known: the code is a point, log variances are not trained."""
        return None

    def walk(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Walk:
        """Each latent in turn takes standard deviations of the population about its mean, the widest latent first."""
        mean, std = moments(population)
        order = std.argsort(descending=True, stable=True).tolist()
        z = q.mean.repeat(len(order), len(positions), 1)
        for row, latent in enumerate(order):
            z[row, :, latent] = mean[latent] + std[latent] * positions.to(z.device)
        return Walk(z, q.mean, [f"latent {i}\nstd {float(std[i]):.2g}" for i in order])

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """A knob a latent: standard deviations of the population from its mean; one that does not vary does nothing."""
        mean, std = moments(population)
        start = torch.where(std > 0, (q.mean - mean) / torch.where(std > 0, std, 1.0), 0.0)
        return along([f"latent {i}" for i in range(len(std))], q.mean, std.diag(), start)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec = net.nll(batch.x, net.encode(batch.x).mean).mean()
        return rec, {"rec": rec}


def moments(population: Gaussian) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each latent over the population's examples."""
    return population.mean.mean(0), population.mean.std(0, correction=0)
