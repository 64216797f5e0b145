"""ControlVAE and DynamicVAE: the controller by loops, and a KL that reaches its set value."""

from __future__ import annotations

import math

import pytest
import torch

from support.engine_laws import make_stack
from support.training import quick_train
from unbraid.accel.adam import adam_step
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import ControlVAE, DynamicVAE
from unbraid.methods.feedback import UNIT_STEP

KLS = [0.1, 0.5, 2.0, 30.0, 12.0, 4.0, 3.0, 3.5, 2.9]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def control_by_loops(method: ControlVAE, kls: list[float]) -> list[float]:
    """The weights of the KL by the formula of the paper, with a sum that stops where the weight is at a limit."""
    total, betas = 0.0, []
    for t, kl in enumerate(kls):
        target = method.c_min + (method.c_max - method.c_min) * min(t / method.iteration_threshold, 1)
        error = float(target) - kl
        proportional = float(method.kp) * sigmoid(-error)
        beta = proportional + total - float(method.ki) * error + float(method.beta_min)
        beta = min(max(beta, float(method.beta_min)), float(method.beta_max))
        total = beta - proportional - float(method.beta_min)
        betas.append(beta)
    return betas


def dynamic_by_loops(method: DynamicVAE, kls: list[float]) -> list[float]:
    beta, average, errors, betas = method.beta_start, kls[0], [], []
    for t, kl in enumerate(kls):
        average += float(method.smoothing) * (kl - average)
        target = method.c_min + (method.c_max - method.c_min) * min(t / method.iteration_threshold, 1)
        errors.append(float(target) - average)
        before = errors[t - 1] if t else errors[0]
        change = float(method.kp) * (sigmoid(-errors[t]) - sigmoid(-before)) - float(method.ki) * errors[t]
        beta = min(max(beta + change, float(method.beta_min)), float(method.beta_max))
        betas.append(beta)
    return betas


CASES = [
    (ControlVAE(c_max=5.0, iteration_threshold=4.0, kp=2.0, ki=0.3, beta_max=4.0), control_by_loops),
    (ControlVAE(c_max=1.0, iteration_threshold=1.0, kp=0.1, ki=0.1, beta_min=0.5), control_by_loops),
    (DynamicVAE(c_max=5.0, iteration_threshold=4.0, kp=2.0, ki=0.3, beta_start=7.0, beta_max=9.0), dynamic_by_loops),
]


@pytest.mark.parametrize(("method", "loops"), CASES)
def test_controller_equals_its_loops(method: ControlVAE, loops) -> None:  # type: ignore[no-untyped-def]
    stored, betas = torch.tensor(method.initial_state()), []
    for t, kl in enumerate(KLS):
        beta, stored = method.control(stored, torch.tensor(kl), torch.tensor(float(t)))
        betas.append(float(beta))
    assert betas == pytest.approx(loops(method, KLS), rel=1e-4)
    assert len({round(beta, 6) for beta in betas}) > 3


def test_the_weight_of_dynamic_vae_falls_below_one_if_the_kl_stays_too_small() -> None:
    method = DynamicVAE(c_min=20.0, c_max=20.0, beta_start=2.0)
    stored = torch.tensor(method.initial_state())
    for step in range(50):
        beta, stored = method.control(stored, torch.tensor(5.0), torch.tensor(float(step)))
    assert float(beta) == pytest.approx(0.1)  # the limit of the authors' code


@pytest.mark.parametrize("method", [ControlVAE, DynamicVAE])
def test_an_empty_range_of_the_weight_is_an_error(method: type[ControlVAE]) -> None:
    with pytest.raises(UserError, match=r"beta_min, must not exceed the maximum, beta_max\. Got beta_min 5 and"):
        method(beta_min=5.0, beta_max=2.0)


def test_a_moving_average_that_overshoots_is_an_error() -> None:
    with pytest.raises(UserError, match=r"must be between 1e-06 and 1\. Got 1\.5"):
        DynamicVAE(smoothing=1.5)


def test_a_unit_step_subtracts_the_gradient() -> None:
    row, grad = torch.tensor([[1.0, -20.0, 3.0]]), torch.tensor([[0.25, -130.0, 1e-7]])
    expected = row - grad
    for t in (1, 2, 1000):
        current = row.clone()
        adam_step(current, grad.clone(), torch.ones(1, 3), torch.ones(1, 3), torch.tensor([[1e8]]), t, UNIT_STEP)
        torch.testing.assert_close(current, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("vmapped", [False, True])
def test_each_step_stores_the_numbers_of_the_controller(vmapped: bool, toy: FactorData) -> None:
    """The weight that is logged at a step follows from the KL that is logged at the same and at earlier steps."""
    methods = [ControlVAE(c_max=c, iteration_threshold=1.0, ki=0.1, kp=1.0) for c in (0.0, 0.01)]
    stack = make_stack(methods, toy, [0, 1], [1e-2, 1e-2], vmapped)
    logs: list[list[dict[str, float]]] = [[], []]
    for _ in range(6):
        stack.advance()
        for log, terms in zip(logs, stack.pop_mean_terms(), strict=True):
            log.append(terms)
    for method, log in zip(methods, logs, strict=True):
        expected = control_by_loops(method, [terms["kl"] for terms in log])
        assert [terms["beta"] for terms in log] == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert max(expected) > 0


@pytest.mark.parametrize(
    "method",
    [
        ControlVAE(c_max=3.0, iteration_threshold=1.0, ki=0.03, kp=0.1),
        DynamicVAE(c_max=3.0, iteration_threshold=1.0, ki=0.03, kp=0.1, beta_min=0.0, beta_start=4.0),
    ],
    ids=str,
)
def test_the_kl_reaches_its_set_value(method: ControlVAE) -> None:
    (run,) = quick_train(None, method, steps=500, learning_rate=3e-3, batch=16, latents=4)
    last = [line["kl"] for line in run.log[-len(run.log) // 5 :]]
    assert sum(last) / len(last) == pytest.approx(3.0, rel=0.1)
