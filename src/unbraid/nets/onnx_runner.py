"""Run ONNX models with onnxruntime or with onnx's own evaluator."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

Runner = Callable[[Tensor], list[Tensor]]
"""A function that runs an exported network on a batch and returns its outputs."""


def onnx_runner(content: bytes, name: str) -> Runner:
    """Return a function that runs an ONNX model with onnxruntime, or with onnx if onnxruntime is not installed.

    `content` is the serialised model, and `name` is the name of its input.
    """
    if importlib.util.find_spec("onnxruntime") is not None:
        session: Any = importlib.import_module("onnxruntime").InferenceSession(content)
    else:
        import onnx.reference

        model = onnx.load_from_string(content)
        session = onnx.reference.ReferenceEvaluator(model, new_ops=[gather_elements()])
    return lambda x: [torch.as_tensor(output) for output in session.run(None, {name: x.numpy()})]


def gather_elements() -> Any:
    """Return an implementation of GatherElements for the evaluator of onnx.

    The evaluator's own implementation rejects negative axes and axes longer than 64.
    """
    from onnx.reference.op_run import OpRun

    def gather(self: Any, data: Any, indices: Any, axis: int = 0) -> tuple[Any]:
        return (np.take_along_axis(data, indices, axis),)

    return type("GatherElements", (OpRun,), {"op_domain": "", "_run": gather})
