"""A trained decoder written down as plain data, for a page that runs it without PyTorch.

A program is a list of ops (`assets/decoder.js` runs them, `assets/warp.js` those of VITAE) and one string of bytes with
all weights in half precision. Rounding the weights of large layers to 11 bits moves a pixel by a fraction of a grey
level. Small layers, where it costs little, and maps that warp images, where a small error moves whole edges, have
weights of two parts: the rounded weight and what rounding took from it. Products on a page are never rounded: a run
of precision bf16 shows there what it decodes to in float32, some grey levels from its own decoding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unbraid.accel.layers import Conv, ConvTranspose, Flatten
from unbraid.distributions import identity
from unbraid.errors import UserError
from unbraid.nets.vae import VAENet
from unbraid.nets.vitae import VitaeDecoder
from unbraid.spaces.cpab import Tessellation, velocity
from unbraid.spaces.expm import SQUARINGS
from unbraid.spaces.projective import EvenDecoder
from unbraid.spaces.transformers import Affine, AffineDecomposed, AffineDiffeomorphic, Cpab, Transformer

SCRIPTS = ("warp.js", "decoder.js", "controls.js")  # of `assets`, in the order a page loads them
MOST_FLOAT16 = 65504.0  # of half precision
SMALL_LAYER = 2**14  # numbers of a layer that may have two parts
EXPLORE_HINT = "`unbraid explore` runs any decoder."

Op = dict[str, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A decoder as plain JSON (`spec`) and its weights: little-endian float16, one tensor after the other.

    `spec` has `latents`, the `shape` of an example, `ops`, and as `output` the name of the likelihood's mean. Where an
    op points to weights it gives the number of elements before them; with `parts` 2 the same tensor follows twice, and
    the sum of both is meant.
    """

    spec: dict[str, Any]
    weights: bytes


@dataclass
class WeightWriter:
    """Collects weights; while `exact`, those of large layers have two parts as well."""

    tensors: list[np.ndarray[Any, Any]] = field(default_factory=list)
    size: int = 0
    exact: bool = False

    def add(self, tensor: Tensor | None, parts: int, name: str) -> int | None:
        """Where a tensor begins, in elements; None where there is none."""
        if tensor is None:
            return None
        values, start = tensor.detach().cpu().double().flatten(), self.size
        largest = float(values.abs().amax()) if len(values) else 0.0
        if not largest <= MOST_FLOAT16:
            raise UserError(
                f"Weights on a page are in half precision, finite and at most {MOST_FLOAT16:g}. Got {largest:g} in the "
                f"{name} in this decoder. {EXPLORE_HINT}"
            )
        left = values.numpy()
        for _ in range(parts):
            rounded = left.astype("<f2")
            self.tensors.append(rounded)
            self.size += len(rounded)
            left = left - rounded
        return start

    def layer(self, op: str, weight: Tensor, bias: Tensor | None, **settings: Any) -> Op:
        """An op with a weight and a bias."""
        parts = 2 if self.exact or weight.numel() <= SMALL_LAYER else 1
        where = {
            "weight": self.add(weight, parts, f"weight of a {op}"),
            "bias": self.add(bias, parts, f"bias of a {op}"),
        }
        return {"op": op, **settings, **where, "parts": parts}


def decoder_program(net: VAENet, shape: tuple[int, ...], latents: int) -> Program:
    """The decoder of a network from `latents` numbers to the mean of an example of this shape.

    Refused with a `UserError`: a method without a decoder, a module that has no op here, weights that half precision
    cannot hold.
    """
    if net.decoder is None:
        raise UserError("This method trains an encoder only: there is no decoder to put on a page.")
    writer = WeightWriter()
    warped = type(net.decoder) is VitaeDecoder
    ops, made = (_generation if warped else _written)(net.decoder, (latents,), writer)
    if made != tuple(shape):
        raise UserError(f"The decoder must give examples of shape {tuple(shape)}. Got {made} instead. {EXPLORE_HINT}")
    output = "identity" if warped else _mean(net.likelihood.mean)
    spec = {"latents": latents, "shape": list(shape), "ops": ops, "output": output}
    return Program(spec, b"".join(tensor.tobytes() for tensor in writer.tensors))


def _mean(mean: Callable[[Tensor], Tensor]) -> str:
    """The name of a likelihood's mean."""
    if mean is torch.sigmoid:
        return "sigmoid"
    if mean is identity:
        return "identity"
    raise UserError(f"A page knows the means of Bernoulli and normal pixels. Got {mean!r} instead. {EXPLORE_HINT}")


def _written(module: nn.Module, shape: Shape, writer: WeightWriter) -> tuple[list[Op], Shape]:
    """The ops of a module that is given one example of this shape, and the shape it gives."""
    if module._forward_hooks or module._forward_pre_hooks:
        raise UserError(f"A page cannot run hooks. Got some on {module} instead. {EXPLORE_HINT}")
    if type(module) is nn.Sequential:
        ops: list[Op] = []
        for child in module:
            more, shape = _written(child, shape, writer)
            ops += more
        return ops, shape
    if type(module) is EvenDecoder:
        ops, made = _written(module.inner, shape, writer)
        return [{"op": "even", "ops": ops}], made
    if type(module) not in MODULE_OPS:
        raise UserError(f"A page cannot run the module {type(module).__name__} of this decoder. {EXPLORE_HINT}")
    op, made = MODULE_OPS[type(module)](module, writer), _shape(module, shape)
    if op is None:
        return [], made
    return [{**op, "shape": list(made)} if op["op"] == "reshape" else op], made


