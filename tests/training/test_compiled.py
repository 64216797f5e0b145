"""Stacks whose step is compiled compute the same numbers as other fused stacks.

Without a GPU, the recorded operations run one by one, and kernels run in the interpreter of Triton.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from unbraid import noise
from unbraid.methods import PCL, BetaTCVAE, BetaVAE, Method, SlowVAE
from unbraid.training import stack
from unbraid.training.stack import MIN_COMPILED_STEPS, Stack, first_difference

pytest.importorskip("triton", reason="Triton is not installed here")

from support.fused_stacks import SmallFactorVAE, make_stack, tiny_net
from unbraid.accel.kernels import noise as noise_kernels

pytestmark = pytest.mark.usefixtures("large_tiles")


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run recorded operations one by one. Draw random numbers in kernels, as on a GPU."""
    monkeypatch.setattr(torch._inductor, "compile", lambda graph, inputs, options: graph)
    monkeypatch.setattr(noise, "_noise_kernels", lambda device: noise_kernels)


def stack_pair(method: Method) -> tuple[Stack, Stack]:
    """A stack that is compiled at its first step, and the same stack without compilation."""
    compiled, other = (make_stack(tiny_net, True, [method, method]) for _ in range(2))
    compiled.compiles = True
    return compiled, other


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    "method", [BetaVAE(beta=2.0), BetaTCVAE(), SmallFactorVAE(), SlowVAE(), PCL()], ids=lambda m: type(m).__name__
)
def test_a_compiled_step_equals_the_step(method: Method) -> None:
    """This includes the critic of FactorVAE, whose weight gradients are computed by the optimiser."""
    compiled, other = stack_pair(method)
    for _ in range(2):
        compiled.advance()
        other.advance()
    assert compiled.compiled is not None
    assert compiled.terms == other.terms
    torch.testing.assert_close(compiled.last, other.last, rtol=0, atol=0)
    torch.testing.assert_close(compiled.rows, other.rows, rtol=0, atol=0)


def fail(*arguments: Any) -> Any:
    raise TypeError("this cannot be compiled\nsecond line")


def test_a_step_that_cannot_be_compiled_is_taken_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "CompiledFunction", fail)
    compiled, other = stack_pair(BetaVAE())
    with pytest.warns(RuntimeWarning, match="cannot be compiled.*TypeError: this cannot be compiled$"):
        compiled.advance()
    compiled.advance()
    other.advance()
    other.advance()
    torch.testing.assert_close(compiled.rows, other.rows, rtol=0, atol=0)


class Wrong:
    """A compiled function whose last result is wrong, as if an operation had not been recorded."""

    def __init__(self, function: Any, inputs: list[Tensor]) -> None:
        self.function = function

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        *rest, last = self.function(*inputs)
        return [*rest, torch.zeros_like(last)]


def test_a_compiled_step_with_another_result_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "CompiledFunction", Wrong)
    compiled, _ = stack_pair(BetaVAE())
    with pytest.warns(RuntimeWarning, match="changes its result: output 2 of shape"):
        compiled.advance()
    assert compiled.compiled is None


def test_first_difference_names_the_tensor() -> None:
    a, b = torch.ones(3), torch.zeros(2)
    assert first_difference([a, b], [a, b]) == ""
    assert first_difference([a, b], [a * 1.001, b]) == ""
    assert first_difference([a, b + 1], [a, b]).startswith("output 1 of shape (2,)")
    assert first_difference([a * float("nan")], [a]).startswith("output 0")
    assert first_difference([a], [a * float("nan")]) == ""


def test_stacks_on_a_cpu_are_not_compiled() -> None:
    data_on_cpu = make_stack(tiny_net, True, [BetaVAE()])
    assert not data_on_cpu.compiles
    assert data_on_cpu.specs[0].steps < MIN_COMPILED_STEPS
