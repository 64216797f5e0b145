"""The conversion of a trained decoder to a program that a web page can run without PyTorch.

A program is a list of ops and one byte string with all weights in half precision. The scripts `assets/decoder.js` and,
for VITAE, `assets/warp.js` run the ops. Rounding the weights of large layers to 11 bits changes a pixel by a fraction
of a grey level. In two kinds of layers, each weight is stored in two parts, the rounded weight and the rounding error.
The first kind is small layers, for which the second part takes little space. The second kind is layers that compute
the map with which VITAE warps an image, because a small error in this map would move whole edges. The page does
not round products. A run of precision bf16 is therefore decoded in float32, and its pixels differ by a few grey levels
from those that the run decodes itself.
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

SCRIPTS = ("warp.js", "decoder.js", "controls.js")  # in `assets`, in the order in which a page loads them
MAX_FLOAT16 = 65504.0  # largest finite number in half precision
MAX_SMALL_LAYER_WEIGHTS = 2**14  # maximum number of weights of a small layer
EXPLORE_HINT = "`unbraid explore` runs any decoder."

Op = dict[str, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A decoder as a list of ops and their weights.

    Attributes:
        spec: A dictionary with the number of `latents`, the `shape` of an example, the list `ops`, and the name of the
            function `output` that maps the output of the ops to the mean of the likelihood. An op gives the offset of
            its weights, in elements. If its `parts` is 2, the weight is the sum of two tensors, of which the second is
            stored directly after the first.
        weights: All tensors one after the other, as little-endian float16.
    """

    spec: dict[str, Any]
    weights: bytes


@dataclass
class WeightWriter:
    """Collects weights. Small layers are stored in two parts, and while `exact` is True, large layers are too."""

    tensors: list[np.ndarray[Any, Any]] = field(default_factory=list)
    size: int = 0
    exact: bool = False

    def add(self, tensor: Tensor | None, parts: int, name: str) -> int | None:
        """Add a tensor and return its offset in elements, or None if the tensor is None."""
        if tensor is None:
            return None
        values, start = tensor.detach().cpu().double().flatten(), self.size
        largest = float(values.abs().amax()) if len(values) else 0.0
        if not largest <= MAX_FLOAT16:
            raise UserError(
                f"Weights on a page must be finite and at most {MAX_FLOAT16:g}, the limit of half precision. Got "
                f"{largest:g} in the {name} of this decoder. {EXPLORE_HINT}"
            )
        rest = values.numpy()
        for _ in range(parts):
            rounded = rest.astype("<f2")
            self.tensors.append(rounded)
            self.size += len(rounded)
            rest = rest - rounded
        return start

    def layer(self, op: str, weight: Tensor, bias: Tensor | None, **settings: Any) -> Op:
        """Add the weight and the bias of a layer, and return its op."""
        parts = 2 if self.exact or weight.numel() <= MAX_SMALL_LAYER_WEIGHTS else 1
        where = {
            "weight": self.add(weight, parts, f"weight of a {op}"),
            "bias": self.add(bias, parts, f"bias of a {op}"),
        }
        return {"op": op, **settings, **where, "parts": parts}


def decoder_program(net: VAENet, shape: tuple[int, ...], latents: int) -> Program:
    """Convert the decoder of a network to a program.

    Args:
        net: The network.
        shape: The shape of an example.
        latents: The number of latents.

    Raises:
        UserError: If there is no decoder, a page cannot run a module, or a weight is too large for half precision.
    """
    if net.decoder is None:
        raise UserError("This method trains an encoder only, so there is no decoder for a page.")
    writer = WeightWriter()
    warped = type(net.decoder) is VitaeDecoder
    ops, output_shape = (_vitae_ops if warped else _module_ops)(net.decoder, (latents,), writer)
    if output_shape != tuple(shape):
        raise UserError(
            f"The decoder must return examples of shape {tuple(shape)}. Got {output_shape} instead. {EXPLORE_HINT}"
        )
    output = "identity" if warped else _mean_name(net.likelihood.mean)
    spec = {"latents": latents, "shape": list(shape), "ops": ops, "output": output}
    return Program(spec, b"".join(tensor.tobytes() for tensor in writer.tensors))


