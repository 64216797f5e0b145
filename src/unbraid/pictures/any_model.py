"""Anybody's encoder and decoder behind one pair of functions: images to codes, codes to images, in chunks."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.runs.run import CHUNK

CHANNELS = (1, 3)  # of a picture: grey or colours
BEYOND = 0.5  # how far outside [0, 1] a decoded value may lie before it is taken for something else than a pixel


def as_tensor(values: Any, what: str) -> Tensor:
    """Numbers as a tensor; bytes are scaled to [0, 1], everything else becomes float32."""
    try:
        tensor = values.detach() if isinstance(values, Tensor) else torch.as_tensor(np.array(values))
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} must be a tensor or an array of numbers. Got {type(values).__name__}.") from error
    return tensor.float() / 255 if tensor.dtype == torch.uint8 else tensor.float()


def as_images(x: Any) -> Tensor:
    """Images (n, c, h, w), grey or coloured, as float32; bytes are scaled to [0, 1]."""
    images = as_tensor(x, "The images x")
    shape = tuple(images.shape)
    if images.ndim == 4 and shape[1] in CHANNELS and min(shape) > 0:
        return images
    hint = "Pass images (n, 1, h, w) or (n, 3, h, w)."
    if images.ndim == 4 and shape[3] in CHANNELS:
        hint = "Channels come first: pass x.transpose(0, 3, 1, 2) of an array, x.permute(0, 3, 1, 2) of a tensor."
    elif images.ndim == 3:
        hint = "Pass x[None] for one image with channels, x[:, None] for grey images without."
    elif images.ndim == 2:
        hint = "Pass x[None, None] for one grey image, x.reshape(n, 1, h, w) for rows of pixels."
    raise UserError(f"The images x must have the shape (n, c, h, w) with 1 or 3 channels. Got {shape}. {hint}")


def unwrapped(given: Any) -> Any:
    """What a network gave, out of a tuple (mean, ...) or a distribution with a `mean`."""
    if isinstance(given, tuple | list) and given:
        return unwrapped(given[0])
    if isinstance(given, Tensor | np.ndarray):
        return given
    mean = getattr(given, "mean", given)
    return given if callable(mean) else mean


def log_variance(given: Any) -> Any:
    """The log variances of a posterior that names them, or its variances or deviations, else None.

    A tuple names nothing: its second part may be a log variance, a deviation or a sample.
    """
    if isinstance(given, Tensor | np.ndarray | tuple | list):
        return None
    if (found := getattr(given, "logvar", None)) is not None:
        return found
    for name, power in (("variance", 1), ("stddev", 2)):
        if isinstance(found := getattr(given, name, None), Tensor | np.ndarray):
            return power * as_tensor(found, name).log()
    return None


@dataclass(frozen=True)
class Codes:
    """Codes (n, d), with the nats each latent carries about an example where the posteriors are known."""

    z: Tensor
    nats: Tensor | None


@dataclass(frozen=True)
class Adapter:
    """An encoder and a decoder as functions of tensors, and the modules that are behind them."""

    encode: Callable[[Tensor], Any]
    decode: Callable[[Tensor], Any]
    modules: tuple[nn.Module, ...]

    @classmethod
    def of(cls, model: Any) -> Adapter:
        """From an object with `encode` and `decode`, or from a pair of functions or modules."""
        pair: Any = model
        if not isinstance(model, tuple | list):
            pair = getattr(model, "encode", None), getattr(model, "decode", None)
        if len(pair) != 2 or not all(callable(part) for part in pair):
            hint = " Pass (model.encoder, model.decoder)." if hasattr(model, "encoder") else ""
            raise UserError(
                "A traversal needs a Run, an object with encode(x) and decode(z), or a pair (encode, decode) of "
                f"functions or modules. Got {type(model).__name__} instead.{hint}"
            )
        owners = [model, *pair, *(getattr(part, "__self__", None) for part in pair)]
        modules = {id(owner): owner for owner in owners if isinstance(owner, nn.Module)}
        return cls(pair[0], pair[1], tuple(modules.values()))

    @property
    def device(self) -> torch.device:
        """Where the modules are, else the CPU."""
        tensors = (tensor for module in self.modules for tensor in (*module.parameters(), *module.buffers()))
        return next((tensor.device for tensor in tensors), torch.device("cpu"))

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Without gradients and in evaluation mode; each module goes back to the mode it was in."""
        modes = {part: part.training for module in self.modules for part in module.modules()}
        for module in self.modules:
            module.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            for part, mode in modes.items():
                part.training = mode

    def codes(self, x: Tensor) -> Codes:
        """The codes of images, checked."""
        given = [(part, self.encode(part.to(self.device))) for part in x.split(CHUNK)]
        z = torch.cat([_rows(unwrapped(found), len(part)) for part, found in given])
        logvars = [log_variance(found) for _, found in given]
        if any(logvar is None for logvar in logvars):
            return Codes(z, None)
        logvar = torch.cat([as_tensor(found, "The log variances of encode(x)").cpu() for found in logvars])
        return Codes(z, Gaussian(z, logvar).kl().mean(0) if logvar.shape == z.shape else None)

    def images(self, z: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Images of codes, checked: those of `shape` may come as rows of pixels."""
        parts = []
        for part in z.split(CHUNK):
            given = as_tensor(unwrapped(self.decode(part.to(self.device))), "What decode(z) gives").cpu()
            parts.append(_pictures(given, len(part), shape))
        return torch.cat(parts)


def warn_of_logits(reconstruction: Tensor) -> None:
    """Tell of a decoded example whose values are no pixels; what is decoded far from all examples may be anything."""
    low, high = float(reconstruction.min()), float(reconstruction.max())
    if low < -BEYOND or high > 1 + BEYOND:
        warnings.warn(
            f"decode(z) gave values from {low:.3g} to {high:.3g}; pictures show what lies in [0, 1]. If they are "
            "logits, pass (encode, lambda z: decode(z).sigmoid()); if pixels lie in [-1, 1], halve and add .5.",
            RuntimeWarning,
            stacklevel=2,
        )


def _rows(given: Any, n: int) -> Tensor:
    """Codes (n, d), or an error that says what came."""
    z = as_tensor(given, "What encode(x) gives").cpu()
    if z.ndim != 2 or len(z) != n or not z.shape[1]:
        raise UserError(
            f"encode(x) must give codes (n, d), a row for each of the {n} images. Got shape {tuple(z.shape)} instead. "
            "If it gives more than codes, pass (lambda x: ..., decode) that picks them."
        )
    if not z.isfinite().all():
        raise UserError("encode(x) must give finite codes. Got NaN or infinity: are the images scaled as in training?")
    return z


def _pictures(given: Tensor, n: int, shape: tuple[int, ...]) -> Tensor:
    """Decoded images as (n, c, h, w), or an error that says what came."""
    if given.ndim == 2 and given.shape == (n, int(np.prod(shape))):
        return given.reshape(n, *shape)
    if given.ndim == 3 and len(given) == n:
        return given[:, None]
    if given.ndim == 4 and len(given) == n and given.shape[1] in CHANNELS:
        return given
    raise UserError(
        f"decode(z) must give {n} images (c, h, w) of 1 or 3 channels for {n} codes. Got shape {tuple(given.shape)}."
    )
