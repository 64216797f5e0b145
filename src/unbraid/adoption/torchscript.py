"""Conversion of TorchScript programs to graphs for any number of examples.

torch.export does not accept TorchScript. The program is run on two batch sizes instead, and its operations are
recorded. A whole number that differs between the two records depends on the batch size and is taken to be linear in it.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from unbraid.errors import UserError

SIZES = (2, 3)  # batch sizes of the two records


def contains_script(part: nn.Module) -> bool:
    """Return whether a module contains a TorchScript program."""
    return any(isinstance(module, torch.jit.ScriptModule) for module in part.modules())


def convert_script(part: nn.Module, x: Tensor) -> GraphModule:
    """Convert a module that contains TorchScript to a graph of operations that accepts any number of examples.

    Raises:
        UserError: If the two records do not have the same operations.
    """
    first, second = (make_fx(part, tracing_mode="real")(x[:size]) for size in SIZES)
    for module in (first, second):
        module.graph.eliminate_dead_code()
    pairs = list(zip(first.graph.nodes, second.graph.nodes, strict=False))
    if len(first.graph.nodes) != len(second.graph.nodes) or any(a.target != b.target for a, b in pairs):
        raise UserError("The program must compute the same operations for any number of examples. Got different ones.")
    placeholder = next(node for node in second.graph.nodes if node.op == "placeholder")
    with second.graph.inserting_after(placeholder):
        size = second.graph.call_function(torch.ops.aten.sym_size.int, (placeholder, 0))
    for a, b in pairs:
        with second.graph.inserting_before(b):
            b.args = _merge(a.args, b.args, size, second.graph)
            b.kwargs = _merge(dict(a.kwargs), dict(b.kwargs), size, second.graph)
    second.recompile()
    return second


def _merge(a: Any, b: Any, size: Node, graph: Graph) -> Any:
    """Merge the arguments of an operation in the first record, `a`, with those in the second record, `b`.

    A whole number that differs between the records is replaced by a linear function of the batch size.
    """
    if isinstance(b, tuple | list):
        if len(a) != len(b):
            raise UserError("The program must use shapes of the same length for any number of examples.")
        return type(b)([_merge(x, y, size, graph) for x, y in zip(a, b, strict=True)])
    if isinstance(b, dict):
        return {key: _merge(a[key], value, size, graph) for key, value in b.items()}
    if isinstance(b, Node) or a == b:
        return b
    if type(a) is not int or type(b) is not int:
        raise UserError(
            "Only whole numbers in the program may depend on the number of examples. Got the argument "
            f"{a!r} for {SIZES[0]} examples and {b!r} for {SIZES[1]} examples."
        )
    slope = (b - a) // (SIZES[1] - SIZES[0])
    offset = a - SIZES[0] * slope
    scaled = size if slope == 1 else graph.call_function(operator.mul, (size, slope))
    return scaled if offset == 0 else graph.call_function(operator.add, (scaled, offset))
