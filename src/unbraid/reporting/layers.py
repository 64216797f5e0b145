"""Layers of a decoder as nodes of a graph: products, convolutions, normalisation, softmax and pooling.

The function `write_...` of a layer adds the nodes of the layer to a graph and returns its output. It gets the
arguments of the ATen operator (`given`) and the shape of the output.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from unbraid.reporting.graph import Given, Graph, UnsupportedOperatorError, Value


def reduce(graph: Graph, x: Value, axes: list[int], kind: str, shape: Any = None, correction: float = 1) -> Value:
    """Write a reduction of x over some axes. In the default shape of the output, these axes have size 1."""
    kept = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    extra = {"correction": correction} if kind == "var" else {}
    return graph.add("reduce", [x], kept if shape is None else shape, kept=kept, kind=kind, **extra)


def write_batch_norm(graph: Graph, given: Given, shape: Any) -> list[Value]:
    """Write (x - mean) / sqrt(variance + eps) * weight + bias with the stored mean and variance of each channel."""
    scale = (given["running_var"].double() + given["eps"]).rsqrt()
    scale = scale if given["weight"] is None else scale * given["weight"].double()
    shift = -given["running_mean"].double() * scale
    shift = shift if given["bias"] is None else shift + given["bias"].double()
    wide = (1, -1, *[1] * (len(shape) - 2))
    return [graph.map("affine", shape, given["input"], scale.reshape(wide), shift.reshape(wide))]


def _write_standardised(graph: Graph, x: Value, size: int, given: Given, wide: tuple[int, ...]) -> list[Value]:
    """Write a normalisation of every `size` consecutive elements.

    Then write a multiplication by the weight and an addition of the bias, both reshaped to `wide`.
    """
    result = graph.add("standardise", [x], x.shape, size=size, eps=given["eps"])
    if given["weight"] is not None:
        result = graph.map("mul", x.shape, result, given["weight"].reshape(wide))
    if given["bias"] is not None:
        result = graph.map("add", x.shape, result, given["bias"].reshape(wide))
    return [result]


def write_layer_norm(graph: Graph, given: Given, shape: Any) -> list[Value]:
    normalised = tuple(given["normalized_shape"])
    return _write_standardised(graph, given["input"], math.prod(normalised), given, normalised)


def write_group_norm(graph: Graph, given: Given, shape: Any) -> list[Value]:
    size = given["C"] * given["HxW"] // given["group"]
    return _write_standardised(graph, given["input"], size, given, (1, -1, *[1] * (len(shape) - 2)))


def write_instance_norm(graph: Graph, given: Given, shape: Any) -> list[Value]:
    """Write a batch normalisation with the statistics of the batch, which is how instance normalisation is traced."""
    if shape[0] != 1:
        raise UnsupportedOperatorError("_native_batch_norm_legit", "with more than one example")
    size = math.prod(shape[2:])
    return _write_standardised(graph, given["input"], size, given, (1, -1, *[1] * (len(shape) - 2)))


def write_softmax(graph: Graph, given: Given, shape: Any) -> Value:
    axis = given["dim"] % len(shape)
    shifted = graph.map("sub", shape, given["self"], reduce(graph, given["self"], [axis], "amax"))
    powers = graph.map("exp", shape, shifted)
    return graph.map("div", shape, powers, reduce(graph, powers, [axis], "sum"))


def write_log_softmax(graph: Graph, given: Given, shape: Any) -> Value:
    axis = given["dim"] % len(shape)
    shifted = graph.map("sub", shape, given["self"], reduce(graph, given["self"], [axis], "amax"))
    total = reduce(graph, graph.map("exp", shape, shifted), [axis], "sum")
    return graph.map("sub", shape, shifted, graph.map("log", total.shape, total))


def write_cat(graph: Graph, given: Given, shape: Any) -> Value:
    tensors = [graph.value(one) for one in given["tensors"] if math.prod(one.shape)]
    return graph.add("cat", list(tensors), shape, axis=given["dim"] % len(shape))


def write_max_pool(graph: Graph, given: Given, shape: Any) -> list[Value]:
    x: Value = given["self"]
    image = graph.reshape(x, (1,) * (4 - len(x.shape)) + x.shape)
    kernel = _pair(given["kernel_size"])
    settings = {"kernel": kernel, "stride": _pair(given["stride"]) if given["stride"] else kernel}
    settings |= {key: _pair(given[key]) for key in ("padding", "dilation")}
    pooled = graph.add("max_pool", [image], (1,) * (4 - len(shape)) + shape, **settings)
    return [graph.reshape(pooled, shape)]


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value) * (2 // len(value))


def write_constant_linear(graph: Graph, x: Value, weight: Tensor, bias: Tensor | None = None) -> Value:
    """Write x W^T + b for the constants W (`weight`) and b (`bias`), where x has any number of axes."""
    layer = graph.weights.layer("linear layer", weight, bias)
    shape = (*x.shape[:-1], len(weight))
    return graph.add("linear", [x], shape, deep=weight.shape[1], wide=weight.shape[0], **layer)


def write_linear(graph: Graph, given: Given, shape: Any) -> Value:
    """Write x W^T + b, where x has any number of axes and W and b may be constants or computed tensors."""
    x, weight, bias = given["input"], given["weight"], given["bias"]
    if isinstance(x, Value) and isinstance(weight, Tensor) and not isinstance(bias, Value):
        return write_constant_linear(graph, x, weight, bias)
    rows = graph.reshape(graph.value(x), (1, -1 if isinstance(x, Tensor) else math.prod(x.shape[:-1]), x.shape[-1]))
    w = graph.value(weight)
    product = _write_matmul(graph, rows, graph.view(w, (1, w.shape[1], w.shape[0]), (1, 1, w.shape[1]), 0))
    result = graph.reshape(product, shape)
    return result if bias is None else graph.map("add", shape, result, bias)


def _write_matmul(graph: Graph, a: Value, b: Value) -> Value:
    return graph.add("matmul", [a, b], (a.shape[0], a.shape[1], b.shape[2]))


def write_mm(graph: Graph, given: Given, shape: Any) -> Value:
    a, b = given["self"], given["mat2"]
    if isinstance(b, Tensor) and b.ndim == 2:
        return write_linear(graph, {"input": a, "weight": b.T, "bias": None}, shape)
    a, b = (graph.reshape(graph.value(one), (1,) * (3 - len(one.shape)) + tuple(one.shape)) for one in (a, b))
    return graph.reshape(_write_matmul(graph, a, b), shape)


def write_addmm(graph: Graph, given: Given, shape: Any) -> Value:
    product = write_mm(graph, {"self": given["mat1"], "mat2": given["mat2"]}, shape)
    product = product if given["alpha"] == 1 else graph.map("mul", shape, product, given["alpha"])
    added = given["self"]
    if given["beta"] != 1:
        added = (
            added * given["beta"] if isinstance(added, Tensor) else graph.map("mul", added.shape, added, given["beta"])
        )
    return graph.map("add", shape, product, added)


def write_convolution(graph: Graph, given: Given, shape: Any) -> Value:
    """Write a convolution of images or sequences. A sequence is treated as an image of height 1."""
    x, weight, bias = given["input"], given["weight"], given["bias"]
    if len(shape) > 4 or isinstance(weight, Value) or isinstance(bias, Value) or isinstance(x, Tensor):
        reason = "in three dimensions" if len(shape) > 4 else "with computed weights"
        raise UnsupportedOperatorError("convolution", reason)
    missing = 4 - len(shape)
    fill = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
    settings = {key: [value] * missing + list(given[key]) for key, value in fill.items() if key != "output_padding"}
    groups, transposed = given["groups"], given["transposed"]
    deep, wide = (
        (weight.shape[0] // groups, weight.shape[1]) if transposed else (weight.shape[1], weight.shape[0] // groups)
    )
    image = graph.reshape(x, (*x.shape[:2], *[1] * missing, *x.shape[2:]))
    layer = graph.weights.layer("convolution", weight, bias)
    sizes = {"deep": deep, "wide": wide, "groups": groups, "kernel": [1] * missing + list(weight.shape[2:])}
    large = (*shape[:2], *[1] * missing, *shape[2:])
    result = graph.add("conv", [image], large, transposed=transposed, **sizes, **settings, **layer)
    return graph.reshape(result, shape)
