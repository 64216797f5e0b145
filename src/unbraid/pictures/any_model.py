"""An adapter that encodes images and decodes latents in chunks with a model from outside unbraid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unbraid.distributions import Gaussian
from unbraid.errors import UserError, warn_user
from unbraid.nets.any_model import as_tensor, model_parts, pixel_problem, read_examples, read_posterior
from unbraid.runs.run import CHUNK

CHANNELS = (1, 3)  # valid numbers of channels of an image: grey or RGB


def as_images(x: Any) -> Tensor:
    """Return images (n, c, h, w) with 1 or 3 channels as a float32 tensor. Values of type uint8 are divided by 255."""
    images = as_tensor(x, "The images x")
    shape = tuple(images.shape)
    if images.ndim == 4 and shape[1] in CHANNELS and min(shape) > 0:
        return images
    hint = "Pass images (n, 1, h, w) or (n, 3, h, w)."
    if images.ndim == 4 and shape[3] in CHANNELS:
        hint = "Move the channels first: x.transpose(0, 3, 1, 2) for an array, x.permute(0, 3, 1, 2) for a tensor."
    elif images.ndim == 3:
        hint = "Pass x[None] for one image with channels, or x[:, None] for grey images without a channel axis."
    elif images.ndim == 2:
        hint = "Pass x[None, None] for one grey image, or x.reshape(n, 1, h, w) for rows of pixels."
    raise UserError(f"The images x must have the shape (n, c, h, w) with 1 or 3 channels. Got {shape} instead. {hint}")


@dataclass(frozen=True)
class Codes:
    """The codes of n images.

    Attributes:
        z: The codes, of shape (n, d).
        nats: The KL divergence of each latent's posterior from a standard normal prior, averaged over the images, in
            nats. The shape is (d,). None if the encoder does not return a variance for each code.
    """

    z: Tensor
    nats: Tensor | None


@dataclass(frozen=True)
class Adapter:
    """An encoder and a decoder as functions of tensors, and the modules that contain their parameters."""

    encode: Callable[[Tensor], Any]
    decode: Callable[[Tensor], Any]
    modules: tuple[nn.Module, ...]

    @classmethod
    def from_model(cls, model: Any) -> Adapter:
        """Return an adapter for an object with `encode` and `decode`, or for a pair of functions or modules."""
        parts = model_parts(model)
        if parts.encode is None or parts.decode is None:
            raise UserError(
                "A traversal needs a Run, an object with encode(x) and decode(z), or a pair (encode, decode) of "
                f"functions or modules. Got {type(model).__name__} instead."
            )
        return cls(parts.encode, parts.decode, parts.modules)

    @property
    def device(self) -> torch.device:
        """The device on which the modules are stored, or the CPU if there are no modules."""
        tensors = (tensor for module in self.modules for tensor in (*module.parameters(), *module.buffers()))
        return next((tensor.device for tensor in tensors), torch.device("cpu"))

    def encode_images(self, x: Tensor) -> Codes:
        """Encode images (n, c, h, w), check the codes and return them."""
        outputs = [(part, *read_posterior(self.encode(part.to(self.device)))) for part in x.split(CHUNK)]
        z = torch.cat([check_codes(codes, len(part)) for part, codes, _ in outputs])
        if any(logvar is None for _, _, logvar in outputs):
            return Codes(z, None)
        logvar = torch.cat([as_tensor(part, "The log variances of encode(x)").cpu() for _, _, part in outputs])
        return Codes(z, Gaussian(z, logvar).kl().mean(0) if logvar.shape == z.shape else None)

    def decode_images(self, z: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Decode latents (n, d), check the images and return them. Flat rows of pixels are reshaped to `shape`."""
        parts = []
        for part in z.split(CHUNK):
            output = as_tensor(read_examples(self.decode(part.to(self.device))), "The output of decode(z)").cpu()
            parts.append(check_images(output, len(part), shape))
        return torch.cat(parts)


def warn_if_not_pixels(reconstruction: Tensor) -> None:
    """Warn if the values of a reconstruction are probably not pixels.

    Only reconstructions are checked, because latents that are far from the codes of all examples may decode to any
    values.
    """
    if (problem := pixel_problem(reconstruction)) is not None:
        warn_user(
            f"{problem} If they are logits, pass (encode, lambda z: decode(z).sigmoid()). If they are in [-1, 1], pass "
            "(encode, lambda z: decode(z) / 2 + 0.5)."
        )


def check_codes(output: Any, n: int) -> Tensor:
    """Return codes (n, d) as a tensor, or raise a UserError."""
    z = as_tensor(output, "The output of encode(x)").cpu()
    if z.ndim != 2 or len(z) != n or not z.shape[1]:
        raise UserError(
            f"encode(x) must return codes (n, d), one row for each of the {n} images. Got shape {tuple(z.shape)} "
            "instead. If it also returns other values, pass (lambda x: ..., decode) with a function that selects the "
            "codes."
        )
    if not z.isfinite().all():
        raise UserError("encode(x) must return finite codes. Got NaN or infinity instead. Scale images as in training.")
    return z


def check_images(output: Tensor, n: int, shape: tuple[int, ...]) -> Tensor:
    """Return decoded images as (n, c, h, w), or raise a UserError."""
    if output.ndim == 2 and output.shape == (n, int(np.prod(shape))):
        return output.reshape(n, *shape)
    if output.ndim == 3 and len(output) == n:
        return output[:, None]
    if output.ndim == 4 and len(output) == n and output.shape[1] in CHANNELS:
        return output
    raise UserError(
        f"decode(z) must return {n} images (c, h, w) with 1 or 3 channels for {n} rows of z. "
        f"Got shape {tuple(output.shape)} instead."
    )
