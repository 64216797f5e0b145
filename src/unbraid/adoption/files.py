"""Models in files: TorchScript, torch.export, ONNX, and Python code that returns a model."""

from __future__ import annotations

import inspect
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch

from unbraid.errors import UserError
from unbraid.nets.any_model import ModelParts, model_parts
from unbraid.runs.adopted_model import call_builder
from unbraid.runtime.files import expand_user
from unbraid.runtime.importing import import_file, trust_name

SUFFIXES = {".pt": "TorchScript", ".pth": "TorchScript", ".ts": "TorchScript", ".pt2": "torch.export", ".onnx": "ONNX"}


class GivenModel(NamedTuple):
    """A model that the user has given.

    Attributes:
        parts: Its encoder and its decoder.
        name: The name ``module:function`` of the function that returned it, or None.
    """

    parts: ModelParts
    name: str | None = None


def open_model(model: Any, trust: bool = False) -> GivenModel:
    """Return the parts of a model that is given as an object, a file, a pair of files, or ``file.py:function``.

    Raises:
        UserError: If a file cannot be read, if it contains a program and `trust` is false, or if the model has no
            encoder.
    """
    if isinstance(model, str | os.PathLike):
        given = _open_text(os.fspath(model), trust)
    elif isinstance(model, tuple | list) and any(isinstance(part, str | os.PathLike) for part in model):
        given = _open_pair(model, trust)
    else:
        given = GivenModel(model_parts(model))
    if given.parts.encode is None:
        raise UserError(
            "A model must be an object with encode(x) and decode(z), a pair (encoder, decoder) of functions or "
            f"modules, an encoder alone, or a file. Got {type(model).__name__} without an encoder instead."
        )
    return given


def _open_pair(files: tuple[Any, ...] | list[Any], trust: bool) -> GivenModel:
    """Return the encoder of the first file and the decoder of the second file."""
    if len(files) != 2:
        raise UserError(f"A pair of files must be (encoder, decoder). Got {len(files)} files instead.")
    encoder, decoder = (open_model(file, trust).parts for file in files)
    return GivenModel(ModelParts(encoder.encode, decoder.encode, (*encoder.modules, *decoder.modules)))


def _open_text(text: str, trust: bool) -> GivenModel:
    """Return the model that `text` names. `text` is the path of a file, or ``file.py:function``."""
    path, suffix = expand_user(text), Path(text).suffix.lower()
    if suffix not in SUFFIXES and ":" in text:
        return _open_code(text)
    if suffix not in SUFFIXES:
        raise UserError(
            f"The file of a model must end in {', '.join(SUFFIXES)}, or be given as file.py:function. Got {text!r} "
            "instead. A file of weights alone is not a model: write a function that builds the model and loads them."
        )
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    kind = SUFFIXES[suffix]
    if kind == "ONNX":
        from unbraid.adoption.onnx_file import read_onnx

        return GivenModel(model_parts(read_onnx(path)))
    if not trust:
        raise UserError(
            f"{path} is a {kind} file. Such a file contains a program, which can read and write files when it is "
            "loaded or run. If you trust the file, pass --trust (trust=True). The run that is made from it contains "
            "no program, so it can later be loaded without --trust."
        )
    return GivenModel(model_parts(read_torchscript(path) if kind == "TorchScript" else read_exported(path)))


def _open_code(text: str) -> GivenModel:
    """Call the function that `text` names. Return its model and the importable name of the function."""
    module, _, attribute = text.rpartition(":")
    name = text
    if module.endswith(".py"):
        name = f"{import_file(Path(module)).__name__}:{attribute}"
    model = call_builder(name)
    if inspect.isclass(model):
        raise UserError(f"{text} must return a model. Got the class {model.__name__} instead. Return an instance.")
    trust_name(name)
    return GivenModel(model_parts(model), name)


def read_torchscript(path: Path) -> Any:
    """Read a TorchScript file. The result has the methods `encode` and `decode` if the file contains them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch advises against TorchScript
            return torch.jit.load(str(path), map_location="cpu")
    except Exception as error:  # for a damaged file, torch.jit.load raises errors of many types
        raise UserError(
            f"{path} must be a complete TorchScript file, as torch.jit.save writes it. PyTorch cannot read it. If it "
            "contains weights only, write a function that builds the model and loads them, and pass file.py:function."
        ) from error


def read_exported(path: Path) -> Any:
    """Read a file that torch.export.save wrote."""
    try:
        module = torch.export.load(path).module()
    except Exception as error:  # torch.export.load raises errors of many types
        raise UserError(
            f"{path} must be a complete file that torch.export.save wrote. PyTorch cannot read it. Export it again, if "
            "possible with this version of PyTorch."
        ) from error
    for name in ("train", "eval"):  # both methods raise errors, because an exported module has no mode
        vars(module).pop(name, None)
    return module
