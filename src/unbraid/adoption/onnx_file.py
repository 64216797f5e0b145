"""Reading of ONNX files as PyTorch modules.

The operations of the file are computed by PyTorch, so the model can be traced, stored, exported and run on any device.
An ONNX file is data: reading it runs no code. After a file is read, the outputs of the module are compared with those
of onnxruntime. If onnxruntime is not installed, they are compared with those of onnx's own evaluator.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unbraid.adoption.onnx_operations import OPERATIONS, Attributes, plain_integers
from unbraid.errors import UserError
from unbraid.nets.any_model import FIELDS, MAIN_FIELDS
from unbraid.nets.onnx_runner import onnx_runner
from unbraid.runtime.read_errors import READ_ERRORS

MAX_BYTES = 2 * 1024**3
TOLERANCE = 1e-4
PLAIN_INPUTS = {"Resize": (1, 2), "Pad": (2,)}
"""For each operation, the indices of those inputs that must be known as numbers when a model is traced.

Resize needs the numbers of its region and its scales. Pad needs the value of the padding.
"""


class OnnxModule(nn.Module):
    """A module that computes the graph of an ONNX model with one input.

    It returns one tensor, a dictionary of tensors by the names of the outputs, or a tuple of tensors (see
    `named_outputs`).
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        graph = model.graph
        plain = {
            node.input[i] for node in graph.node for i in PLAIN_INPUTS.get(node.op_type, ()) if i < len(node.input)
        }
        stored = {tensor.name: _plain(_as_tensor(tensor), tensor.name in plain) for tensor in graph.initializer}
        inputs = [value.name for value in graph.input if value.name not in stored]
        if len(inputs) != 1:
            raise UserError(f"The ONNX model must have one input. Got {len(inputs)} instead: {', '.join(inputs)}.")
        self.input, self.outputs = inputs[0], [value.name for value in graph.output]
        dims = next(value for value in graph.input if value.name == self.input).type.tensor_type.shape.dim
        self.sizes = tuple(dim.dim_value for dim in dims)  # shape of a batch, where 0 means unknown
        self.steps = [
            (OPERATIONS[node.op_type], list(node.input), list(node.output), _attributes(node, plain))
            for node in graph.node
        ]
        self.numbers = {name: value for name, value in stored.items() if not isinstance(value, Tensor)}
        self.stored: dict[str, str] = {}
        for i, (name, value) in enumerate(stored.items()):
            if isinstance(value, Tensor):
                self.stored[name] = f"t{i}"
                self.register_buffer(f"t{i}", value)

    def forward(self, x: Tensor) -> Any:
        if self.sizes and tuple(x.shape[1:]) != self.sizes[1:]:
            raise UserError(
                f"The ONNX model takes examples of the shape {self.sizes[1:]}. Got {tuple(x.shape[1:])} instead. "
                "Choose data of this shape. For your own images, the size is part of the name, as in photos?size=64."
            )
        values: dict[str, Any] = {"": None, self.input: x, **self.numbers}
        values |= {name: getattr(self, own) for name, own in self.stored.items()}
        for operation, inputs, outputs, attributes in self.steps:
            result = operation(attributes, *(values[name] for name in inputs))
            values |= zip(outputs, result if isinstance(result, tuple) else (result,), strict=False)
        return named_outputs({name: values[name] for name in self.outputs})


def named_outputs(found: dict[str, Any]) -> Any:
    """Return the outputs of a model in the form in which `read_posterior` and `read_examples` find the right ones.

    This is the only output, a dictionary by name if the names say what the outputs are, and otherwise a tuple, because
    PyTorch gives outputs arbitrary names by default.

    >>> named_outputs({"mu": 1, "logvar": 2}), named_outputs({"25": 1, "26": 2}), named_outputs({"mu": 1, "26": 2})
    ({'mu': 1, 'logvar': 2}, (1, 2), (1, 2))
    """
    first, *others = found
    if not others:
        return found[first]
    if found.keys().isdisjoint(MAIN_FIELDS) or (first in MAIN_FIELDS and len(others) == 1 and others[0] not in FIELDS):
        return tuple(found.values())
    return found


def _plain(value: Tensor, needed: bool) -> Any:
    """Return a tensor as Python numbers if `needed` is true. Otherwise convert it with `plain_integers`."""
    return value.tolist() if needed else plain_integers(value)


def _attributes(node: Any, plain: set[str]) -> Attributes:
    """Return the attributes of a node by name.

    Tensors are converted by `_plain`. The argument `needed` is true for a constant whose output is in `plain`.
    """
    import onnx

    values: Attributes = {"outputs": len(node.output)}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            value = _plain(_as_tensor(value), node.op_type == "Constant" and node.output[0] in plain)
        values[attribute.name] = value.decode() if isinstance(value, bytes) else value
    return values


