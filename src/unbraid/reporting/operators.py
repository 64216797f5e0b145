"""The ATen operators that the JavaScript of a report can run, each with a function that adds its nodes to a graph.

The operators are in tables. `MAPS` has elementwise functions. `COPIES` and `VIEWS` have operators whose output is a
copy or a view of their input. `SEPARABLE` has operators that apply one linear map along each axis, such as bilinear
upsampling. `REDUCTIONS` has sums, means and so on over axes. `BOOLEAN` has bitwise operators that are supported only
for booleans. `WRITERS` has all other operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from unbraid.reporting.graph import Given, Graph, UnsupportedOperatorError, Value
from unbraid.reporting.layers import (
    reduce,
    write_addmm,
    write_batch_norm,
    write_cat,
    write_convolution,
    write_group_norm,
    write_instance_norm,
    write_layer_norm,
    write_linear,
    write_log_softmax,
    write_max_pool,
    write_mm,
    write_softmax,
)
from unbraid.reporting.separable import SEPARABLE, write_separable

MAPS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp",
                     "expm1", "floor", "log", "log10", "log1p", "log2", "logical_not", "neg", "reciprocal", "relu",
                     "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"), ("self",)),
    **dict.fromkeys(("atan2", "eq", "fmod", "ge", "gt", "le", "logical_and", "logical_or", "lt", "maximum", "minimum",
                     "mul", "ne", "remainder"), ("self", "other")),
    "elu": ("self", "alpha", "scale", "input_scale"),
    "leaky_relu": ("self", "negative_slope"),
    "pow": ("self", "exponent"),
    "where": ("condition", "self", "other"),
}  # fmt: skip
"""Operators that a function of the same name in `assets/operators.js` computes, and the arguments that it takes."""

COPIES = ("alias", "clone")
VIEWS = ("diagonal", "expand", "permute", "select", "slice", "split_with_sizes", "squeeze", "unfold",
         "unsqueeze", "view")  # fmt: skip
BOOLEAN = {"bitwise_and": "logical_and", "bitwise_not": "logical_not", "bitwise_or": "logical_or", "bitwise_xor": "ne"}

REDUCTIONS = ("amax", "amin", "any", "max", "mean", "min", "prod", "sum", "var")


def write_operator(graph: Graph, node: Node, name: str, given: Given) -> Any:
    """Write the nodes of an operator, and return its outputs.

    Raises:
        UnsupportedOperatorError: If a page cannot run the operator.
    """
    meta = node.meta["val"]
    shape = tuple(meta.shape) if isinstance(meta, Tensor) else tuple(meta[0].shape)
    if name in MAPS:
        return graph.map(name, shape, *(given[key] for key in MAPS[name]))
    if name in COPIES:
        return given["self"]
    if name in VIEWS:
        return _write_view(graph, node, given)
    if name in SEPARABLE:
        return write_separable(graph, node, name, given, shape)
    if name in REDUCTIONS:
        return _write_reduction(graph, name, given, shape)
    if name in WRITERS:
        return WRITERS[name](graph, given, shape)
    if name in BOOLEAN and meta.dtype == torch.bool:
        return graph.map(BOOLEAN[name], shape, *(given[key] for key in ("self", "other") if key in given))
    raise UnsupportedOperatorError(name)


def _write_view(graph: Graph, node: Node, given: Given) -> Any:
    """Write an operator whose output is a view. To find the strides of the view, run the operator in PyTorch."""
    x: Value = given["self"]
    target: Any = node.target
    views = target(**{**given, "self": torch.empty(x.shape)})
    written = [
        graph.view(x, view.shape, view.stride(), int(view.storage_offset()))
        for view in ([views] if isinstance(views, Tensor) else views)
    ]
    return written[0] if isinstance(views, Tensor) else written


def _write_reduction(graph: Graph, name: str, given: Given, shape: Any) -> Any:
    """Write a reduction over some axes, or over all axes."""
    x, axes = given["self"], reduced_axes(given)
    kind = {"max": "amax", "min": "amin", "any": "amax"}.get(name, name)
    if name == "any":
        x = graph.map("ne", x.shape, x, 0.0)
    result = reduce(graph, x, axes, kind, shape, _correction(given))
    return [result] if "dim" in given and name in ("max", "min") else result


def reduced_axes(given: Given) -> list[int]:
    """Return the axes over which an operator reduces its input. If it names no axes, return all axes."""
    rank, dim = len(given["self"].shape), given.get("dim")
    axes = [dim] if isinstance(dim, int) else dim
    return [axis % rank for axis in axes] if axes else list(range(rank))


def _correction(given: Given) -> float:
    """Return the number that a variance subtracts from the number of elements in its denominator (default 1)."""
    correction = given.get("correction")
    return 1.0 if correction is None else float(correction)


def _write_var_mean(graph: Graph, given: Given, shape: Any) -> list[Value]:
    axes = reduced_axes(given)
    return [reduce(graph, given["self"], axes, "var", shape, _correction(given)),
            reduce(graph, given["self"], axes, "mean", shape)]  # fmt: skip


def _write_vector_norm(graph: Graph, given: Given, shape: Any) -> Value:
    """Write (sum_i |x_i|^p)^(1/p) for a finite p > 0."""
    x, p = given["self"], float(given["ord"])
    if not 0 < p < math.inf:
        raise UnsupportedOperatorError("linalg_vector_norm", f"of order {p:g}")
    powers = graph.map("pow", x.shape, graph.map("abs", x.shape, x), p)
    return graph.map("pow", shape, reduce(graph, powers, reduced_axes(given), "sum", shape), 1 / p)


def _write_sum(name: str) -> Callable[[Graph, Given, Any], Value]:
    """Return the writer of "add" or "sub". Both operators may multiply the second operand by `alpha`."""

    def write(graph: Graph, given: Given, shape: Any) -> Value:
        other, alpha = given["other"], given.get("alpha", 1)
        if alpha != 1:
            other = graph.map("mul", other.shape, other, alpha) if isinstance(other, Value) else other * alpha
        return graph.map(name, shape, given["self"], other)

    return write


def _write_div(graph: Graph, given: Given, shape: Any) -> Value:
    result = graph.map("div", shape, given["self"], given["other"])
    return graph.map(given["rounding_mode"], shape, result) if given.get("rounding_mode") else result


def _write_gelu(graph: Graph, given: Given, shape: Any) -> Value:
    return graph.map("gelu_tanh" if given["approximate"] == "tanh" else "gelu", shape, given["self"])


def _write_clamp(graph: Graph, given: Given, shape: Any) -> Value:
    low, high = (given.get(key, given.get(f"{key}_val")) for key in ("min", "max"))
    return graph.map(
        "clamp", shape, given["self"], -math.inf if low is None else low, math.inf if high is None else high
    )


def _write_to_copy(graph: Graph, given: Given, shape: Any) -> Value:
    """Write a conversion to another type.

    All numbers of a page are float32. Only conversions to integers or booleans therefore change the numbers.
    """
    dtype = given["dtype"]
    if dtype == torch.bool:
        return graph.map("ne", shape, given["self"], 0.0)
    whole = dtype is not None and not dtype.is_floating_point
    return graph.map("trunc", shape, given["self"]) if whole else given["self"]


def _write_copy(graph: Graph, given: Given, shape: Any) -> Value:
    """Write an assignment to all elements of a tensor."""
    source = graph.value(given["src"])
    stride = torch.empty(source.shape, device="meta").expand(shape).stride()
    return graph.view(source, shape, stride, 0)


def _write_slice_scatter(graph: Graph, given: Given, shape: Any) -> Value:
    """Write an assignment to a slice along one axis.

    The output joins the elements before the slice, the new elements, and the elements after the slice.
    """
    axis, size, (start, end, step) = given["dim"], shape[given["dim"]], (given[key] for key in ("start", "end", "step"))
    start, end, step = slice(start, end, step).indices(size)
    if step != 1:
        raise UnsupportedOperatorError("slice_scatter", f"with step {step}")
    x = graph.value(given["self"])
    stride = torch.empty(shape, device="meta").stride()
    parts = [graph.value(given["src"])]
    for at, (first, last) in ((0, (0, start)), (2, (max(start, end), size))):
        if last > first:
            sizes = (*shape[:axis], last - first, *shape[axis + 1 :])
            parts.insert(at, graph.view(x, sizes, stride, first * stride[axis]))
    return write_cat(graph, {"tensors": parts, "dim": axis}, shape)


def _write_full_like(graph: Graph, given: Given, shape: Any) -> Tensor:
    return torch.full(shape, float(given["fill_value"]))


WRITERS: dict[str, Callable[[Graph, Given, Any], Any]] = {
    "add": _write_sum("add"),
    "sub": _write_sum("sub"),
    "div": _write_div,
    "gelu": _write_gelu,
    "clamp": _write_clamp,
    "hardtanh": _write_clamp,
    "copy": _write_copy,
    "slice_scatter": _write_slice_scatter,
    "var_mean": _write_var_mean,
    "linalg_vector_norm": _write_vector_norm,
    "_to_copy": _write_to_copy,
    "full_like": _write_full_like,
    "linear": write_linear,
    "mm": write_mm,
    "bmm": write_mm,
    "addmm": write_addmm,
    "convolution": write_convolution,
    "cat": write_cat,
    "max_pool2d_with_indices": write_max_pool,
    "_native_batch_norm_legit_no_training": write_batch_norm,
    "_native_batch_norm_legit": write_instance_norm,
    "native_layer_norm": write_layer_norm,
    "native_group_norm": write_group_norm,
    "_softmax": write_softmax,
    "_log_softmax": write_log_softmax,
}

KEPT = {*SEPARABLE, "linear"}
"""Operators that are not decomposed further when a decoder is traced."""

SUPPORTED = {
    "functions of each element": (*MAPS, "add", "sub", "div", "gelu", "clamp", "hardtanh", *BOOLEAN),
    "dense layers and products": ("linear", "mm", "bmm", "addmm"),
    "convolutions": ("convolution",),
    "normalisation and softmax": ("_native_batch_norm_legit_no_training", "_native_batch_norm_legit",
                                  "native_layer_norm", "native_group_norm", "_softmax", "_log_softmax"),
    "upsampling, pooling, padding and fixed indices": (*SEPARABLE, "max_pool2d_with_indices"),
    "reductions": (*REDUCTIONS, "var_mean", "linalg_vector_norm"),
    "shapes and copies": (*VIEWS, *COPIES, "cat", "copy", "slice_scatter", "full_like", "_to_copy"),
}  # fmt: skip
"""The names of all operators that a page can run, by kind."""
