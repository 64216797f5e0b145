"""Checks of models from outside unbraid: do their outputs fit the data?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError, warn_user
from unbraid.nets.adopted import DecoderPart, EncoderPart, ModelOptions
from unbraid.nets.any_model import ModelParts, pixel_problem
from unbraid.runs.adopted_model import ModelFile

EXAMPLES = 8  # number of examples on which a model is checked and traced
ONE_TENSOR = "If encode(x) returns means and log variances in one tensor, pass the number of latents (latents=)."
EVALUATION = "Put all modules of the model in evaluation mode before adoption: model.eval()."
SINGLE = f"{EVALUATION} If the model calls squeeze() or reshapes tensors, it must keep the axis of the batch."
RESHAPE = "If the model takes another shape, pass a module that reshapes x: nn.Sequential(nn.Flatten(), encoder)."


@dataclass(frozen=True)
class CheckedModel:
    """A model whose outputs fit the data.

    Attributes:
        parts: The parts of the model.
        content: The content of `model.json` if the model is stored as Python code.
        latents: The number of latents.
        variances: Whether the encoder returns variances.
        x: Examples on which the model was checked.
        z: Codes of these examples.
    """

    parts: ModelParts
    content: ModelFile
    latents: int
    variances: bool
    x: Tensor
    z: Tensor


def check_model(parts: ModelParts, options: ModelOptions, data: FactorData) -> CheckedModel:
    """Run a model on a few examples. Return the model together with the examples and their codes.

    Raise a UserError if the outputs do not fit the data. Warn if decoded examples are probably not pixels. The modules
    of the model must be in evaluation mode.
    """
    device = next((p.device for module in parts.modules for p in module.parameters()), torch.device("cpu"))
    x = data.batch(torch.linspace(0, len(data) - 1, EXAMPLES, device=data.device).long()).to(device)
    if x.ndim == 2 and (options.logits or (options.low, options.high) != (0.0, 1.0)):
        raise UserError("pixels= and logits= are for images. The data are vectors. Leave these options out.")
    encoder = EncoderPart(parts, options)
    output = _call(encoder, x, "encode(x)", RESHAPE)
    latents, variances = _check_codes(output, encoder, x, options)
    z = output[:, :latents]
    content = ModelFile(list(x.shape[1:]), options=options, code_shape=_code_shape(encoder, latents))
    if parts.decode is not None:
        decoder = DecoderPart(parts, options, tuple(x.shape[1:]), tuple(content.code_shape or ()))
        decoded = _call(decoder, z, "decode(z)", ONE_TENSOR)
        _check_decoded(decoded, data)
        _check_repeated(decoder, z, decoded, "decode(z)")
    return CheckedModel(parts, content, latents, variances, x, z)


def _call(part: torch.nn.Module, x: Tensor, what: str, advice: str) -> Tensor:
    """Return the output of a part of the model. Raise a UserError if the part raises an error."""
    try:
        output: Tensor = part(x)
    except UserError:
        raise
    except Exception as error:  # a user's model may raise errors of any type
        raise UserError(
            f"{what} of the model must accept a batch of the shape {tuple(x.shape)}. Got an error instead: "
            f"{_reason(error).rstrip('.')}. {advice}"
        ) from error
    return output


def _reason(error: Exception) -> str:
    """Return the line of an error message that names the cause. It is the last line for TorchScript, else the first."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1] if "TorchScript" in lines[0] else lines[0]


def _code_shape(encoder: EncoderPart, latents: int) -> list[int]:
    """Return the shape that the codes of one example must have as input of the decoder."""
    shape = list(encoder.code_shape)
    return shape if math.prod(shape) == latents else [latents]


def _check_codes(output: Tensor, encoder: EncoderPart, x: Tensor, options: ModelOptions) -> tuple[int, bool]:
    """Return the number of latents, and whether the encoder returns variances.

    Raise a UserError if the codes are not finite, or if they depend on chance or on other examples of the batch.
    """
    if output.ndim != 2 or len(output) != len(x) or not output.shape[1] or not output.is_floating_point():
        raise UserError(
            f"encode(x) must return codes (n, ...), one row of floating-point numbers for each of {len(x)} examples. "
            f"Got {output.dtype} of shape {tuple(output.shape)} instead."
        )
    if not output.isfinite().all():
        raise UserError("encode(x) must return finite codes. Got NaN or infinity instead. Check pixels= and second=.")
    _check_repeated(encoder, x, output, "encode(x)")
    own = math.prod(encoder.code_shape)
    if options.latents is not None and own == 2 * options.latents == output.shape[1]:
        own = options.latents
    if options.latents is not None and own != options.latents:
        raise UserError(f"encode(x) must return {options.latents} latents per example (latents=). Got {own} instead.")
    variances = output.shape[1] == 2 * own
    if variances and options.second == "logvar" and float(output[:, own:].min()) >= 0:
        warn_user(
            "All log variances that encode(x) returned are >= 0, so they may be variances or standard deviations. If "
            'so, pass second="variance" or second="std" (--second).'
        )
    return own, variances


def _check_repeated(part: torch.nn.Module, x: Tensor, output: Tensor, what: str) -> None:
    """Raise a UserError if the outputs of a part depend on chance or on other examples of the batch."""
    again, alone = part(x), _call(part, x[:1], what, SINGLE)
    scale = max(1.0, float(output.abs().max()))
    if float((output - again).abs().max()) > 1e-4 * scale:
        raise UserError(
            f"{what} must return the same values each time. Got random values. {EVALUATION} If the model draws "
            "samples, return the means instead."
        )
    if float((output[:1] - alone).abs().max()) > 1e-3 * scale:
        raise UserError(
            f"{what} must compute each example independently of the others in the batch. Got other values for a "
            f"single example. {EVALUATION}"
        )


def _check_decoded(decoded: Tensor, data: FactorData) -> None:
    """Raise a UserError if decoded examples are not finite. Warn if they are probably not pixels in [0, 1]."""
    if not decoded.isfinite().all():
        raise UserError("decode(z) must return finite values. Got NaN or infinity instead.")
    problem = pixel_problem(decoded) if len(data.shape) == 3 else None
    if problem is not None:
        warn_user(
            f"{problem} If they are logits, pass logits=True (--logits). If the images of the model have another "
            "range, pass it, such as pixels=(-1, 1) (--pixels=-1,1)."
        )