def _mean_name(mean: Callable[[Tensor], Tensor]) -> str:
    """Return the name of the function that computes the mean of a likelihood."""
    if mean is torch.sigmoid:
        return "sigmoid"
    if mean is identity:
        return "identity"
    raise UserError(f"A page supports the means of Bernoulli and normal pixels. Got {mean!r} instead. {EXPLORE_HINT}")


def _module_ops(module: nn.Module, shape: Shape, writer: WeightWriter) -> tuple[list[Op], Shape]:
    """Return the ops of a module for an input of this shape, and the shape of its output."""
    if module._forward_hooks or module._forward_pre_hooks:
        raise UserError(f"A page cannot run hooks of modules. Got hooks of {module}. {EXPLORE_HINT}")
    if type(module) is nn.Sequential:
        ops: list[Op] = []
        for child in module:
            more, shape = _module_ops(child, shape, writer)
            ops += more
        return ops, shape
    if type(module) is EvenDecoder:
        ops, output_shape = _module_ops(module.inner, shape, writer)
        return [{"op": "even", "ops": ops}], output_shape
    if type(module) not in MODULE_OPS:
        raise UserError(f"A page cannot run the module {type(module).__name__} of this decoder. {EXPLORE_HINT}")
    op, output_shape = MODULE_OPS[type(module)](module, writer), _output_shape(module, shape)
    if op is None:
        return [], output_shape
    return [{**op, "shape": list(output_shape)} if op["op"] == "reshape" else op], output_shape


def _output_shape(module: nn.Module, shape: Shape) -> Shape:
    """Run a module on an input of this shape, and return the shape of its output."""
    if type(module) is nn.Linear and len(shape) != 1:
        raise UserError(f"A page runs {module} on vectors only. Got shape {shape} instead. {EXPLORE_HINT}")
    weight = next(module.parameters(), torch.zeros(0))
    with torch.no_grad():
        output_shape = module(torch.zeros(2, *shape, dtype=weight.dtype, device=weight.device)).shape
    if output_shape[0] != 2:
        raise UserError(f"A page runs {module} on one example at a time, but it combines examples. {EXPLORE_HINT}")
    return tuple(output_shape[1:])


def _vitae_ops(module: Any, shape: Shape, writer: WeightWriter) -> tuple[list[Op], Shape]:
    """Return the ops of VITAE and the shape of its output, which is a mean.

    The first latents are decoded to an image. The other latents are decoded to a map that warps this image.
    """
    image_ops, output_shape = _module_ops(module.appearance, (module.split,), writer)
    writer.exact = True
    map_ops, map_shape = _module_ops(module.perspective, (shape[0] - module.split,), writer)
    transform, more = _transform_ops(module.transformer, writer)
    if map_shape != (module.transformer.dim,):
        raise UserError(f"A map has {module.transformer.dim} parameters. Got shape {map_shape} instead. {EXPLORE_HINT}")
    upright = [*image_ops, {"op": _mean_name(module.likelihood.mean)}]
    warp = {"op": "warp", "split": module.split, "image": upright, "map": [*map_ops, *more], "transform": transform}
    return [warp], output_shape


