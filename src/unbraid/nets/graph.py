"""Networks as data: lists of tensor operations that are stored as JSON, and run without importing or unpickling code.

`store_graph` converts a network that `torch.export` has traced to such a list. `GraphNetwork` runs the list. Only
operations that compute tensors from tensors are accepted (see `find_operation`), so a graph of unknown origin cannot
run other code or open files.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from unbraid.errors import UserError

KEPT = (
    "linear.default", "conv1d.default", "conv2d.default", "conv_transpose2d.input", "matmul.default",
    "batch_norm.default", "group_norm.default", "layer_norm.default", "instance_norm.default", "max_pool2d.default",
    "adaptive_avg_pool2d.default", "upsample_nearest2d.vec", "upsample_bilinear2d.vec", "pixel_shuffle.default",
    "softmax.int", "flatten.using_ints", "unflatten.int", "reshape.default", "chunk.default", "to.dtype",
    "upsample_nearest1d.default", "upsample_nearest2d.default", "upsample_nearest3d.default",
    "_upsample_nearest_exact1d.default", "_upsample_nearest_exact2d.default", "_upsample_nearest_exact3d.default",
    "adaptive_max_pool2d.default", "adaptive_max_pool3d.default",
)  # fmt: skip
"""Operations that are stored as they are, although PyTorch can express them by more elementary ones."""
FORBIDDEN = re.compile(r"as_strided|empty|from_file|_assert|resize|set_|record_stream")
"""Operations whose names match are never accepted, because they access memory or files directly or return no tensor."""
INTEGER_OPERATIONS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in ("getitem", "add", "sub", "mul", "floordiv", "mod", "neg", "eq", "ne", "ge", "gt", "le", "lt")
}
"""Operations on the sizes of tensors, and `getitem`, which selects one result of an operation that has several."""
CONSTANTS = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
Graph = dict[str, Any]
"""A graph, as a dictionary with two entries.

