"""The form in which models from outside unbraid are stored: as graphs, as Python code, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from unbraid.adoption.checking import CheckedModel
from unbraid.adoption.tracing import trace_graph
from unbraid.errors import UserError, warn_user
from unbraid.nets.adopted import AdoptedNet, DecoderPart, EncoderPart, ModelOptions
from unbraid.runs.adopted_model import (
    ModelFile,
    graph_network,
    model_digest,
    output_digest,
    parts_network,
    parts_tensors,
    probe_outputs,
)


@dataclass(frozen=True)
class AdoptedModel:
    """A model in the form in which it is stored: as graphs, as Python code, or not at all.

    Attributes:
        model: The checked model.
        content: The content of `model.json`.
        tensors: The tensors to store.
        digest: A digest that identifies the model. It becomes part of the spec of the run.
        as_code: Whether the model is stored as the name of the function that returns it.
        in_memory: Whether the model is only in memory, because it cannot be stored.
    """

    model: CheckedModel
    content: ModelFile
    tensors: dict[str, Tensor]
    digest: str
    as_code: bool = False
    in_memory: bool = False

    def network(self) -> AdoptedNet:
        """Return the network for a run in this process. It is the graphs or, if there are none, the model itself."""
        if self.as_code or self.in_memory:
            return parts_network(self.model.parts, self.content, self.model.latents)
        return graph_network(self.content, self.tensors, self.model.latents)


def storable_model(model: CheckedModel, name: str | None, must_be_stored: bool) -> AdoptedModel:
    """Return a model in the form in which it is stored.

    The model is stored as graphs if it can be traced. Otherwise it is stored as the name of the function that returned
    it. If there is no such function, the model is kept in memory only.

    Args:
        model: The model, whose modules must be in evaluation mode.
        name: The name ``module:function`` of the function that returned the model, or None.
        must_be_stored: Whether to raise a UserError if the model cannot be stored.
    """
    try:
        return _trace(model)
    except UserError as error:
        if must_be_stored and name is None:
            raise UserError(
                f"{error} The model can therefore not be stored in a folder. Call adopt without out= to use the "
                "run in this process only. To store it, put a function that returns the model into a Python file, and "
                'pass "file.py:function". Its code is then run again when the run is loaded.'
            ) from error
        reason = str(error)
    tensors = parts_tensors(model.parts)
    if name is not None:
        tensors = tensors or probe_outputs(parts_network(model.parts, model.content, model.latents))
        if must_be_stored:
            warn_user(
                f"{reason} The run therefore stores the name of the function {name}, whose code is run when the run is "
                "loaded. Commands that load the run need --trust (in Python, trust=True)."
            )
        return AdoptedModel(model, model.content, tensors, model_digest(model.content, tensors), as_code=True)
    digest = model_digest(model.content, {**tensors, "codes": model.z.cpu()}) if tensors else output_digest(model.z)
    return AdoptedModel(model, model.content, tensors, digest, in_memory=True)


def _trace(model: CheckedModel) -> AdoptedModel:
    """Return a model as graphs, or raise a UserError if it cannot be traced."""
    options = model.content.options or ModelOptions()
    shape = tuple(model.content.shape)
    parts: dict[str, tuple[nn.Module, Tensor]] = {"encoder": (EncoderPart(model.parts, options), model.x)}
    if model.parts.decode is not None:
        decoder = DecoderPart(model.parts, options, shape, tuple(model.content.code_shape or ()))
        parts |= {"decoder": (decoder, model.z)}
    graphs: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for name, (part, inputs) in parts.items():
        graphs[name], own = trace_graph(part.eval(), inputs, name)
        tensors |= {f"{name}.{key}": tensor for key, tensor in own.items()}
    content = ModelFile(list(shape), **graphs)
    return AdoptedModel(model, content, tensors, model_digest(content, tensors))
