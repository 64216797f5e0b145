"""The base class of methods whose latent space is a closed manifold."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from unbraid.distributions import Gaussian
from unbraid.methods.controls import Controls, space_controls
from unbraid.methods.method import Method
from unbraid.methods.traversal import RowLabel, Traversal
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.spaces import Space


@dataclass(frozen=True)
class CurvedMethod(Method):
    """A method with latents on a closed manifold. A subclass defines `manifold`, `sample` and `objective`.

    The mean that the encoder outputs is projected to the manifold. The codes are ambient coordinates, angles, or
    samples of the posterior.
    """

    @abstractmethod
    def manifold(self, latents: int) -> Space:
        """Return the latent space of a run with this number of latents."""

    @abstractmethod
    def sample(self, q: Gaussian, noise: Noise) -> Float[Tensor, "b n"]:
        """Return one sample of the posterior of each example. q holds the outputs of the encoder."""

    def project(self, z: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
        return self.manifold(z.shape[-1]).project(z)

    def point_latents(self, net: VAENet, q: Gaussian) -> Tensor:
        return self.project(q.mean)

    def code(self, net: VAENet, q: Gaussian, kind: str, noise: Noise) -> Tensor:
        """Return projected means as ambient coordinates or angles, or samples of the posterior ("sampled").

        On a projective space, products of coordinates are returned instead of ambient coordinates, because such
        products are equal for z and -z.
        """
        space = self.manifold(q.mean.shape[1])
        z = self.sample(q, noise) if kind == "sampled" else space.project(q.mean)
        return space.angles(z) if kind == "angles" else space.embed(z)

    def prior_sample(self, n: int, latents: int, noise: Noise) -> Tensor:
        """Return n samples of the uniform distribution on the manifold."""
        return self.manifold(latents).uniform(n, noise)

    def column_names(self, columns: int) -> list[str]:
        return [f"coordinate {i}" for i in range(columns)]

    def information(self, q: Gaussian) -> None:
        """Return None, because the KL is defined only for all latents together, not for each column."""
        return

    def traversal(self, net: VAENet, q: Gaussian, population: Gaussian, positions: Tensor) -> Traversal:
        """Return closed curves through the projected mean of the example. Positions are angles in radians.

        The curves are geodesics where closed geodesics exist.
        """
        start = self.point_latents(net, q)
        z, names = self.manifold(q.mean.shape[1]).closed_curves(start[0], positions.to(start))
        return Traversal(z, start, [RowLabel(name) for name in names])

    def controls(self, net: VAENet, q: Gaussian, population: Gaussian) -> Controls:
        """Return controls that stay within the latent space, starting from the projected means of the examples."""
        return space_controls(self.manifold(q.mean.shape[1]), self.point_latents(net, q))