def _shape(module: nn.Module, shape: Shape) -> Shape:
    """What a module makes of the shape of an example, found by trying."""
    if type(module) is nn.Linear and len(shape) != 1:
        raise UserError(f"A page runs {module} on vectors only. Got shape {shape} instead. {EXPLORE_HINT}")
    weight = next(module.parameters(), torch.zeros(0))
    with torch.no_grad():
        made = module(torch.zeros(2, *shape, dtype=weight.dtype, device=weight.device)).shape
    if made[0] != 2:
        raise UserError(f"A page runs {module} on one example at a time, but it mixes several. {EXPLORE_HINT}")
    return tuple(made[1:])


def _generation(module: Any, shape: Shape, writer: WeightWriter) -> tuple[list[Op], Shape]:
    """VITAE: an image of the first latents warped by a map of the others; what it gives is a mean."""
    image, made = _written(module.appearance, (module.split,), writer)
    writer.exact = True
    turn, size = _written(module.perspective, (shape[0] - module.split,), writer)
    transform, more = _transform(module.transformer, writer)
    if size != (module.transformer.dim,):
        raise UserError(f"A map has {module.transformer.dim} parameters. Got shape {size} instead. {EXPLORE_HINT}")
    upright = [*image, {"op": _mean(module.likelihood.mean)}]
    warp = {"op": "warp", "split": module.split, "image": upright, "map": [*turn, *more], "transform": transform}
    return [warp], made


def _transform(transformer: Transformer, writer: WeightWriter) -> tuple[Op, list[Op]]:
    """A family of maps with its settings, and the ops that make its numbers of the parameters."""
    name = type(transformer).name
    if type(transformer) in (Affine, AffineDecomposed):
        return {"name": name}, []
    if type(transformer) is AffineDiffeomorphic:
        bounds = {"stretch": transformer.stretch, "turn": transformer.turn}
        return {"name": name, **bounds, "squarings": SQUARINGS}, []
    if type(transformer) is Cpab and transformer.method == "steps":
        cells, steps = transformer.cells, transformer.steps
        squarings = max(0, SQUARINGS + 1 - steps.bit_length())  # as in `cpab.steps_of`
        settings = {"nx": cells.nx, "ny": cells.ny, "steps": steps, "squarings": squarings}
        return {"name": name, **settings}, [_vertices(cells, writer)]
    raise UserError(f"A page cannot warp images with {transformer}. {EXPLORE_HINT}")


def _vertices(t: Tessellation, writer: WeightWriter) -> Op:
    """From the parameters of a field to its velocity at the corners of rectangles, row by row, and their centres.

    A field is affine on each triangle, so these are all there is to know of it, in far fewer numbers than its basis.
    """
    corners = [(i / t.nx, j / t.ny) for j in range(t.ny + 1) for i in range(t.nx + 1)]
    centres = [((i + 0.5) / t.nx, (j + 0.5) / t.ny) for j in range(t.ny) for i in range(t.nx)]
    points = torch.tensor(corners + centres, dtype=torch.float64)
    at = velocity(t, torch.eye(t.dim, dtype=torch.float64), points).flatten(1).T
    return writer.layer("linear", at, None, **{"in": t.dim, "out": len(at)})


def _linear(module: Any, writer: WeightWriter) -> Op:
    return writer.layer("linear", module.weight, module.bias, **{"in": module.in_features, "out": module.out_features})


def _convolution(op: str) -> Callable[[Any, WeightWriter], Op]:
    """Two-dimensional convolutions with zeros around the image."""

    def write(module: Any, writer: WeightWriter) -> Op:
        plain = module.groups == 1 and set(module.dilation) == {1} and module.padding_mode == "zeros"
        if not plain or isinstance(module.padding, str):
            raise UserError(
                "A page runs convolutions of one group, without dilation, with zeros of a given width around the "
                f"image. Got {module} instead. {EXPLORE_HINT}"
            )
        names = ["kernel_size", "stride", "padding", *(["output_padding"] if op == "conv_transpose" else [])]
        settings = {name.removesuffix("_size"): list(getattr(module, name)) for name in names}
        sizes = {"in": module.in_channels, "out": module.out_channels}
        return writer.layer(op, module.weight, module.bias, **sizes, **settings)

    return write


def _plain(op: str, **settings: str) -> Callable[[Any, WeightWriter], Op]:
    """An op without weights; settings are its own name of each and the module's."""
    return lambda module, writer: {"op": op, **{own: getattr(module, name) for own, name in settings.items()}}


MODULE_OPS: dict[type[nn.Module], Callable[[Any, WeightWriter], Op | None]] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution("conv"),
    Conv: _convolution("conv"),
    nn.ConvTranspose2d: _convolution("conv_transpose"),
    ConvTranspose: _convolution("conv_transpose"),
    nn.Flatten: _plain("reshape"),
    Flatten: _plain("reshape"),
    nn.Unflatten: _plain("reshape"),
    nn.ReLU: _plain("relu"),
    nn.LeakyReLU: _plain("leaky_relu", slope="negative_slope"),
    nn.ELU: _plain("elu", alpha="alpha"),
    nn.Softplus: _plain("softplus", beta="beta", threshold="threshold"),
    nn.SiLU: _plain("silu"),
    nn.Tanh: _plain("tanh"),
    nn.Sigmoid: _plain("sigmoid"),
    nn.Identity: lambda module, writer: None,
}
"""The modules that have an op; a subclass may do something else, so only these very types."""