`nodes` is a list of operations. Each is a dictionary with `op`, `args` and optionally `kwargs`. `output` refers to the
value that the network returns. Arguments refer to values by name: "x" is the input, "t0", "t1" and so on are stored
tensors, and "n0", "n1" and so on are the results of the nodes.
"""


def find_operation(name: str) -> Callable[..., Any]:
    """Return the operation with a name such as "aten.conv2d.default" or "mul".

    An operation is accepted if it is elementary (in the Core ATen set of PyTorch), pointwise or in `KEPT`, and if it
    modifies none of its inputs and draws no random numbers.

    Raises:
        UserError: If the operation is not accepted.

    >>> find_operation("aten.relu.default")
    <OpOverload(op='aten.relu', overload='default')>
    """
    if name in INTEGER_OPERATIONS:
        return INTEGER_OPERATIONS[name]
    match = re.fullmatch(r"aten\.(\w+)\.(\w+)", name)
    packet = getattr(torch.ops.aten, match[1], None) if match else None
    operation = getattr(packet, match[2], None) if match and packet is not None else None
    if not (isinstance(operation, torch._ops.OpOverload) and _is_accepted(operation)):
        raise UserError(f"The operation {name!r} cannot be part of a stored network. Got a network that uses it.")
    return operation


def _is_accepted(operation: torch._ops.OpOverload) -> bool:
    name = operation._schema.name.removeprefix("aten::") + "." + operation._overloadname
    kind = torch.Tag.core in operation.tags or torch.Tag.pointwise in operation.tags or name in KEPT
    random = torch.Tag.nondeterministic_seeded in operation.tags
    return kind and not random and not operation._schema.is_mutable and not FORBIDDEN.search(name)


def store_graph(program: ExportedProgram) -> tuple[Graph, dict[str, Tensor]]:
    """Return the graph of a traced network with one input and one output, and its tensors by their names in the graph.

    If the network uses an operation that is not accepted, such as one that modifies its input, PyTorch first rewrites
    the network in elementary operations, which takes longer.

    Raises:
        UserError: If the rewritten network still contains an operation that is not accepted.
    """
    try:
        return _read_program(program)
    except UserError:
        table = torch.export.default_decompositions()
        table[torch.ops.aten._convolution.default] = lambda *args: torch.ops.aten.convolution.default(*args[:9])
        table[torch.ops.aten.empty.memory_format] = _zeros
        for name in KEPT:
            packet, _, overload = name.partition(".")
            table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
        return _read_program(program.run_decompositions(table))


def _zeros(size: Any, *, dtype: Any = None, device: Any = None, **others: Any) -> Tensor:
    """Return zeros in place of the uninitialised memory that an operation, such as circular padding, fills later."""
    return torch.zeros(size, dtype=dtype, device=device)


def _read_program(program: ExportedProgram) -> tuple[Graph, dict[str, Tensor]]:
    """Return the graph and the tensors of a traced network, or raise a UserError if an operation is not accepted."""
    signature, values = program.graph_signature, {**program.state_dict, **program.constants}
    sources = {**signature.inputs_to_parameters, **signature.inputs_to_buffers,
               **signature.inputs_to_lifted_tensor_constants}  # fmt: skip
    names: dict[str, str] = {}
    tensors: dict[str, Tensor] = {}
    nodes: list[dict[str, Any]] = []
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in sources and node.users:
            names[node.name] = f"t{len(tensors)}"
            tensors[names[node.name]] = values[sources[node.name]].detach().cpu().contiguous().clone()
        elif node.op == "placeholder" and node.name not in sources:
            names[node.name] = "x"
        elif node.target is torch.ops.aten.dropout.default and node.args[2] is False:  # returns its input
            names[node.name] = names[node.args[0].name]
        elif node.op == "call_function" and node.users:
            name = _operation_name(node.target)
            find_operation(name)
            kwargs = {key: _to_json(value, names) for key, value in node.kwargs.items()}
            nodes.append({"op": name, "args": _to_json(node.args, names), **({"kwargs": kwargs} if kwargs else {})})
            names[node.name] = f"n{len(nodes) - 1}"
        elif node.op == "output":
            (output,) = node.args[0]
    return {"nodes": nodes, "output": _to_json(output, names)}, tensors


def _operation_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return next((name for name, known in INTEGER_OPERATIONS.items() if known is target), str(target))


def _to_json(value: Any, names: Mapping[str, str]) -> Any:
    """Return an argument of an operation as JSON. Each JSON object has one key, which says what its value is."""
    if isinstance(value, torch.fx.Node):
        return {"node": names[value.name]}
    if isinstance(value, tuple | list):
        return [_to_json(item, names) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.device):
        return {"device": "input"}
    for kind, cls in CONSTANTS.items():
        if isinstance(value, cls):
            return {kind: str(value).removeprefix("torch.")}
    raise UserError(f"A stored network must have arguments that are numbers. Got {value!r} instead.")


class GraphNetwork(nn.Module):
    """A network that runs a stored graph.

    Args:
        graph: The graph.
        tensors: The tensors of the graph, by name.

    Raises:
        UserError: If the graph is damaged, or uses an operation that is not accepted.
    """

    def __init__(self, graph: Graph, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.names = list(tensors)
        try:
            for name, tensor in tensors.items():
                self.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
            self.steps = [(find_operation(n["op"]), n["args"], n.get("kwargs", {})) for n in graph["nodes"]]
            self.output = graph["output"]
            self.last_uses = self._find_last_uses()
        except UserError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise UserError(
                "A stored network must have nodes and an output, and its nodes must use known values. Got a damaged "
                "one."
            ) from error

    def _find_last_uses(self) -> list[list[str]]:
        """Return, for each step, the names of values that no later step needs. They are released after the step."""
        uses = [_nodes([args, list(kwargs.values())]) for _, args, kwargs in self.steps]
        known = {"x", *self.names}
        for i, used in enumerate([*uses, _nodes(self.output)]):
            if not used <= known:
                raise KeyError(*sorted(used - known))
            known.add(f"n{i}")
        seen = _nodes(self.output)
        last: list[list[str]] = []
        for i, used in reversed(list(enumerate(uses))):
            last.insert(0, sorted((used | {f"n{i}"}) - seen))
            seen |= used | {f"n{i}"}
        return last

    def forward(self, x: Tensor) -> Tensor:
        values: dict[str, Any] = {"x": x, **{name: getattr(self, name) for name in self.names}}
        for i, (operation, args, kwargs) in enumerate(self.steps):
            keywords = {key: _from_json(value, values, x.device) for key, value in kwargs.items()}
            values[f"n{i}"] = operation(*_from_json(args, values, x.device), **keywords)
            for name in self.last_uses[i]:
                del values[name]
        result: Tensor = _from_json(self.output, values, x.device)
        return result


def _nodes(value: Any) -> set[str]:
    """Return the names of all values that an argument refers to."""
    if isinstance(value, list):
        return set().union(*map(_nodes, value))
    if not isinstance(value, dict):
        return set()
    ((kind, content),) = value.items()
    if kind not in ("node", "device"):
        _constant(kind, content)
    return {content} if kind == "node" else set()


def _from_json(value: Any, values: Mapping[str, Any], device: torch.device) -> Any:
    """Return an argument of an operation from the JSON that `_to_json` returned."""
    if isinstance(value, list):
        return [_from_json(item, values, device) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "node":
        return values[content]
    if kind == "device":
        return device
    return _constant(kind, content)


def _constant(kind: str, content: str) -> Any:
    """Return a constant of PyTorch, or a number that JSON does not have, such as infinity."""
    if kind == "float":
        return float(content)
    constant = getattr(torch, content, None)
    if kind not in CONSTANTS or not isinstance(constant, CONSTANTS[kind]):
        raise UserError(f"A stored network must have known constants. Got {kind!r}: {content!r} instead.")
    return constant
