"""The files of a model that was trained outside unbraid, in the folder of its run.

A model is stored either as graphs of operations (see `unbraid.nets.graph`) or as the name of Python code that builds
it. `model.json` has the `shape` of one example. It also has the graphs `encoder` and `decoder`, or, for a Python model,
its `options`. `weights.safetensors` has the tensors of the graphs, with the prefixes `encoder.` and `decoder.`, or the
tensors of the modules of the Python model, with the index of the module as the prefix. For a Python model without
modules it has the outputs for random examples, by which a changed model is recognised. Graphs are data, so they are
read without the user's consent. Python code is imported only with consent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unbraid.errors import UserError
from unbraid.nets.adopted import AdoptedNet, DecoderPart, EncoderPart, ModelOptions
from unbraid.nets.any_model import ModelParts, model_parts
from unbraid.nets.graph import Graph, GraphNetwork
from unbraid.runs.adopted_spec import STORED
from unbraid.runs.folder import RunFolder
from unbraid.runs.network import describe_misfit
from unbraid.runs.tensor_files import content_digest
from unbraid.runtime.files import write_atomic
from unbraid.runtime.importing import check_trust, import_name
from unbraid.runtime.schema import read_json

FILE = "model.json"
FORMAT = 1
PROBES = 2  # number of random examples whose codes identify a model without weights
REMEDY = "Restore the file from a copy, or delete the folder of the run and adopt the model again."


@dataclass(frozen=True)
class ModelFile:
    """The content of `model.json`.

    Attributes:
        shape: The shape of one example.
        encoder: The graph of the encoder, or None for Python code.
        decoder: The graph of the decoder, or None for Python code and for models without a decoder.
        options: How the inputs and outputs of a model that is Python code are interpreted, or None for graphs.
        code_shape: The shape of one code that the decoder of a Python model takes, or None for graphs.
        format: The version of the file format.
    """

    shape: list[int]
    encoder: dict[str, Any] | None = None
    decoder: dict[str, Any] | None = None
    options: ModelOptions | None = None
    code_shape: list[int] | None = None
    format: int = FORMAT

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs by name."""
        return {name: graph for name in ("encoder", "decoder") if (graph := getattr(self, name)) is not None}


def model_digest(content: ModelFile, tensors: Mapping[str, Tensor]) -> str:
    """Return 16 hexadecimal digits that identify a model: its graphs or options, and its tensors."""
    return content_digest(tensors, asdict(content))[:16]


def write_model(folder: RunFolder, content: ModelFile, tensors: dict[str, Tensor]) -> None:
    """Write a model to the folder of its run. The weights are written last, because they mark the run as finished."""
    plain = {key: value for key, value in asdict(content).items() if value is not None}
    write_atomic(folder.path / FILE, json.dumps(plain).encode())
    folder.finish(0, tensors, [])


def read_network(folder: RunFolder, trust: bool = False) -> AdoptedNet:
    """Read the network of an adopted run.

    Raises:
        UserError: If a file is damaged or does not belong to the spec, or if the model is Python code and the user has
            not consented to run it.
    """
    file = folder.path / FILE
    content = read_json(file, ModelFile, REMEDY)
    if content.format != FORMAT:
        raise UserError(f"{file} has format {content.format}, but this release reads format {FORMAT}. Update unbraid.")
    tensors, name = folder.weights(), folder.spec.net
    if model_digest(content, tensors) != getattr(folder.spec, "model", None):
        raise UserError(f"{file} and the weights beside it are not those of the run {folder.spec.id}. {REMEDY}")
    if name == STORED:
        network = graph_network(content, tensors, folder.spec.latents)
        check_network(network, file)
        return network
    check_trust("model", name, folder.path, trust, folder.own.files.get(name))
    code = code_network(name, content, tensors, folder.spec.latents)
    check_probes(code, tensors, f"{name} in {folder.path}")
    return code


