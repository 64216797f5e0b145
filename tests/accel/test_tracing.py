"""Compiled functions have the same results as the functions themselves, and call opaque functions each time."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import torch._inductor
from torch import Tensor
from torch.autograd import Function

from unbraid.accel import tracing
from unbraid.accel.tracing import CompiledFunction, opaque

CALLS: list[str] = []


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run recorded operations one by one, instead of compiling them."""
    monkeypatch.setattr(torch._inductor, "compile", lambda graph, inputs, options: graph)


@opaque
def scale_and_shift(
    x: Tensor, others: list[Tensor], factor: float, shifted: bool
) -> tuple[Tensor, list[Tensor | None]]:
    """Return multiples of x and of the first of the other tensors, which is None unless `shifted`."""
    CALLS.append("call")
    return factor * x.detach(), [others[0] + 1 if shifted else None]


class Doubled(Function):
    """Twice x. Both passes are opaque functions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        doubled, (shifted,) = scale_and_shift(x, [x], 2.0, True)
        ctx.save_for_backward(shifted)
        return doubled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return scale_and_shift(gradients[0], list(ctx.saved_tensors), 2.0, False)[0]


def value_and_gradient(x: Tensor, weight: Tensor, unused: Tensor) -> list[Tensor]:
    """Return a function of x and its gradient."""
    leaf = x.detach().requires_grad_()
    value = (Doubled.apply(leaf).exp() * weight).sum()  # type: ignore[no-untyped-call]
    return [value.detach(), *torch.autograd.grad(value, [leaf])]


def inputs(seed: int) -> list[Tensor]:
    """Three random tensors. Tests pass every second row of the second one, which is not contiguous."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(size, generator=generator) for size in ((4, 3), (8, 3), (2,))]


def assert_same_results(compiled: CompiledFunction, seed: int) -> None:
    x, weight, unused = inputs(seed)
    arguments = (x, weight[::2], unused)
    for found, expected in zip(compiled(*arguments), value_and_gradient(*arguments), strict=True):
        torch.testing.assert_close(found, expected)


def compile_function() -> CompiledFunction:
    x, weight, unused = inputs(0)
    return CompiledFunction(value_and_gradient, [x, weight[::2], unused])


@pytest.mark.usefixtures("uncompiled")
def test_recorded_operations_have_the_same_results() -> None:
    compiled = compile_function()
    assert compiled.used == [0, 1]
    for seed in range(3):
        assert_same_results(compiled, seed)


def test_compiled_operations_have_the_same_results() -> None:
    """This compiles for the CPU, with a C++ compiler."""
    compiled = compile_function()
    for seed in range(3):
        assert_same_results(compiled, seed)


@pytest.mark.usefixtures("uncompiled")
def test_opaque_functions_are_called_each_time() -> None:
    compiled, arguments = compile_function(), inputs(0)
    CALLS.clear()
    compiled(arguments[0], arguments[1][::2], arguments[2])
    assert len(CALLS) == 2


def test_an_opaque_function_is_an_ordinary_function_outside_of_a_traced_one() -> None:
    x = torch.ones(2)
    scaled, (shifted,) = scale_and_shift(x, [x], 3.0, True)
    assert scaled.tolist() == [3.0, 3.0]
    assert shifted is not None
    assert shifted.tolist() == [2.0, 2.0]


def test_a_failure_leaves_no_trace() -> None:
    """After an error in the traced function, opaque functions are called directly again."""

    def fail(x: Tensor) -> list[Tensor]:
        scale_and_shift(x, [x], 3.0, True)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        CompiledFunction(fail, [torch.ones(2)])
    assert tracing._active.calls == []
    test_an_opaque_function_is_an_ordinary_function_outside_of_a_traced_one()


def test_the_compiler_is_not_imported_before_it_is_used() -> None:
    """Its import takes a second, which every command would wait for."""
    code = "import sys, unbraid.training.train; sys.exit('torch._inductor' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
