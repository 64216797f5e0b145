"""Stacks whose step is compiled compute the same numbers as other fused stacks.

Without a GPU, the recorded operations run one by one, and kernels run in the interpreter of Triton.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch._inductor
from torch import Tensor

from unbraid import noise
from unbraid.methods import CVITAE, DEFT, PCL, BetaTCVAE, BetaVAE, CommutativeVAE, Method, SlowVAE
from unbraid.methods.method import Batch, Loss
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.training import compiled as compiled_module
from unbraid.training.compiled import MIN_COMPILED_STEPS, first_changed_result
from unbraid.training.stack import Stack

pytest.importorskip("triton", reason="Triton is not installed here")

from support.fused_stacks import SmallFactorVAE, make_stack, tiny_net
from support.guarded import DEVICE
from unbraid.accel.kernels import noise as noise_kernels

pytestmark = pytest.mark.usefixtures("large_tiles")


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run recorded operations one by one. Draw random numbers in kernels, as on a GPU."""
    monkeypatch.setattr(torch._inductor, "compile", lambda graph, inputs, options: graph)
    monkeypatch.setattr(noise, "noise_kernels", lambda device: noise_kernels)


def stack_pair(method: Method) -> tuple[Stack, Stack]:
    """A stack that is compiled at its first step, and the same stack without compilation."""
    compiled, other = (make_stack(tiny_net, True, [method, method]) for _ in range(2))
    compiled.compile_at_next_step = True
    return compiled, other


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    "method",
    [BetaTCVAE(), SmallFactorVAE(), SlowVAE(), PCL(), DEFT(), CVITAE(), CommutativeVAE()],
    ids=lambda m: type(m).__name__,
)
def test_a_compiled_step_equals_the_step(method: Method) -> None:
    """This includes the critic of FactorVAE, whose weight gradients are computed by the optimiser."""
    compiled, other = stack_pair(method)
    compiled.advance()
    other.advance()
    assert compiled.compiled is not None
    assert compiled.terms == other.terms
    torch.testing.assert_close(compiled.last, other.last, rtol=0, atol=0)
    torch.testing.assert_close(compiled.rows, other.rows, rtol=0, atol=0)


def fail(*arguments: Any) -> Any:
    raise TypeError("this cannot be compiled\nsecond line")


def test_a_step_that_cannot_be_compiled_is_taken_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_module, "CompiledFunction", fail)
    compiled, other = stack_pair(BetaVAE())
    with pytest.warns(RuntimeWarning, match="cannot be compiled.*TypeError: this cannot be compiled$"):
        compiled.advance()
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
    monkeypatch.setattr(compiled_module, "CompiledFunction", Wrong)
    compiled, _ = stack_pair(BetaVAE())
    with pytest.warns(RuntimeWarning, match="changes its result"):
        compiled.advance()
    assert compiled.compiled is None


@dataclasses.dataclass(frozen=True)
class Unrecorded(BetaVAE):
    """A beta-VAE whose loss grows with the step by an operation that cannot be recorded."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        loss, terms = super().objective(net, batch, noise, step)
        grown = torch.from_numpy(1 + step.reshape(1).cpu().numpy())[0]
        return loss * grown.to(loss.device), terms


def test_a_compiled_step_must_have_the_same_result_at_another_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the value of an operation that is not recorded would stay that of the first step."""
    monkeypatch.setattr(torch._inductor, "compile", lambda graph, inputs, options: graph)
    compiled, _ = stack_pair(Unrecorded())
    with pytest.warns(RuntimeWarning, match="changes its result"):
        compiled.advance()
    assert compiled.compiled is None


def test_first_changed_result_compares_every_run() -> None:
    terms, rows = torch.tensor([[1000.0, 15.0], [900.0, 12.0]]), torch.ones(2, 3)
    nan = torch.tensor([[1.0], [float("nan")]])
    assert first_changed_result([terms, rows], [terms, rows]) == ""
    assert first_changed_result([terms * 1.001, rows * 1.001], [terms, rows]) == ""
    assert first_changed_result([terms * nan, rows * nan], [terms * nan, rows * nan]) == ""
    assert first_changed_result([terms + torch.tensor([0.0, 9.0]), rows], [terms, rows]).startswith("9,")
    assert first_changed_result([terms, rows + torch.tensor([[0.0], [1.0]])], [terms, rows]).startswith("1.732,")
    assert first_changed_result([terms, rows * nan], [terms, rows]) != ""
    assert first_changed_result([terms, 2 * rows], [terms, rows * nan]) != ""


def test_stacks_on_a_cpu_are_compiled_on_request_only() -> None:
    short = make_stack(tiny_net, True, [BetaVAE()])
    specs = [dataclasses.replace(spec, steps=MIN_COMPILED_STEPS) for spec in short.specs]
    requested = {
        compiled: Stack(specs, short.data, tiny_net, vmapped=True, fused=True, compiled=compiled).compile_at_next_step
        for compiled in (None, False, True)
    }
    assert requested == {None: DEVICE != "cpu", False: False, True: True}
