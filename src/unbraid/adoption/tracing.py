"""Tracing of models from outside unbraid as graphs that can be stored and run without their code."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

import torch
from torch import Tensor, nn

from unbraid.adoption.torchscript import contains_script, convert_script
from unbraid.errors import UserError
from unbraid.nets.graph import Graph, GraphNetwork, store_graph

TRACED_EXAMPLES = 3  # batch size with which a model is traced
CHECKED_BATCHES = (1, 4)  # batch sizes at which a graph is compared with its model
TOLERANCE = 1e-4


def trace_graph(part: nn.Module, x: Tensor, what: str) -> tuple[Graph, dict[str, Tensor]]:
    """Trace a module. Return a graph that accepts any number of examples, and the tensors of the graph.

    Args:
        part: The module, in evaluation mode.
        x: At least `TRACED_EXAMPLES` inputs.
        what: "encoder" or "decoder", for error messages.

    Raises:
        UserError: If the module cannot be traced, or if the graph does not compute the same as the module.
    """
    sizes = ({0: torch.export.Dim("n", min=1)},)
    try:
        with quiet_tracing():
            module = convert_script(part, x) if contains_script(part) else part
            program = torch.export.export(module, (x[:TRACED_EXAMPLES],), dynamic_shapes=sizes)
            graph, tensors = store_graph(program)
    except UserError:
        raise
    except Exception as error:  # torch.export raises errors of many types
        reason = " ".join(str(error).split()[:40]) or type(error).__name__
        raise UserError(
            f"The {what} cannot be traced by torch.export as a graph that accepts any number of examples: {reason} ..."
        ) from error
    check_graph(GraphNetwork(graph, tensors), part, x, what)
    return graph, tensors


@torch.no_grad()
def check_graph(network: GraphNetwork, part: nn.Module, x: Tensor, what: str) -> None:
    """Raise a UserError if a graph does not compute the same as the module that was traced."""
    network = network.to(x.device)
    for size in CHECKED_BATCHES:
        expected, actual = part(x[-size:]), network(x[-size:])
        scale = max(1.0, float(expected.abs().max()))
        if expected.shape != actual.shape or not float((expected - actual).abs().max()) <= TOLERANCE * scale:
            raise UserError(
                f"The traced {what} must compute the same as the model. Got other outputs for {size} example(s). The "
                "model may have branches that depend on its inputs."
            )


@contextmanager
def quiet_tracing() -> Iterator[None]:
    """Hide what PyTorch prints, and let distributions accept parameters whose values are not known yet."""
    before = torch.distributions.Distribution._validate_args
    level = logging.root.manager.disable
    torch.distributions.Distribution.set_default_validate_args(False)
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad(), redirect_stderr(io.StringIO()):
            for kind in (DeprecationWarning, FutureWarning, UserWarning):
                warnings.simplefilter("ignore", kind)
            yield
    finally:
        logging.disable(level)
        torch.distributions.Distribution.set_default_validate_args(before)
