"""The conversion of a module to a graph for a page: `torch.export` traces it, and `operators.py` writes the nodes."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.fx.node import map_aggregate, map_arg

from unbraid.errors import UserError
from unbraid.exporting.formats import silence_warnings
from unbraid.reporting.graph import Graph, Shape, UnsupportedOperatorError, Value
from unbraid.reporting.operators import KEPT, write_operator
from unbraid.reporting.weights import EXPLORE_HINT


def trace(module: nn.Module, shape: Shape) -> torch.export.ExportedProgram:
    """Return the graph of a module for an input of this shape, in the operators of PyTorch's core ATen set.

    Operators of `operators.KEPT` are not decomposed further.

    Raises:
        UserError: If `torch.export` cannot trace the module.
    """
    z = torch.zeros(shape)
    try:
        with torch.no_grad(), silence_warnings(), warnings.catch_warnings():
            # PyTorch warns about layers that cache their weights as attributes.
            warnings.filterwarnings("ignore", "The tensor attributes", UserWarning)
            module(z)  # Run the module once, because constants that it caches must not be created while tracing.
            program = torch.export.export(module, (z,))
            table = torch.export.default_decompositions()
            for kept in [key for key in table if operator_name(key) in KEPT]:
                table.pop(kept)
            decomposed: torch.export.ExportedProgram = program.run_decompositions(table)
            return decomposed
    except Exception as error:
        reason = " ".join(str(error).split()[:40]) or type(error).__name__
        raise UserError(f"torch.export cannot trace this decoder: {reason} ... {EXPLORE_HINT}") from error


def operator_name(target: Any) -> str:
    """Return the name of an ATen operator without its overload, such as "add"."""
    schema = getattr(target, "_schema", None)
    return str(getattr(target, "__name__", target) if schema is None else schema.name.removeprefix("aten::"))


def write_module(graph: Graph, module: nn.Module, x: Value) -> Value:
    """Write the nodes of a module that is applied to x, and return its output.

    Raises:
        UserError: If the module cannot be traced, or a page cannot run one of its operators.
    """
    program = trace(module, x.shape)
    known: dict[Node, Any] = {}
    constants = _constants(program)
    for node in program.graph.nodes:
        if node.op == "placeholder":
            known[node] = constants.get(node.name, x)
        elif node.op == "call_function":
            known[node] = _write_node(graph, node, known)
        elif node.op == "output":
            outputs: Any = map_arg(node.args[0], known.__getitem__)
            if len(outputs) != 1 or not isinstance(outputs[0], Value | Tensor):
                raise UserError(f"A page runs decoders that return one tensor. Got {len(outputs)}. {EXPLORE_HINT}")
            return graph.value(outputs[0])
    raise AssertionError("a graph ends with its output")


def _constants(program: torch.export.ExportedProgram) -> dict[str, Tensor]:
    """Return the parameters, buffers and constants of a traced module by the names of their placeholders."""
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names |= signature.inputs_to_lifted_tensor_constants
    tensors = {**program.constants, **program.state_dict}
    return {placeholder: tensors[name].detach() for placeholder, name in names.items()}


def _write_node(graph: Graph, node: Node, known: dict[Node, Any]) -> Any:
    """Write a node of a traced graph. A node that does not depend on the input is evaluated instead."""
    target: Any = node.target
    given: Any = map_arg((node.args, node.kwargs), known.__getitem__)
    args, kwargs = given
    if target is operator.getitem:
        return _select_output(node, *args)
    if operator_name(target).startswith("_assert"):
        return None
    if not _contains_values(given):
        with torch.no_grad():
            constant = target(*args, **kwargs)
            return constant.zero_() if operator_name(target) == "empty" else constant
    if not isinstance(target, torch._ops.OpOverload):
        raise UnsupportedOperatorError(operator_name(target))
    named = {argument.name: argument.default_value for argument in target._schema.arguments}
    named |= dict(zip(named, args, strict=False)) | kwargs
    return write_operator(graph, node, operator_name(target), named)


def _select_output(node: Node, outputs: Sequence[Any], index: int) -> Any:
    """Return one of several outputs of an operator.

    `outputs` has only the outputs before the first output that a page cannot compute.
    """
    if index >= len(outputs):
        source: Any = node.args[0]
        raise UnsupportedOperatorError(operator_name(source.target), f"if output {index} is used")
    return outputs[index]


def _contains_values(args: Any) -> bool:
    found: list[Any] = []
    map_aggregate(args, lambda one: found.append(isinstance(one, Value)))
    return any(found)
