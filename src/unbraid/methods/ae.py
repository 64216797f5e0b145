"""The deterministic autoencoder, a baseline without a prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.methods.controls import Controls, direction_controls
from unbraid.methods.method import Batch, Loss, Method
from unbraid.methods.traversal import RowLabel, Traversal
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


@dataclass(frozen=True)
class AE(Method):
    r"""An autoencoder trained only for reconstruction, a baseline without any term that encourages disentanglement.

    .. math:: E_x[-\log p(x|f(x))]

    f is the mean that the encoder outputs. The encoder's log variances are not used, nothing is sampled, and there is
    no KL term. Scaling or rotating the latents therefore does not change the loss, if the decoder undoes it.

    Deviations: the encoder has the outputs of a VAE, including log variances, and the likelihood of the run is used
    for pixels. The papers below use one output per latent and a squared error.
    Reference: Hinton & Salakhutdinov (2006), "Reducing the dimensionality of data with neural networks", Science 313.
    Zietlow et al. (2021), arXiv:2102.06822, use it as a baseline.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("mean",)

    def information(self, q: Gaussian) -> Tensor | None:
        """Return None, because the log variances are not trained."""
        return None

    def traversal(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Traversal:
        """Return one row per latent, in descending order of its standard deviation over the population.

        Positions are distances from the mean of the population, in standard deviations.
        """
        return point_traversal(self.points(net, q), self.points(net, population), positions)

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """Return one control per latent. Its value is the distance from the population's mean in standard deviations.

        The control of a latent that does not vary has no effect.
        """
        return point_controls(self.points(net, q), self.points(net, population))

    def points(self, net: VAENet, q: Gaussian) -> Gaussian:
        """Return posteriors whose means are the latents from which examples are reconstructed."""
        return Gaussian(self.point_latents(net, q), q.logvar)

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        rec = net.nll(batch.x, net.encode(batch.x).mean).mean()
        return rec, {"rec": rec}


def population_moments(population: Gaussian) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of each latent over the examples of the population."""
    return population.mean.mean(0), population.mean.std(0, correction=0)


def point_traversal(q: Gaussian, population: Gaussian, positions: Tensor) -> Traversal:
    """Return the traversal of codes without variances (see `AE.traversal`)."""
    mean, std = population_moments(population)
    order = std.argsort(descending=True, stable=True).tolist()
    z = q.mean.repeat(len(order), len(positions), 1)
    for row, latent in enumerate(order):
        z[row, :, latent] = mean[latent] + std[latent] * positions.to(z.device)
    return Traversal(z, q.mean, [RowLabel(f"latent {i}", i, std=float(std[i])) for i in order])


def point_controls(q: Gaussian, population: Gaussian) -> Controls:
    """Return the controls of codes without variances (see `AE.controls`)."""
    mean, std = population_moments(population)
    start = torch.where(std > 0, (q.mean - mean) / torch.where(std > 0, std, 1.0), 0.0)
    return direction_controls([f"latent {i}" for i in range(len(std))], q.mean, std.diag(), start)
