"""The network of a VAE: an encoder, a decoder and a likelihood. The objectives of all methods use `VAENet`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from unbraid.distributions import LIKELIHOODS, Gaussian
from unbraid.errors import UserError

Pair = tuple[nn.Module, nn.Module]
"""An encoder and a decoder."""

PairBuilder = Callable[[tuple[int, ...], int], Pair]
"""A function that takes the shape of one example and the number of latents, and returns an encoder and a decoder."""


@runtime_checkable
class LikelihoodDecoder(Protocol):
    """A decoder that computes the negative log likelihood itself."""

    def nll(self, x: Tensor, z: Tensor) -> Tensor: ...


def check_plain_decoder(decoder: nn.Module, what: str) -> None:
    """Raise a UserError if a decoder computes the likelihood itself.

    Args:
        decoder: The decoder that a network builder returned.
        what: The first part of the message, which says why the decoder must not compute the likelihood.
    """
    if isinstance(decoder, LikelihoodDecoder):
        raise UserError(
            f"{what}, so it must not compute its own likelihood. Got {type(decoder).__name__} instead. Choose another "
            "network."
        )


class VAENet(nn.Module):
    """An encoder, a decoder and the likelihood of an example given its latents.

    Args:
        encoder: A module that maps examples (b, ...) to (b, 2 d): the means of the d latents, then their log variances.
        decoder: A module that maps codes (b, d) to (b, ...), in the form that the likelihood expects, for example
            logits for "bernoulli". A method that needs no decoder sets the attribute `decoder` to None after
            construction.
        likelihood: Name of the likelihood p(x|z): "bernoulli", "gaussian" or "normal". "gaussian" is a normal
            distribution with variance 1, without its normalising constant. "normal" is a normal distribution with
            variance 0.1, with its normalising constant.

    Attributes:
        shape: Shape of one example, or None if it is not known.
    """

    decoder: nn.Module | None
    shape: tuple[int, ...] | None = None

    def __init__(self, encoder: nn.Module, decoder: nn.Module, likelihood: str = "bernoulli") -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.likelihood = LIKELIHOODS[likelihood]

    def encode(self, x: Tensor) -> Gaussian:
        """Return the posterior q(z|x) of examples.

        Args:
            x: Examples (b, ...).

        Returns:
            A diagonal Gaussian whose `mean` and `logvar` have shape (b, d).
        """
        mean, logvar = self.encoder(x).chunk(2, dim=1)
        return Gaussian(mean, logvar)

    def decode(self, z: Float[Tensor, "b d"]) -> Tensor:
        """Return the mean of p(x|z).

        Args:
            z: Codes (b, d).

        Returns:
            Means (b, ...). They are probabilities if the likelihood is Bernoulli.

        Raises:
            UserError: If the network has no decoder.
        """
        return self.likelihood.mean(self._required_decoder()(z))

    def nll(self, x: Tensor, z: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        """Return the negative log likelihood -log p(x|z) of each example, summed over its pixels or entries.

        Args:
            x: Examples (b, ...).
            z: Codes (b, d).

        Returns:
            Values (b,), in nats.

        Raises:
            UserError: If the network has no decoder.
        """
        if isinstance(self.decoder, LikelihoodDecoder):
            return self.decoder.nll(x, z)
        return self.likelihood.nll(x, self._required_decoder()(z))

    def _required_decoder(self) -> nn.Module:
        """Return the decoder, or raise an error if there is none."""
        if self.decoder is None:
            raise UserError(
                "Decoding needs a decoder. This network has no decoder, because its method trains only an encoder."
            )
        return self.decoder
