"""An encoder and a decoder with a likelihood: all that an objective sees of a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from unbraid.distributions import LIKELIHOODS, Gaussian
from unbraid.errors import UserError

Pair = tuple[nn.Module, nn.Module]
PairBuilder = Callable[[tuple[int, ...], int], Pair]


@runtime_checkable
class Likely(Protocol):
    """A decoder that computes the likelihood itself."""

    def nll(self, x: Tensor, z: Tensor) -> Tensor: ...


class VAENet(nn.Module):
    """A pair of ordinary modules: `encoder(x) -> (b, 2d)` mean and log variance, `decoder(z) -> x`'s shape.

    A method that needs no decoder sets it to None.
    """

    decoder: nn.Module | None

    def __init__(self, encoder: nn.Module, decoder: nn.Module, likelihood: str = "bernoulli") -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.likelihood = LIKELIHOODS[likelihood]

    def encode(self, x: Tensor) -> Gaussian:
        """The posterior q(z|x)."""
        mean, logvar = self.encoder(x).chunk(2, dim=1)
        return Gaussian(mean, logvar)

    def decode(self, z: Float[Tensor, "b d"]) -> Tensor:
        """The mean of p(x|z): probabilities for Bernoulli pixels."""
        return self.likelihood.mean(self._decoder()(z))

    def nll(self, x: Tensor, z: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        """-log p(x|z), summed over the pixels of each example."""
        if isinstance(self.decoder, Likely):
            return self.decoder.nll(x, z)
        return self.likelihood.nll(x, self._decoder()(z))

    def _decoder(self) -> nn.Module:
        if self.decoder is None:
            raise UserError("This method trains an encoder only: there is no decoder to make examples from codes with.")
        return self.decoder
