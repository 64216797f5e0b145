"""Methods that see pairs: which latents are shared and how, what a transition costs, and that it helps."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from families.base import Known
from families.pairs import KNOWN
from oracles import pairs as oracle
from test_methods import stack
from training import Killed, assert_same, die_at, flat, quick
from unbraid.data.base import FactorData
from unbraid.data.sampling import PAIRS
from unbraid.data.tables import Labelled
from unbraid.dists import Gaussian
from unbraid.methods.ada_vae import (
    AdaGVAE,
    AdaMLVAE,
)
from unbraid.methods.base import Method
from unbraid.methods.slow_vae import SlowVAE
from unbraid.noise import Noise

FORMS: list[Method] = [
    AdaGVAE(),
    AdaGVAE(apart="count", k=2),
    AdaGVAE(apart="factors", pairs="uniform"),
    AdaMLVAE(),
    AdaMLVAE(apart="count", pairs="laplace"),
    SlowVAE(),
    SlowVAE(pairs="uniform"),
]
SEEDS, RATES = [3, 1, 4], [1e-3, 3e-3, 1e-4]


def varied(method: Method) -> list[Method]:
    """Three members of a stack that differ in every hyperparameter."""
    return [
        dataclasses.replace(method, **{h: getattr(method, h) * (1 + 0.5 * i) for h in method.hypers()})
        for i in range(3)
    ]


def normals(rows: list[oracle.Row]) -> Gaussian:
    """The posteriors of a batch, from means and variances."""
    table = torch.tensor(rows, dtype=torch.float64)
    return Gaussian(table[..., 0], table[..., 1].log())


def posteriors(n: int, d: int) -> tuple[list[oracle.Row], list[oracle.Row]]:
    """Random pairs that a float32 would tell apart."""
    g = torch.Generator().manual_seed(2)
    table = torch.stack([torch.randn(2, n, d, generator=g), torch.rand(2, n, d, generator=g) + 0.1], -1)
    first, second = ([[(float(m), float(v)) for m, v in row] for row in part] for part in table)
    return first, second


# The laws that the registry's methods obey.


def assert_stack_equals_solo(method: Method, data: FactorData) -> None:
    methods = varied(method)
    together = stack(methods, data, SEEDS, RATES)
    for _ in range(3):
        together.advance()
    for i in range(3):
        alone = stack(methods[i : i + 1], data, SEEDS[i : i + 1], RATES[i : i + 1])
        for _ in range(3):
            alone.advance()
        torch.testing.assert_close(together.rows[i], alone.rows[0], rtol=0, atol=0)


@pytest.mark.parametrize("method", FORMS, ids=str)
def test_stack_equals_solo(method: Method, toy: FactorData) -> None:
    assert_stack_equals_solo(method, toy)


@pytest.mark.parametrize("method", [AdaGVAE(), AdaMLVAE(), SlowVAE()], ids=str)
def test_stack_equals_solo_on_images(method: Method, sprites: FactorData) -> None:
    assert_stack_equals_solo(method, sprites)


@pytest.mark.parametrize("method", FORMS, ids=str)
def test_vmap_equals_turns(method: Method, toy: FactorData) -> None:
    a, b = (stack(varied(method), toy, SEEDS, RATES, vmapped) for vmapped in (False, True))
    step = torch.tensor(0)
    values, grads = b._gradients(step)
    for x, y in zip(a._gradients_in_turn(step), (values, flat(grads)), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4)
    for _ in range(5):
        a.advance()
        b.advance()
    torch.testing.assert_close(a.last, b.last, rtol=2e-4, atol=1e-3)


@pytest.mark.parametrize("method", FORMS, ids=str)
def test_every_parameter_learns(method: Method, toy: FactorData) -> None:
    s = stack([method], toy, [0], [1e-3])
    _, grad = s._gradients_in_turn(torch.tensor(1))
    for parameter, g in s.layout.unflatten(grad[0]).items():
        assert g.abs().sum() > 0, parameter


@pytest.mark.parametrize("vmapped", [False, True])
@pytest.mark.parametrize("method", FORMS, ids=str)
def test_divergence_stays_home(method: Method, vmapped: bool, toy: FactorData) -> None:
    sick, well = (stack([method] * 3, toy, [0, 1, 2], [1e-3] * 3, vmapped) for _ in range(2))
    sick.advance()
    well.advance()
    sick.rows[1, 0] = math.nan
    for _ in range(2):
        sick.advance()
        well.advance()
    torch.testing.assert_close(sick.rows[[0, 2]], well.rows[[0, 2]], rtol=0, atol=0)
    (found,) = sick.divergences()
    assert (found.member, found.step) == (1, 1)
    assert found.term in sick.terms


@pytest.mark.parametrize("known", KNOWN.values(), ids=list(KNOWN))
def test_loss_falls(known: Known, toy: FactorData) -> None:
    s = stack([known.gentle], toy, [0], [3e-3])
    for _ in range(10):
        s.advance()
    before = s.means()[0][known.falls]
    for _ in range(150):
        s.advance()
    s.means()
    for _ in range(10):
        s.advance()
    assert s.means()[0][known.falls] < 0.8 * before


@pytest.mark.parametrize(("method", "limit"), [pair for known in KNOWN.values() for pair in known.limits], ids=str)
def test_limit(method: Method, limit: Method, toy: FactorData) -> None:
    a, b = stack([method], toy, [7], [1e-3]), stack([limit], toy, [7], [1e-3])
    for _ in range(2):
        a.advance()
        b.advance()
    assert float(a.last[0, 0]) == pytest.approx(float(b.last[0, 0]), rel=1e-5)
    torch.testing.assert_close(a.rows, b.rows, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", [AdaGVAE(), AdaMLVAE(), SlowVAE()], ids=str)
def test_resume_equals_uninterrupted(method: Method, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = quick(tmp_path / "whole", method=method)
    with monkeypatch.context() as patch:
        die_at(patch, 7)
        with pytest.raises(Killed):
            quick(tmp_path / "cut", method=method, checkpoint_seconds=0)
    (resumed,) = quick(tmp_path / "cut", method=method)
    assert_same(whole, resumed)


# What is drawn, and what is refused.


@pytest.mark.parametrize("method", FORMS, ids=str)
def test_draws_its_kind_of_pairs(method: Method, toy: FactorData) -> None:
    """First examples in the first half, partners in the second, as the sampler of that name draws them."""
    key = torch.tensor(5)
    found = method.draw(toy, Noise(key), 40)
    options = {"k": method.k} if getattr(method, "k", 0) else {}  # type: ignore[attr-defined]
    wanted = PAIRS[method.pairs](toy, Noise(key), 20, **options)  # type: ignore[attr-defined]
    assert torch.equal(found.examples.view(2, 20).T, wanted.examples)
    assert found.changed is not None
    assert torch.equal(found.changed, wanted.changed)


def test_k_is_the_number_of_changed_factors(toy: FactorData) -> None:
    """One factor or k of them are let go, at even odds; by default the larger number is drawn too."""
    counts = [set(AdaGVAE(k=k).draw(toy, Noise(torch.tensor(0)), 400).changed.sum(1).tolist()) for k in (0, 1, 2)]  # type: ignore[union-attr]
    assert counts == [{1, 2, 3}, {1}, {1, 2}]


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        (AdaGVAE(), {"batch": 9}, r"batch of AdaGVAE.*even.*Got 9.*Use 10"),
        (SlowVAE(), {"batch": 9}, r"batch of SlowVAE.*even.*Got 9"),
        (AdaGVAE(pairs="laplace", k=2), {}, r"k of changed factors must be 0 with pairs=laplace.*Got 2"),
        (AdaGVAE(k=7), {}, r"k of changed factors must be 1 to 4 for toy.*Got 7"),
        (AdaMLVAE(apart="factors"), {"latents": 3}, r"a latent for each of the 4 factors of toy.*Got 3"),
    ],
)
def test_refusals(method: Method, settings: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        quick(method=method, **settings)


@pytest.mark.parametrize("method", [AdaGVAE(), AdaMLVAE(pairs="laplace"), SlowVAE()], ids=str)
def test_refuses_data_without_a_grid(method: Method) -> None:
    data = Labelled("mine", ("a",), (2,), torch.rand(6, 3), torch.zeros(6, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"full grid of factors. Got mine.*BetaVAE"):
        quick(method=method, data=data)


def test_fields_are_checked() -> None:
    with pytest.raises(ValueError, match="'apart' parameter of AdaMLVAE must be one of threshold, count, factors"):
        AdaMLVAE(apart="labels")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'rate' parameter of SlowVAE"):
        SlowVAE(rate=0.0)
