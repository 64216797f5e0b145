"""The operators of decoders on a page: JavaScript computes what torch computes, for a table of all operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.operators import DECODERS, LATENTS, UNSUPPORTED, Apply, decoder_net, largest_errors
from support.programs import DECODE, decode_job, node
from unbraid.errors import UserError
from unbraid.reporting import tracing
from unbraid.reporting.operators import SUPPORTED
from unbraid.reporting.program import Program, decoder_program
from unbraid.reporting.separable import axis_matrices


@dataclass
class Converted:
    """The decoders of the table as programs, and the names of their operators."""

    programs: dict[str, Program]
    operators: set[str]


@pytest.fixture(scope="module")
def converted() -> Converted:
    found: set[str] = set()
    original = tracing.write_operator

    def record(graph: Any, traced: Any, operator: str, given: Any) -> Any:
        found.add(operator)
        return original(graph, traced, operator, given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "write_operator", record)
        programs = {name: decoder_program(*decoder_net(decoder), LATENTS) for name, decoder in DECODERS.items()}
    return Converted(programs, found)


@pytest.mark.parametrize("name", DECODERS)
def test_node_runs_every_operator_like_torch(name: str, converted: Converted) -> None:
    codes = torch.randn(3, LATENTS)
    errors = largest_errors(DECODERS[name], codes, node(DECODE, decode_job(converted.programs[name], codes)))
    assert not {name: error for name, error in errors.items() if not error < 1}


def test_the_decoders_use_every_operator(converted: Converted) -> None:
    supported = [name for names in SUPPORTED.values() for name in names]
    assert len(supported) == len(set(supported))
    assert converted.operators == set(supported)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_other_operators_are_named(name: str) -> None:
    module, message = UNSUPPORTED[name]
    net, shape = decoder_net(module)
    with pytest.raises(UserError, match=f"A page cannot run the operator {message}") as error:
        decoder_program(net, shape, LATENTS)
    assert "unbraid explore" in str(error.value)


def test_decoders_that_cannot_be_traced_give_the_reason() -> None:
    net, shape = decoder_net(Apply(lambda x: x if x.sum() > 0 else -x))
    with pytest.raises(UserError, match=r"torch.export cannot trace this decoder: .*unbraid explore"):
        decoder_program(net, shape, LATENTS)


def test_linear_functions_that_are_not_separable_raise() -> None:
    def turned(x: Tensor) -> Tensor:
        return x + x.mT

    with pytest.raises(ValueError, match="not one linear map along each axis"):
        axis_matrices(turned, (3, 3))


def test_shared_weights_are_stored_once() -> None:
    layer = nn.Linear(4, 4)
    program = decoder_program(*decoder_net(Apply(lambda x, one: one(one(x)), (3, 4), layer)), LATENTS)
    parts, own = 2, sum(p.numel() for p in [*layer.parameters(), *nn.Linear(LATENTS, 12).parameters()])
    assert len(program.weights) == 2 * parts * own


def test_constants_are_stored_once_along_axes_on_which_they_do_not_vary() -> None:
    grid = torch.linspace(0, 1, 64)[:, None].expand(64, 64)
    program = decoder_program(*decoder_net(Apply(lambda x: x + grid, (1, 1, 1))), LATENTS)
    assert len(program.weights) == 2 * 2 * (64 + LATENTS + 1)