def _as_tensor(tensor: Any) -> Tensor:
    from onnx import numpy_helper

    return torch.from_numpy(np.array(numpy_helper.to_array(tensor)))


def read_onnx(path: Path) -> nn.Module:
    """Read an ONNX file.

    Raises:
        UserError: If onnx is not installed, if the file is not a valid ONNX model, or if it uses an operation that
            unbraid does not know.
    """
    if importlib.util.find_spec("onnx") is None:
        raise UserError('Reading an ONNX file needs the package onnx. Install it with: pip install "unbraid[export]"')
    import onnx

    if path.stat().st_size > MAX_BYTES:
        raise UserError(f"{path} must have at most {MAX_BYTES / 1e9:.1f} GB. Got a larger file.")
    try:
        model = onnx.load_from_string(path.read_bytes())
        load_external_weights(model, path)
        onnx.checker.check_model(model)
        model = inline_functions(model)
    except UserError:
        raise
    except Exception as error:  # protobuf and onnx raise errors of many types
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} must be an ONNX file with its weights. Got: {reason}") from error
    unknown = sorted({node.op_type for node in model.graph.node} - set(OPERATIONS))
    if unknown:
        raise UserError(
            f"{path} uses operations that unbraid cannot run: {', '.join(unknown)}. Adopt the model from Python, "
            "TorchScript or torch.export instead."
        )
    try:
        module = OnnxModule(model).eval()
    except UserError:
        raise
    except READ_ERRORS as error:
        raise UserError(
            f"{path} must have tensors and attributes that fit their types and shapes. One of them does not. Export "
            "the model again."
        ) from error
    check_outputs(module, model, path)
    return module


def load_external_weights(model: Any, path: Path) -> None:
    """Read weights that are stored outside the model file, such as in ``model.onnx.data``, into the model.

    PyTorch writes such a separate file by default. Only files in the folder of the model are read, so that a model of
    unknown origin cannot read any other file.

    Raises:
        UserError: If a file is missing or lies elsewhere, or if the weights are too large.
    """
    from onnx import external_data_helper

    tensors = filter(external_data_helper.uses_external_data, external_data_helper._get_all_tensors(model))
    names = {external_data_helper.ExternalDataInfo(tensor).location for tensor in tensors}
    for name in sorted(names):
        file = path.parent / name
        if Path(name).name != name or file.is_symlink() or not file.is_file():
            raise UserError(
                f"{path} has weights in the file {name!r}, which must lie in the same folder. Got no such file. Copy "
                "it there, or export the model with external_data=False."
            )
    if sum((path.parent / name).stat().st_size for name in names) > MAX_BYTES:
        raise UserError(f"The weights of {path} must have at most {MAX_BYTES / 1e9:.1f} GB. Got more.")
    external_data_helper.load_external_data_for_model(model, str(path.parent))


def remedy() -> str:
    """Return advice for the case that the model cannot be run."""
    if importlib.util.find_spec("onnxruntime") is None:
        return "The evaluator of onnx cannot run it. Install onnxruntime, which can run more: pip install onnxruntime"
    return "onnxruntime cannot run it. Check the file with onnx.checker, and export the model again."


@torch.no_grad()
def check_outputs(module: OnnxModule, model: Any, path: Path) -> None:
    """Raise a UserError if a module does not compute the same as onnxruntime or onnx's own evaluator."""
    sizes = module.sizes
    if not sizes or not all(sizes[1:]):
        raise UserError(
            f"{path} must state the shape of one example. Got the shape {list(sizes)} instead, where 0 is unknown."
        )
    x = torch.rand(sizes[0] or 2, *sizes[1:], generator=torch.Generator().manual_seed(0))
    try:
        found = module(x)
    except UserError:
        raise
    except Exception as error:  # operations of a damaged model raise errors of many types
        raise UserError(
            f"{path} must be a model that can be run. An operation failed on an input of the shape {list(x.shape)}, "
            "which the file states. Export the model again."
        ) from error
    actual = [found] if isinstance(found, Tensor) else list(found.values() if isinstance(found, dict) else found)
    try:
        expected = onnx_runner(model.SerializeToString(), module.input)(x)
    except Exception as error:  # the evaluator does not support all models
        raise UserError(
            f"{path} must be a model that can be run, so that its outputs can be checked. {remedy()}"
        ) from error
    for a, b in zip(actual, expected, strict=True):
        if a.shape != b.shape or not float((a - b).abs().max()) <= TOLERANCE * max(1.0, float(b.abs().max())):
            raise UserError(f"{path} has operations that unbraid computes differently. Adopt the model from Python.")


def inline_functions(model: Any) -> Any:
    """Return a model whose local functions are replaced by the operations that they consist of."""
    import onnx.inliner

    return onnx.inliner.inline_local_functions(model) if model.functions else model
