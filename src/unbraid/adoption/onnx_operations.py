"""PyTorch implementations of the ONNX operations that networks commonly use.

Each function takes the attributes of a node and its inputs. Shapes and other integers are passed as Python numbers or
lists of numbers instead of tensors. The batch size can therefore stay unknown while the network is traced.

Reference: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unbraid.errors import UserError

Attributes = dict[str, Any]
Operation = Callable[..., Any]
Shape = Sequence[Any]
"""Integers. While a network is traced, they may be symbols for unknown sizes."""
# PyTorch types by the numbers that stand for them in ONNX.
FLOATS = {1: torch.float32, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16}
INTEGERS = {2: torch.uint8, 3: torch.int8, 6: torch.int32, 7: torch.int64, 9: torch.bool}


def _reject(what: str) -> UserError:
    return UserError(
        f"unbraid cannot run {what} of this ONNX file. Adopt the model from Python or TorchScript instead."
    )


def _tensor(value: Any, like: Tensor | None = None) -> Tensor:
    """Return a value as a tensor, for computations with other tensors."""
    return value if isinstance(value, Tensor) else torch.as_tensor(value, device=None if like is None else like.device)


def _symmetric_padding(attributes: Attributes, axes: int) -> list[int]:
    """Return the padding of a convolution or pooling. Raise a UserError if it differs at the two ends of an axis."""
    pads = attributes.get("pads", [0] * 2 * axes)
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or list(pads[:axes]) != list(pads[axes:]):
        raise _reject("padding that differs at the two ends of an axis")
    return list(pads[:axes])


def _conv(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    axes = weight.ndim - 2
    function: Any = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[axes]
    strides, dilations = a.get("strides", [1] * axes), a.get("dilations", [1] * axes)
    result: Tensor = function(x, weight, bias, strides, _symmetric_padding(a, axes), dilations, a.get("group", 1))
    return result


def _conv_transpose(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    axes = weight.ndim - 2
    if "output_shape" in a:
        raise _reject("a transposed convolution with output_shape")
    function: Any = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[axes]
    strides, dilations = a.get("strides", [1] * axes), a.get("dilations", [1] * axes)
    extra = a.get("output_padding", [0] * axes)
    padding = _symmetric_padding(a, axes)
    result: Tensor = function(x, weight, bias, strides, padding, extra, a.get("group", 1), dilations)
    return result


def _gemm(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    x, weight = x.mT if a.get("transA") else x, weight.mT if a.get("transB") else weight
    product: Tensor = a.get("alpha", 1.0) * (x @ weight)
    return product if bias is None else torch.add(product, bias, alpha=a.get("beta", 1.0))


def _pool(function: str) -> Operation:
    def pool(a: Attributes, x: Tensor) -> Tensor:
        axes = len(a["kernel_shape"])
        strides, padding = a.get("strides", [1] * axes), _symmetric_padding(a, axes)
        if a.get("ceil_mode") or axes != 2 or set(a.get("dilations", [1])) != {1}:
            raise _reject("pooling that is not two-dimensional, rounds up or has dilation")
        if function == "max":
            return F.max_pool2d(x, a["kernel_shape"], strides, padding)
        return F.avg_pool2d(x, a["kernel_shape"], strides, padding, count_include_pad=bool(a.get("count_include_pad")))

    return pool


def _batch_norm(a: Attributes, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, a.get("epsilon", 1e-5))


def _group_norm(a: Attributes, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    if len(scale) != x.shape[1]:
        raise _reject("a group normalisation with one scale per group")
    return F.group_norm(x, a["num_groups"], scale, bias, a.get("epsilon", 1e-5))


def _layer_norm(a: Attributes, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.layer_norm(x, x.shape[a.get("axis", -1) :], scale, bias, a.get("epsilon", 1e-5))


def _reshape(a: Attributes, x: Any, shape: Shape) -> Any:
    if not isinstance(x, Tensor):
        return x if list(shape) != [] else x[0]
    return x.reshape([x.shape[i] if size == 0 and not a.get("allowzero") else size for i, size in enumerate(shape)])


def _unsqueeze(a: Attributes, x: Any, axes: Shape | None = None) -> Any:
    if not isinstance(x, Tensor):
        return [x]
    for axis in sorted(axes if axes is not None else a["axes"]):
        x = x.unsqueeze(axis)
    return x


def _squeeze(a: Attributes, x: Any, axes: Shape | None = None) -> Any:
    if not isinstance(x, Tensor):
        return x[0]
    chosen = axes if axes is not None else a.get("axes", [i for i, size in enumerate(x.shape) if size == 1])
    return x.squeeze(tuple(chosen))


def _concat(a: Attributes, *parts: Any) -> Any:
    if all(isinstance(part, list) for part in parts):
        return [item for part in parts for item in part]
    return torch.cat([_tensor(part) for part in parts], a["axis"])


def _split(a: Attributes, x: Tensor, sizes: Shape | None = None) -> tuple[Tensor, ...]:
    axis = a.get("axis", 0)
    sizes = sizes if sizes is not None else a.get("split")
    if sizes is None:
        return tuple(x.split(-(-x.shape[axis] // a["outputs"]), axis))
    return tuple(x.split(list(sizes), axis))


def _slice(a: Attributes, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    starts, ends = starts if starts is not None else a["starts"], ends if ends is not None else a["ends"]
    axes = axes if axes is not None else a.get("axes", list(range(len(starts))))
    steps = steps if steps is not None else [1] * len(starts)
    if not isinstance(x, Tensor):
        return x[starts[0] : ends[0] : steps[0]]
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 1:
            raise _reject("a slice in reverse order")
        index[axis] = slice(start, None if end >= 2**31 - 1 else end, step)
    return x[tuple(index)]


def _gather(a: Attributes, x: Any, index: Any) -> Any:
    if not isinstance(x, Tensor):
        return [x[i] for i in index] if isinstance(index, list) else x[int(index)]
    axis = a.get("axis", 0) % x.ndim
    if isinstance(index, int):
        return x.select(axis, index)
    return x[(slice(None),) * axis + (_tensor(index, x),)]


def _resize(a: Attributes, x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None) -> Tensor:
    mode, position = a.get("mode", "nearest"), a.get("coordinate_transformation_mode", "half_pixel")
    factors = None if scales is None or not len(scales) else [float(value) for value in scales[2:]]
    shape = None if sizes is None else list(sizes[2:])
    if mode == "nearest" and position == "asymmetric" and a.get("nearest_mode", "floor") == "floor":
        return F.interpolate(x, shape, factors, "nearest")
    if mode == "linear" and x.ndim == 4 and position in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        return F.interpolate(x, shape, factors, "bilinear", align_corners=position == "align_corners")
    raise _reject(f"resizing with the mode {mode!r} and the positions {position!r}")


def _pad(a: Attributes, x: Tensor, pads: Any = None, value: Any = None, axes: Any = None) -> Tensor:
    mode = a.get("mode", "constant")
    pads = list(pads if pads is not None else a["pads"])
    chosen = list(axes) if axes is not None else list(range(len(pads) // 2))
    both = {axis % x.ndim: (pads[i], pads[i + len(chosen)]) for i, axis in enumerate(chosen)}
    ends = [end for axis in reversed(range(x.ndim)) for end in both.get(axis, (0, 0))]
    if mode == "constant":
        return F.pad(x, ends, value=0.0 if value is None else float(value))
    while len(ends) > 4 and ends[-2:] == [0, 0]:
        ends = ends[:-2]
    return F.pad(x, ends, {"reflect": "reflect", "edge": "replicate"}[mode])


def _reduce(function: Callable[..., Tensor]) -> Operation:
    def reduce(a: Attributes, x: Tensor, axes: Shape | None = None) -> Tensor:
        chosen = axes if axes is not None else a.get("axes")
        if not chosen:
            return x if a.get("noop_with_empty_axes") else function(x, list(range(x.ndim)), bool(a.get("keepdims", 1)))
        return function(x, list(chosen), bool(a.get("keepdims", 1)))

    return reduce


def _constant(a: Attributes) -> Any:
    value = next(a[name] for name in ("value", "value_float", "value_int", "value_floats", "value_ints") if name in a)
    if isinstance(value, Tensor):
        return plain_integers(value)
    return value if isinstance(value, int | list) else torch.tensor(value)


def plain_integers(value: Tensor) -> Any:
    """Return whole numbers in a vector or a scalar as a list or a number. Return other tensors unchanged."""
    return value.tolist() if value.dtype in (torch.int64, torch.int32) and value.ndim <= 1 else value


def _constant_of_shape(a: Attributes, shape: Shape) -> Tensor:
    value = a.get("value", torch.zeros(1))
    return torch.full(list(shape), value.flatten()[0].item(), dtype=value.dtype)


def _cast(a: Attributes, x: Any) -> Any:
    kind = {**FLOATS, **INTEGERS}.get(a["to"])
    if kind is None:
        raise _reject("a conversion to another type")
    if isinstance(x, Tensor):
        return x.to(kind)
    return x if a["to"] in INTEGERS else torch.as_tensor(x, dtype=kind)


def _arithmetic(function: Callable[[Any, Any], Any], whole: Callable[[Any, Any], Any] | None = None) -> Operation:
    """Return an operation that applies `function` to tensors, and `whole` (if it is given) to Python integers."""

    def compute(a: Attributes, x: Any, y: Any) -> Any:
        if isinstance(x, Tensor) or isinstance(y, Tensor):
            return function(x if not isinstance(x, list) else _tensor(x), y if not isinstance(y, list) else _tensor(y))
        exact = whole or function
        if isinstance(x, list) or isinstance(y, list):
            n = len(x) if isinstance(x, list) else len(y)
            pairs = zip(x if isinstance(x, list) else [x] * n, y if isinstance(y, list) else [y] * n, strict=True)
            return [exact(p, q) for p, q in pairs]
        return exact(x, y)

    return compute


def _pointwise(function: Callable[[Tensor], Tensor]) -> Operation:
    return lambda a, x, *rest: function(_tensor(x))


def _clip(a: Attributes, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    low, high = low if low is not None else a.get("min"), high if high is not None else a.get("max")
    low, high = (value.item() if isinstance(value, Tensor) else value for value in (low, high))
    return x.clamp(low, high)


def _expand(a: Attributes, x: Tensor, shape: Shape) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(shape)))


def _flatten(a: Attributes, x: Tensor) -> Tensor:
    axis = a.get("axis", 1)
    return x.flatten(axis) if axis == 1 else x.reshape(-1, int(torch.Size(x.shape[axis:]).numel()))


def _depth_to_space(a: Attributes, x: Tensor) -> Tensor:
    if a.get("mode", "DCR") != "CRD":
        raise _reject("DepthToSpace with the mode DCR")
    return F.pixel_shuffle(x, a["blocksize"])


OPERATIONS: dict[str, Operation] = {
    "Add": _arithmetic(operator.add), "Sub": _arithmetic(operator.sub), "Mul": _arithmetic(operator.mul),
    "Div": _arithmetic(operator.truediv, operator.floordiv), "Pow": _arithmetic(operator.pow),
    "Abs": _pointwise(torch.abs), "Exp": _pointwise(torch.exp), "Log": _pointwise(torch.log),
    "Sqrt": _pointwise(torch.sqrt), "Neg": _pointwise(torch.neg), "Reciprocal": _pointwise(torch.reciprocal),
    "Erf": _pointwise(torch.erf), "Sin": _pointwise(torch.sin), "Cos": _pointwise(torch.cos),
    "Relu": _pointwise(torch.relu), "Sigmoid": _pointwise(torch.sigmoid), "Tanh": _pointwise(torch.tanh),
    "Softplus": _pointwise(F.softplus), "Selu": _pointwise(F.selu), "Mish": _pointwise(F.mish),
    "HardSwish": _pointwise(F.hardswish), "Swish": lambda a, x: x * torch.sigmoid(a.get("alpha", 1.0) * x),
    "LeakyRelu": lambda a, x: F.leaky_relu(x, a.get("alpha", 0.01)),
    "Elu": lambda a, x: F.elu(x, a.get("alpha", 1.0)),
    "Gelu": lambda a, x: F.gelu(x, approximate=a.get("approximate", "none")),
    "PRelu": lambda a, x, slope: torch.where(x < 0, slope * x, x),
    "HardSigmoid": lambda a, x: (a.get("alpha", 0.2) * x + a.get("beta", 0.5)).clamp(0, 1),
    "Max": lambda a, x, y: torch.maximum(_tensor(x), _tensor(y)),
    "Min": lambda a, x, y: torch.minimum(_tensor(x), _tensor(y)),
    "Softmax": lambda a, x: x.softmax(a.get("axis", -1)), "Clip": _clip,
    "Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": lambda a, x, y: x @ y,
    "MaxPool": _pool("max"), "AveragePool": _pool("average"),
    "GlobalAveragePool": lambda a, x: x.mean(list(range(2, x.ndim)), keepdim=True),
    "BatchNormalization": _batch_norm, "GroupNormalization": _group_norm, "LayerNormalization": _layer_norm,
    "InstanceNormalization": lambda a, x, scale, bias: F.instance_norm(
        x, weight=scale, bias=bias, eps=a.get("epsilon", 1e-5)
    ),
    "Reshape": _reshape, "Flatten": _flatten, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Expand": _expand,
    "Transpose": lambda a, x: x.permute(a.get("perm", list(reversed(range(x.ndim))))), "Concat": _concat,
    "Split": _split, "Slice": _slice, "Gather": _gather,
    "Shape": lambda a, x: list(x.shape)[a.get("start"):a.get("end")],
    "Constant": _constant, "ConstantOfShape": _constant_of_shape, "Cast": _cast, "Identity": lambda a, x: x,
    "Dropout": lambda a, x, *rest: x, "Resize": _resize, "Pad": _pad, "DepthToSpace": _depth_to_space,
    "ReduceMean": _reduce(lambda x, axes, keep: x.mean(axes, keep)),
    "ReduceSum": _reduce(lambda x, axes, keep: x.sum(axes, keep)),
    "ReduceMax": _reduce(lambda x, axes, keep: x.amax(axes, keep)),
}  # fmt: skip
"""The operations by their names in ONNX."""
