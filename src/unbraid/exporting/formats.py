"""The two file formats of exports, ONNX and torch.export, each with a function that writes and one that runs a file."""

from __future__ import annotations

import importlib.util
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from unbraid.errors import UserError
from unbraid.exporting.parts import TRACED_EXAMPLES, ExportPart
from unbraid.nets.onnx_runner import Runner, onnx_runner

FileAndReader = tuple[bytes, Callable[[bytes], Runner]]
"""The content of a file, and a function that loads such content and returns a function that runs the network."""


def trace_part(part: ExportPart) -> torch.export.ExportedProgram:
    """Return the part as a graph of operations that accepts any number of examples."""
    sizes = ({0: torch.export.Dim("n", min=1)},)
    with torch.no_grad():
        # Run the module once, because constants that it caches must not be created while tracing.
        part.module(part.examples[:TRACED_EXAMPLES])
    try:
        with silence_warnings():
            return torch.export.export(part.module, (part.examples[:TRACED_EXAMPLES],), dynamic_shapes=sizes)
    except Exception as error:
        reason = " ".join(str(error).split()[:60]) or type(error).__name__
        raise UserError(
            f"The {part.name} cannot be written as a graph that accepts any number of examples: {reason} ... A "
            "network of your own must consist of PyTorch operations, without branches that depend on the data or the "
            "batch size."
        ) from error


def torch_program(part: ExportPart) -> FileAndReader:
    """Return the content of a .pt2 file, and a function that loads it."""
    buffer = io.BytesIO()
    with silence_warnings():
        torch.export.save(trace_part(part), buffer)
    return buffer.getvalue(), torch_runner


def torch_runner(content: bytes) -> Runner:
    """Return a function that runs the network of a .pt2 file."""
    with silence_warnings():
        module = torch.export.load(io.BytesIO(content)).module()

    def run(x: Tensor) -> list[Tensor]:
        with torch.no_grad():
            outputs = module(x)
        return list(outputs) if isinstance(outputs, tuple | list) else [outputs]

    return run


def onnx_model(part: ExportPart) -> FileAndReader:
    """Return the content of an ONNX file, and a function that loads it."""
    graph = trace_part(part)
    try:
        with silence_warnings():
            program = torch.onnx.export(
                graph, dynamo=True, input_names=[part.input], output_names=part.outputs, verbose=False
            )
    except Exception as error:
        raise UserError(
            f"The {part.name} uses an operation that ONNX does not have: {str(error).splitlines()[0]} "
            "Export it with format 'torch' instead."
        ) from error
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    return content, lambda stored: onnx_runner(stored, part.input)


FORMATS: dict[str, Callable[[ExportPart], FileAndReader]] = {"onnx": onnx_model, "torch": torch_program}


def check_installed(format: str) -> None:
    """Raise a UserError if a package that the format needs is not installed."""
    needed: Sequence[str] = ("onnx", "onnxscript") if format == "onnx" else ()
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"Export to ONNX needs packages that are not installed: {', '.join(missing)}. Install them with "
            "pip install \"unbraid[export]\", or export with format 'torch'."
        )


@contextmanager
def silence_warnings() -> Iterator[None]:
    """Hide PyTorch's deprecation warnings and its log messages about optional packages."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    with warnings.catch_warnings():
        for kind in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", kind)
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)
