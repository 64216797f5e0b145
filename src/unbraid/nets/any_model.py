"""Find the encoder and the decoder of a model from outside unbraid, and interpret their outputs.

Encoders return codes in many forms: a tensor, a tuple, a distribution, or an object with named fields. The field names
in this module are those of torch.distributions and of common autoencoder libraries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from unbraid.errors import UserError

POSTERIORS = ("latent_dist", "posterior", "q_z", "qz", "dist")  # fields that contain an object with the fields below
MEANS = ("mean", "loc", "mu", "z_mean", "z_mu", "embedding", "latent", "latents", "codes", "z")
LOG_VARIANCES = ("logvar", "log_var", "log_variance", "log_covariance", "z_logvar", "z_log_var")
SPREADS = (
    ("variance", 1),
    ("var", 1),
    ("stddev", 2),
    ("std", 2),
    ("sigma", 2),
    ("scale", 2),
)
"""Fields with a measure of spread, and the power to which it is raised to give the variance."""
EXAMPLES = ("mean", "reconstruction", "sample", "recon_x", "x_recon", "recon", "x_hat", "probs")
"""Fields that contain the examples that a decoder returns."""
MAIN_FIELDS = {*POSTERIORS, *MEANS, *EXAMPLES}  # fields that contain codes or decoded examples
FIELDS = {*MAIN_FIELDS, *LOG_VARIANCES, *(name for name, _ in SPREADS)}
SECOND = ("logvar", "variance", "std", "other")
"""What the second item of an encoder's pair of outputs can be."""
PIXEL_TOLERANCE = 0.5  # decoded values further than this outside [0, 1] are probably not pixels


class ModelParts(NamedTuple):
    """The parts of a model: functions that encode and decode, and the modules that contain their parameters."""

    encode: Callable[[Tensor], Any] | None
    decode: Callable[[Tensor], Any] | None
    modules: tuple[nn.Module, ...]


def model_parts(model: Any) -> ModelParts:
    """Return the encoder and the decoder of a model. A part that the model does not have is None.

    Args:
        model: An object with methods `encode` and `decode`, an object with modules `encoder` and `decoder`, a pair
            (encode, decode) of functions or modules, or a function or module that encodes.

    >>> model_parts((abs, round))[:2]
    (<built-in function abs>, <built-in function round>)
    """
    if isinstance(model, tuple | list) and len(model) == 2:
        encode, decode = model
    else:
        encode, decode = (
            next((part for name in names if callable(part := getattr(model, name, None))), None)
            for names in (("encode", "encoder"), ("decode", "decoder"))
        )
        if encode is None and decode is None and not isinstance(model, type):
            encode = model
    encode, decode = (part if callable(part) else None for part in (encode, decode))
    owners = [model, encode, decode, *(getattr(part, "__self__", None) for part in (encode, decode))]
    modules = {id(owner): owner for owner in owners if isinstance(owner, nn.Module)}
    return ModelParts(encode, decode, tuple(modules.values()))


@contextlib.contextmanager
def evaluation_mode(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Disable gradients and put modules in evaluation mode. On exit, restore the mode of each module."""
    parents = list(modules)
    modes = {part: part.training for module in parents for part in module.modules()}
    for module in parents:
        module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def as_tensor(values: Any, what: str) -> Tensor:
    """Return numbers as a float32 tensor. Divide uint8 values by 255. `what` is their name in error messages."""
    try:
        tensor = values.detach() if isinstance(values, Tensor) else torch.as_tensor(np.array(values))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{what} must be a tensor or an array of numbers. Got {type(values).__name__} instead."
        ) from error
    return tensor.float() / 255 if tensor.dtype == torch.uint8 else tensor.float()


def _field(output: Any, name: str) -> Any:
    """Return a field of the output of a model: an entry of a dictionary, or an attribute that is not a method."""
    value = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
    return None if callable(value) and not isinstance(value, Tensor) else value


def _first_field(output: Any, names: tuple[str, ...]) -> Any:
    """Return the value of the first field in `names` that an output has. If it has none of them, return None."""
    return next((value for name in names if (value := _field(output, name)) is not None), None)


def read_posterior(output: Any, second: str | None = None) -> tuple[Any, Any]:
    """Return the codes in the output of an encoder, and their log variances or None.

    Args:
        output: A tensor or an array, a tuple, a distribution, a dictionary, or an object with fields.
        second: What the second item is if the output is a pair: one of the strings in `SECOND`. By default (None), only
            the first item is used, because the second may be a log variance, a standard deviation or a sample.

    Returns:
        The codes, which are the means if the output is a distribution, and the log variances or None.

    >>> read_posterior(torch.distributions.Normal(torch.zeros(1), torch.ones(1)))
    (tensor([0.]), tensor([0.]))
    """
    if isinstance(output, tuple | list) and output:
        mean, logvar = read_posterior(output[0], second)
        if logvar is None and len(output) == 2 and second in SECOND[:3] and isinstance(output[1], Tensor):
            logvar = output[1] if second == "logvar" else (1 if second == "variance" else 2) * output[1].log()
        return mean, logvar
    if isinstance(output, Tensor | np.ndarray):
        return output, None
    if (inner := _first_field(output, POSTERIORS)) is not None:
        return read_posterior(inner, second)
    mean = _first_field(output, MEANS)
    return (output, None) if mean is None else (mean, _log_variance(output))


def _log_variance(output: Any) -> Any:
    """Return the log variances of a distribution or of an object with fields, or None."""
    if (value := _first_field(output, LOG_VARIANCES)) is not None:
        return value
    for name, power in SPREADS:
        if isinstance(value := _field(output, name), Tensor | np.ndarray):
            return power * (value.log() if isinstance(value, Tensor) else np.log(value))
    return None


def read_examples(output: Any) -> Any:
    """Return the examples in the output of a decoder.

    They are the first item of a tuple or list, or the first of the fields in `EXAMPLES` that an object has. Any other
    output is returned unchanged.
    """
    if isinstance(output, tuple | list) and output:
        return read_examples(output[0])
    if isinstance(output, Tensor | np.ndarray):
        return output
    found = _first_field(output, EXAMPLES)
    return output if found is None else found


def pixel_problem(decoded: Tensor) -> str | None:
    """Return a sentence that says what is wrong with decoded pixels, or None if they are close enough to [0, 1]."""
    low, high = float(decoded.min()), float(decoded.max())
    if low >= -PIXEL_TOLERANCE and high <= 1 + PIXEL_TOLERANCE:
        return None
    return f"decode(z) returned values from {low:.3g} to {high:.3g}, but pixels must be in [0, 1]."