def _transform_ops(transformer: Transformer, writer: WeightWriter) -> tuple[Op, list[Op]]:
    """Return the name and settings of a family of maps, and the ops that convert parameters to its inputs."""
    name = type(transformer).name
    if type(transformer) in (Affine, AffineDecomposed):
        return {"name": name}, []
    if type(transformer) is AffineDiffeomorphic:
        bounds = {"stretch": transformer.stretch, "turn": transformer.turn}
        return {"name": name, **bounds, "squarings": SQUARINGS}, []
    if type(transformer) is Cpab and transformer.method == "steps":
        cells, steps = transformer.cells, transformer.steps
        squarings = max(0, SQUARINGS + 1 - steps.bit_length())  # as in `cpab.step_table`
        settings = {"nx": cells.nx, "ny": cells.ny, "steps": steps, "squarings": squarings}
        return {"name": name, **settings}, [_field_op(cells, writer)]
    raise UserError(f"A page cannot warp images with {transformer}. {EXPLORE_HINT}")


def _field_op(t: Tessellation, writer: WeightWriter) -> Op:
    """Return the op that maps the parameters of a velocity field to its velocity at all corners and centres.

    These are the corners and centres of the rectangles of the tessellation. Corners come first, row by row. The field
    is affine on each triangle, so these velocities determine it and need far fewer numbers than its basis.
    """
    corners = [(i / t.nx, j / t.ny) for j in range(t.ny + 1) for i in range(t.nx + 1)]
    centres = [((i + 0.5) / t.nx, (j + 0.5) / t.ny) for j in range(t.ny) for i in range(t.nx)]
    points = torch.tensor(corners + centres, dtype=torch.float64)
    at = velocity(t, torch.eye(t.dim, dtype=torch.float64), points).flatten(1).T
    return writer.layer("linear", at, None, **{"in": t.dim, "out": len(at)})


def _linear_op(module: Any, writer: WeightWriter) -> Op:
    return writer.layer("linear", module.weight, module.bias, **{"in": module.in_features, "out": module.out_features})


def _convolution_op(op: str) -> Callable[[Any, WeightWriter], Op]:
    """Return a function that builds the op of a two-dimensional convolution with zero padding."""

    def write(module: Any, writer: WeightWriter) -> Op:
        plain = module.groups == 1 and set(module.dilation) == {1} and module.padding_mode == "zeros"
        if not plain or isinstance(module.padding, str):
            raise UserError(
                "A page runs convolutions of one group without dilation, with zero padding of a given width. "
                f"Got {module} instead. {EXPLORE_HINT}"
            )
        names = ["kernel_size", "stride", "padding", *(["output_padding"] if op == "conv_transpose" else [])]
        settings = {name.removesuffix("_size"): list(getattr(module, name)) for name in names}
        sizes = {"in": module.in_channels, "out": module.out_channels}
        return writer.layer(op, module.weight, module.bias, **sizes, **settings)

    return write


def _op_without_weights(op: str, **settings: str) -> Callable[[Any, WeightWriter], Op]:
    """Return a function that builds an op without weights. `settings` maps its keys to attributes of the module."""
    return lambda module, writer: {"op": op, **{own: getattr(module, name) for own, name in settings.items()}}


MODULE_OPS: dict[type[nn.Module], Callable[[Any, WeightWriter], Op | None]] = {
    nn.Linear: _linear_op,
    nn.Conv2d: _convolution_op("conv"),
    Conv: _convolution_op("conv"),
    nn.ConvTranspose2d: _convolution_op("conv_transpose"),
    ConvTranspose: _convolution_op("conv_transpose"),
    nn.Flatten: _op_without_weights("reshape"),
    Flatten: _op_without_weights("reshape"),
    nn.Unflatten: _op_without_weights("reshape"),
    nn.ReLU: _op_without_weights("relu"),
    nn.LeakyReLU: _op_without_weights("leaky_relu", slope="negative_slope"),
    nn.ELU: _op_without_weights("elu", alpha="alpha"),
    nn.Softplus: _op_without_weights("softplus", beta="beta", threshold="threshold"),
    nn.SiLU: _op_without_weights("silu"),
    nn.Tanh: _op_without_weights("tanh"),
    nn.Sigmoid: _op_without_weights("sigmoid"),
    nn.Identity: lambda module, writer: None,
}
"""The modules that a page can run. Subclasses are not included, because they may compute something else."""
