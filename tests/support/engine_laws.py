"""What holds for every method in the engine: laws over stacks of runs, for the registry and for variants alike."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from support.training import Killed, assert_same, die_at, flat, quick
from unbraid.data.dataset import FactorData
from unbraid.methods import Method
from unbraid.nets.registry import resolve_net
from unbraid.nets.vae import PairBuilder
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

SEEDS, RATES = [3, 1, 4], [1e-3, 3e-3, 1e-4]


def stack(
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
    """Runs on images with the study's network, or on vectors and small images with an MLP."""
    images = len(data.shape) == 3
    net, build = resolve_net(builder or ("locatello" if images and data.shape[-1] >= 32 else "mlp"))
    likelihood = "bernoulli" if images else "gaussian"
    specs = [
        RunSpec(m, data.name, seed, 100, batch, rate, latents, net, likelihood)
        for m, seed, rate in zip(methods, seeds, rates, strict=True)
    ]
    return Stack(specs, data, build, vmapped=vmapped)


def varied(method: Method, n: int = 3, *, but: Sequence[str] = ()) -> list[Method]:
    """Members of a stack that differ in every hyperparameter, `but` for some."""
    names = [name for name in method.hypers() if name not in but]
    return [
        dataclasses.replace(method, **{name: getattr(method, name) * (1 + 0.5 * i) for name in names}) for i in range(n)
    ]


def forward(steps: int, *stacks: Stack) -> None:
    """Take so many steps of each."""
    for _ in range(steps):
        for s in stacks:
            s.advance()


def assert_stack_equals_solo(methods: Sequence[Method], data: FactorData, **options: Any) -> None:
    """Runs end together bit for bit where they end alone."""
    together = stack(methods, data, SEEDS, RATES, **options)
    forward(4, together)
    for i in range(3):
        part = slice(i, i + 1)
        alone = stack(methods[part], data, SEEDS[part], RATES[part], **options)
        forward(4, alone)
        torch.testing.assert_close(together.rows[i], alone.rows[0], rtol=0, atol=0)


def assert_vmap_equals_turns(
    methods: Sequence[Method], data: FactorData, steps: Sequence[int] = (0,), rtol: float = 2e-4, **options: Any
) -> None:
    """The way of a GPU gives the numbers of the way of a CPU: gradients at once, losses after several Adam steps."""
    a, b = (stack(methods, data, SEEDS, RATES, vmapped, **options) for vmapped in (False, True))
    for step in map(torch.tensor, steps):
        values, grads = b._gradients_vmapped(step)
        for x, y in zip(a._gradients_one_by_one(step), (values, flat(grads)), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4)
    forward(5, a, b)
    torch.testing.assert_close(a.last, b.last, rtol=rtol, atol=1e-3)


def assert_vmap_equals_turns_on_images(
    methods: Sequence[Method], data: FactorData, taken: int = 3, rtol: float = 2e-4
) -> None:
    """The same through convolutions: losses after a few Adam steps of two runs."""
    a, b = (stack(methods, data, [3, 1], [1e-3, 1e-4], vmapped) for vmapped in (False, True))
    forward(taken, a, b)
    torch.testing.assert_close(a.last, b.last, rtol=rtol, atol=1e-3)


def assert_every_parameter_learns(method: Method, data: FactorData, step: int = 1, **options: Any) -> None:
    """No parameter is left without a finite gradient."""
    s = stack([method], data, **options)
    _, grad = s._gradients_one_by_one(torch.tensor(step))
    for parameter, g in s.layout.unflatten(grad[0]).items():
        assert bool(g.isfinite().all()), parameter
        assert g.abs().sum() > 0, parameter


def before_and_after(method: Method, data: FactorData, **options: Any) -> tuple[dict[str, float], dict[str, float]]:
    """The mean terms of the first ten steps, and of ten steps after 150 more."""
    s = stack([method], data, rates=[3e-3], **options)
    found = []
    for steps in (10, 150, 10):
        forward(steps, s)
        found.append(s.means()[0])
    return found[0], found[2]


def assert_divergence_stays_home(
    method: Method, data: FactorData, vmapped: bool, begun: int = 1, **options: Any
) -> None:
    """A NaN in one run sets it aside at that step; its neighbours end where they end without it."""
    sick, well = (stack([method] * 3, data, [0, 1, 2], [1e-3] * 3, vmapped, **options) for _ in range(2))
    forward(begun, sick, well)
    sick.rows[1, 0] = math.nan
    kept = sick.rows[1].clone()
    forward(3, sick, well)
    torch.testing.assert_close(sick.rows[[0, 2]], well.rows[[0, 2]], rtol=0, atol=0)
    torch.testing.assert_close(sick.rows[1], kept, rtol=0, atol=0, equal_nan=True)
    (found,) = sick.divergences()
    assert (found.member, found.step) == (1, begun)
    assert found.term in sick.terms
    assert not well.divergences()


def assert_resume_equals_uninterrupted(
    method: Method, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> None:
    """A run killed on its way and started again ends with the same bits."""
    whole = quick(folder / "whole", method, **settings)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        die_at(patch, 7)
        quick(folder / "cut", method, checkpoint_seconds=0, **settings)
    for a, b in zip(whole, quick(folder / "cut", method, **settings), strict=True):
        assert_same(a, b)
