"""Laws that stacks of runs obey for every method, used for the registry of methods and for variants of methods."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from support.training import Killed, assert_same_run, flatten_gradients, kill_at, quick_train
from unbraid.data.dataset import FactorData
from unbraid.methods import Method
from unbraid.nets.registry import resolve_net
from unbraid.nets.vae import PairBuilder
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

SEEDS, RATES = [3, 1, 4], [1e-3, 3e-3, 1e-4]


def make_stack(
    methods: Sequence[Method],
    data: FactorData,
    seeds: Sequence[int] = (0,),
    rates: Sequence[float] = (1e-3,),
    vmapped: bool = False,
    *,
    latents: int = 4,
    batch: int = 16,
    builder: PairBuilder | None = None,
) -> Stack:
    """A stack of one run per method, with `locatello` for images and an MLP for vectors and small images."""
    images = len(data.shape) == 3
    net, build = resolve_net(builder or ("locatello" if images and data.shape[-1] >= 32 else "mlp"))
    likelihood = "bernoulli" if images else "gaussian"
    specs = [
        RunSpec(m, data.name, seed, 100, batch, rate, latents, net, likelihood)
        for m, seed, rate in zip(methods, seeds, rates, strict=True)
    ]
    return Stack(specs, data, build, vmapped=vmapped)


def vary_hyperparameters(method: Method, n: int = 3, *, but: Sequence[str] = ()) -> list[Method]:
    """Methods that differ in every hyperparameter except those in `but`."""
    names = [name for name in method.hypers() if name not in but]
    return [
        dataclasses.replace(method, **{name: getattr(method, name) * (1 + 0.5 * i) for name in names}) for i in range(n)
    ]


def take_steps(steps: int, *stacks: Stack) -> None:
    """Take `steps` steps of each stack."""
    for _ in range(steps):
        for s in stacks:
            s.advance()


def assert_stack_equals_single_runs(methods: Sequence[Method], data: FactorData, **options: Any) -> None:
    """Assert that runs in a stack end exactly where each ends alone."""
    together = make_stack(methods, data, SEEDS, RATES, **options)
    take_steps(4, together)
    for i in range(3):
        part = slice(i, i + 1)
        alone = make_stack(methods[part], data, SEEDS[part], RATES[part], **options)
        take_steps(4, alone)
        torch.testing.assert_close(together.rows[i], alone.rows[0], rtol=0, atol=0)


def assert_vmap_equals_one_by_one(
    methods: Sequence[Method], data: FactorData, steps: Sequence[int] = (0,), rtol: float = 2e-4, **options: Any
) -> None:
    """Assert that `vmap` gives the same gradients as one run after another, and the same losses after some steps."""
    a, b = (make_stack(methods, data, SEEDS, RATES, vmapped, **options) for vmapped in (False, True))
    for step in map(torch.tensor, steps):
        values, grads = b._gradients_vmapped(step)
        for x, y in zip(a._gradients_one_by_one(step), (values, flatten_gradients(grads)), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4)
    take_steps(5, a, b)
    torch.testing.assert_close(a.last, b.last, rtol=rtol, atol=1e-3)


def assert_vmap_equals_one_by_one_on_images(
    methods: Sequence[Method], data: FactorData, taken: int = 3, rtol: float = 2e-4
) -> None:
    """Assert the same for convolutions: equal losses after a few steps of two runs."""
    a, b = (make_stack(methods, data, [3, 1], [1e-3, 1e-4], vmapped) for vmapped in (False, True))
    take_steps(taken, a, b)
    torch.testing.assert_close(a.last, b.last, rtol=rtol, atol=1e-3)


def assert_every_parameter_learns(method: Method, data: FactorData, step: int = 1, **options: Any) -> None:
    """Assert that every parameter has a finite gradient that is not zero."""
    s = make_stack([method], data, **options)
    _, grad = s._gradients_one_by_one(torch.tensor(step))
    for parameter, g in s.layout.unflatten(grad[0]).items():
        assert bool(g.isfinite().all()), parameter
        assert g.abs().sum() > 0, parameter


def terms_before_and_after(
    method: Method, data: FactorData, **options: Any
) -> tuple[dict[str, float], dict[str, float]]:
    """The mean terms of the first ten steps, and of ten steps after 150 more steps."""
    s = make_stack([method], data, rates=[3e-3], **options)
    found = []
    for steps in (10, 150, 10):
        take_steps(steps, s)
        found.append(s.pop_mean_terms()[0])
    return found[0], found[2]


def assert_divergence_affects_one_run(
    method: Method, data: FactorData, vmapped: bool, steps_before: int = 1, **options: Any
) -> None:
    """Assert that a NaN freezes one run at that step, and that the other runs end as they would without it."""
    with_nan, finite = (make_stack([method] * 3, data, [0, 1, 2], [1e-3] * 3, vmapped, **options) for _ in range(2))
    take_steps(steps_before, with_nan, finite)
    with_nan.rows[1, 0] = math.nan
    before = with_nan.rows[1].clone()
    take_steps(3, with_nan, finite)
    torch.testing.assert_close(with_nan.rows[[0, 2]], finite.rows[[0, 2]], rtol=0, atol=0)
    torch.testing.assert_close(with_nan.rows[1], before, rtol=0, atol=0, equal_nan=True)
    (divergence,) = with_nan.divergences()
    assert (divergence.member, divergence.step) == (1, steps_before)
    assert divergence.term in with_nan.terms
    assert not finite.divergences()


def assert_resume_equals_uninterrupted(
    method: Method, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> None:
    """Assert that a run that is killed and resumed ends exactly like an uninterrupted one."""
    whole = quick_train(folder / "whole", method, **settings)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, 7)
        quick_train(folder / "cut", method, checkpoint_seconds=0, **settings)
    for a, b in zip(whole, quick_train(folder / "cut", method, **settings), strict=True):
        assert_same_run(a, b)
