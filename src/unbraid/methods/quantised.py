"""Functions and a base class for autoencoders in which each latent takes one of a few values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.methods.ae import AE
from unbraid.methods.controls import Controls
from unbraid.methods.traversal import Traversal
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def nearest_values(z: Float[Tensor, "*b d"], values: Float[Tensor, "d m"]) -> Float[Tensor, "*b d"]:
    """Return, for each latent, the nearest of its m values. If two values are equally near, the first is chosen.

    Args:
        z: Continuous latents.
        values: The values of each latent, one row per latent.

    Returns:
        The chosen values. Gradients flow back from them to `values`, but not to z.
    """
    distances = (z.detach()[..., None] - values.detach()).abs()
    chosen = distances.argmin(-1, keepdim=True)
    return values.expand_as(distances).gather(-1, chosen)[..., 0]


def straight_through(z: Tensor, quantised: Tensor) -> Tensor:
    r"""Return the quantised latents :math:`z + sg(\hat z - z)`, through which gradients pass to z unchanged.

    sg stops the gradient. Reference: Bengio et al. (2013), arXiv:1308.3432, the straight-through estimator.
    """
    return z + (quantised - z).detach()


@dataclass(frozen=True)
class QuantisedAE(AE):
    """The base class of autoencoders with quantised latents. A subclass defines `values` and `objective`.

    The codes "quantised" are the input of the decoder. The codes "continuous" are the latents before quantisation.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("quantised", "continuous")

    def continuous(self, q: Gaussian) -> Float[Tensor, "b d"]:
        """Return the latents before quantisation. By default they are the means that the encoder outputs."""
        return q.mean

    def values(self, net: VAENet, latents: Tensor) -> Float[Tensor, "d m"]:
        """Return the values of each latent, with the type and the device of `latents`."""
        raise NotImplementedError(f"{type(self).__name__} must define values(net, latents).")

    def point_latents(self, net: VAENet, q: Gaussian) -> Tensor:
        z = self.continuous(q)
        return nearest_values(z, self.values(net, z))

    def code(self, net: VAENet, q: Gaussian, kind: str, noise: Noise) -> Tensor:
        return self.point_latents(net, q) if kind == "quantised" else self.continuous(q)

    def traversal(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Traversal:
        """Return the traversal of an autoencoder, with each latent replaced by the nearest of its values."""
        z, start, labels = super().traversal(net, q, population, positions)
        return Traversal(nearest_values(z, self.values(net, z)), start, labels)

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """Return the controls of an autoencoder. They give latents that are replaced by the nearest of their values."""
        controls = super().controls(net, q, population)
        values = self.values(net, self.point_latents(net, q)).detach()
        return replace(controls, arrays={**controls.arrays, "values": values})