@torch.no_grad()
def check_network(network: AdoptedNet, file: Path) -> None:
    """Raise a UserError if a network that was read from a file cannot be run on one example."""
    try:
        codes = network.encode(torch.zeros(1, *(network.shape or ()))).mean
        fits = tuple(codes.shape) == (1, network.latents)
        if fits and network.decoder is not None:
            network.decoder(codes)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(
            f"{file} must contain networks for examples of the shape {network.shape}. One of their operations failed. "
            f"{REMEDY}"
        ) from error
    if not fits:
        raise UserError(
            f"{file} must contain an encoder with {network.latents} latents. Got codes of the shape "
            f"{tuple(codes.shape)} for one example. {REMEDY}"
        )


def graph_network(content: ModelFile, tensors: Mapping[str, Tensor], latents: int) -> AdoptedNet:
    """Return the network of a model that is stored as graphs."""
    parts: dict[str, nn.Module] = {}
    for name, graph in content.graphs.items():
        own = {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
        parts[name] = GraphNetwork(graph, own)
    if "encoder" not in parts:
        raise UserError(f"A stored model must have an encoder. Got none. {REMEDY}")
    return AdoptedNet(parts["encoder"], parts.get("decoder"), latents, tuple(content.shape))


def code_network(name: str, content: ModelFile, tensors: Mapping[str, Tensor], latents: int) -> AdoptedNet:
    """Return the network of a model that is Python code. The user must have consented to run the code."""
    parts = model_parts(call_builder(name))
    try:
        for i, module in enumerate(parts.modules):
            prefix = f"{i}."
            own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            module.load_state_dict(own)
    except RuntimeError as error:
        raise UserError(
            f"The model that {name} returns does not fit the stored weights. {describe_misfit(module, own)} {REMEDY}"
        ) from error
    return parts_network(parts, content, latents)


def parts_network(parts: ModelParts, content: ModelFile, latents: int) -> AdoptedNet:
    """Return the network of a model in memory."""
    options, shape = content.options or ModelOptions(), tuple(content.shape)
    encoder = EncoderPart(parts, options)
    decoder = None
    if parts.decode is not None:
        decoder = DecoderPart(parts, options, shape, tuple(content.code_shape or ()))
    return AdoptedNet(encoder, decoder, latents, shape)


def parts_tensors(parts: ModelParts) -> dict[str, Tensor]:
    """Return the parameters and buffers of the modules of a model, with the names that `code_network` expects."""
    return {
        f"{i}.{name}": tensor.detach().cpu().contiguous().clone()
        for i, module in enumerate(parts.modules)
        for name, tensor in module.state_dict().items()
        if isinstance(tensor, Tensor)
    }


@torch.no_grad()
def probe_outputs(network: AdoptedNet) -> dict[str, Tensor]:
    """Return the outputs of a network for random examples, by name. They identify a model whose weights are unknown."""
    x = torch.rand(PROBES, *(network.shape or ()), generator=torch.Generator().manual_seed(0))
    codes = network.encoder(x)
    outputs = {"probe.codes": codes}
    if network.decoder is not None:
        outputs["probe.examples"] = network.decoder(codes[:, : network.latents])
    return {name: output.detach().cpu().float().contiguous() for name, output in outputs.items()}


def check_probes(network: AdoptedNet, stored: Mapping[str, Tensor], name: str) -> None:
    """Raise a UserError if a model whose weights are not stored has other outputs than when it was adopted."""
    expected = {key: value for key, value in stored.items() if key.startswith("probe.")}
    outputs = probe_outputs(network) if expected else {}
    for key, value in expected.items():
        own = outputs.get(key)
        if own is None or own.shape != value.shape or not torch.allclose(own, value, 1e-3, 1e-4, equal_nan=True):
            raise UserError(
                f"{name} must return the model that was adopted. Got other outputs for the same examples, so the code "
                "or a file that it reads has changed. Adopt the changed model as another run, or restore the files."
            )


def call_builder(name: str) -> Any:
    """Return the model with a name such as ``module:function``.

    The named object is imported. If it is a function, it is called without arguments and returns the model.
    """
    function = import_name("model", name)
    if isinstance(function, nn.Module) or not callable(function):
        return function
    try:
        return function()
    except TypeError as error:
        raise UserError(f"{name} must be a function without arguments that returns a model. Got: {error}.") from error


def output_digest(*outputs: Tensor) -> str:
    """Return a digest of the outputs of a model. It identifies a model that has no modules, and so no weights."""
    digest = hashlib.sha256()
    for output in outputs:
        digest.update(output.detach().float().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
