"""The network of a model that was trained outside unbraid, and modules that adapt its inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.nets.any_model import SECOND, ModelParts, as_tensor, read_examples, read_posterior
from unbraid.nets.vae import VAENet


@dataclass(frozen=True)
class ModelOptions:
    """What the user says about a model.

    Attributes:
        low: The value of a black pixel in the model's images.
        high: The value of a white pixel in the model's images.
        logits: Whether the decoder returns logits of pixels.
        second: The meaning of the encoder's second output, if the encoder returns two. It is one of `SECOND`.
        latents: The number of latents d. It is needed only if the encoder returns one tensor (b, 2 d), in which the
            means come first. The meaning of its second half is `second`. Otherwise `latents` may be None.
    """

    low: float = 0.0
    high: float = 1.0
    logits: bool = False
    second: str = "logvar"
    latents: int | None = None

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise UserError(f"The range of pixels must be (low, high) with low < high. Got {self.low}, {self.high}.")
        if self.second not in SECOND:
            raise UserError(f"The second output must be one of {', '.join(SECOND)}. Got {self.second!r} instead.")


class EncoderPart(nn.Module):
    """A module that maps examples with pixels in [0, 1] to codes (b, d), or to means and log variances (b, 2 d).

    Codes with several axes are flattened. `code_shape` is the shape that the code of one example had before it was
    flattened. It is set by each call.
    """

    def __init__(self, parts: ModelParts, options: ModelOptions) -> None:
        super().__init__()
        assert parts.encode is not None
        self.run: Callable[[Tensor], Any] = parts.encode
        self.modules_of_model, self.options = nn.ModuleList(parts.modules), options
        self.code_shape: tuple[int, ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        if (self.options.low, self.options.high) != (0.0, 1.0):
            x = self.options.low + (self.options.high - self.options.low) * x
        mean, logvar = self._posterior(self.run(x))
        self.code_shape = tuple(mean.shape[1:])
        if logvar is None or logvar.shape != mean.shape:
            return torch.flatten(mean, 1)
        return torch.cat([mean.flatten(1), logvar.flatten(1)], 1)

    def _posterior(self, output: Any) -> tuple[Tensor, Tensor | None]:
        """Return the means and the log variances or None.

        One tensor (b, 2 d) is divided if its second half must be converted. `AdoptedNet.encode` divides other tensors.
        """
        second, latents = self.options.second, self.options.latents
        mean, logvar = (_as_tensor(part, "encode(x)") for part in read_posterior(output, second))
        if second != "logvar" and logvar is None and latents is not None and mean.shape[1:] == (2 * latents,):
            return read_posterior(tuple(mean.split(latents, 1)), second)
        return mean, logvar


class DecoderPart(nn.Module):
    """A module that maps codes (b, d) to examples (b, ...) with pixels in [0, 1]."""

    def __init__(
        self, parts: ModelParts, options: ModelOptions, shape: tuple[int, ...], code_shape: tuple[int, ...]
    ) -> None:
        super().__init__()
        assert parts.decode is not None
        self.run: Callable[[Tensor], Any] = parts.decode
        self.modules_of_model, self.options = nn.ModuleList(parts.modules), options
        self.shape, self.code_shape = shape, code_shape

    def forward(self, z: Tensor) -> Tensor:
        if len(self.code_shape) > 1:
            z = z.unflatten(1, self.code_shape)
        output = self._examples(_as_tensor(read_examples(self.run(z)), "decode(z)"))
        if self.options.logits:
            return output.sigmoid()
        if (self.options.low, self.options.high) == (0.0, 1.0):
            return output
        return (output - self.options.low) / (self.options.high - self.options.low)

    def _examples(self, output: Tensor) -> Tensor:
        """Return decoded examples (b, ...). Flat vectors and grey images without a channel axis are reshaped."""
        own = tuple(output.shape[1:])
        if own == self.shape:
            return output
        if own in ((int(torch.Size(self.shape).numel()),), self.shape[1:] if self.shape[0] == 1 else None):
            return output.reshape(-1, *self.shape)
        raise UserError(
            f"decode(z) must return examples of the shape {self.shape}, as the data have. Got shape {own} instead. "
            "Choose data of that shape, or pass a decoder that reshapes its output."
        )


def _as_tensor(value: Any, what: str) -> Any:
    """Return an output as a tensor. None is returned unchanged."""
    return value if value is None or isinstance(value, Tensor) else as_tensor(value, f"The output of {what}")


class AdoptedNet(VAENet):
    """An encoder and a decoder that were trained outside unbraid.

    Args:
        encoder: A module that maps examples (b, ...) with pixels in [0, 1] to codes (b, d), or to means and log
            variances (b, 2 d).
        decoder: A module that maps codes (b, d) to examples (b, ...), or None if the model has no decoder.
        latents: The number of latents, d.
        shape: The shape of one example.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module | None, latents: int, shape: tuple[int, ...]) -> None:
        super().__init__(encoder, nn.Identity(), "gaussian")
        self.decoder, self.latents, self.shape = decoder, latents, shape
        self.eval().requires_grad_(False)

    def encode(self, x: Tensor) -> Gaussian:
        """Return the posterior of examples. If the encoder returns no variances, the log variances are -inf."""
        output = self.encoder(x)
        if output.shape[1] == 2 * self.latents:
            mean, logvar = output.chunk(2, dim=1)
            return Gaussian(mean, logvar)
        return Gaussian(output, torch.full_like(output, -torch.inf))

    def nll(self, x: Tensor, z: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        raise UserError(
            "The likelihood needs the distribution of pixels that the model was trained with. It is not known for a "
            "model that was trained outside unbraid."
        )
