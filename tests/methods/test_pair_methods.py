"""Shared tests of all variants of the methods for pairs, the pairs that they draw, and invalid settings."""

from __future__ import annotations

import pytest
import torch

from support.engine_laws import (
    assert_divergence_affects_one_run,
    assert_every_parameter_learns,
    assert_stack_equals_single_runs,
    assert_vmap_equals_one_by_one,
    vary_hyperparameters,
)
from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.data.in_memory import Labelled
from unbraid.data.sampling import PAIRS
from unbraid.methods.ada_vae import AdaGVAE, AdaMLVAE
from unbraid.methods.method import Method
from unbraid.methods.slow_vae import SlowVAE
from unbraid.noise import Noise

VARIANTS: list[Method] = [
    AdaGVAE(),
    AdaGVAE(apart="count", k=2),
    AdaGVAE(apart="factors", pairs="uniform"),
    AdaMLVAE(),
    AdaMLVAE(apart="count", pairs="laplace"),
    SlowVAE(),
    SlowVAE(pairs="uniform"),
]


@pytest.mark.parametrize("method", VARIANTS, ids=str)
def test_stack_equals_single_runs(method: Method, toy: FactorData) -> None:
    assert_stack_equals_single_runs(vary_hyperparameters(method), toy)


@pytest.mark.parametrize("method", VARIANTS, ids=str)
def test_vmap_equals_one_by_one(method: Method, toy: FactorData) -> None:
    assert_vmap_equals_one_by_one(vary_hyperparameters(method), toy)


@pytest.mark.parametrize("method", VARIANTS, ids=str)
def test_every_parameter_learns(method: Method, toy: FactorData) -> None:
    assert_every_parameter_learns(method, toy)


@pytest.mark.parametrize("vmapped", [False, True])
@pytest.mark.parametrize("method", VARIANTS, ids=str)
def test_divergence_affects_one_run(method: Method, vmapped: bool, toy: FactorData) -> None:
    assert_divergence_affects_one_run(method, toy, vmapped)


@pytest.mark.parametrize("method", VARIANTS, ids=str)
def test_pairs_are_those_of_the_chosen_sampler(method: Method, toy: FactorData) -> None:
    """The first half of the batch holds the first example of each pair, and the second half their partners."""
    key = torch.tensor(5)
    actual = method.draw(toy, Noise(key), 40)
    options = {"k": method.k} if getattr(method, "k", 0) else {}  # type: ignore[attr-defined]
    expected = PAIRS[method.pairs](toy, Noise(key), 20, **options)  # type: ignore[attr-defined]
    assert torch.equal(actual.examples.view(2, 20).T, expected.examples)
    assert actual.changed is not None
    assert torch.equal(actual.changed, expected.changed)


def test_k_is_the_number_of_changed_factors(toy: FactorData) -> None:
    """Either one factor or k factors change, with equal probability. By default k is random."""
    counts = [set(AdaGVAE(k=k).draw(toy, Noise(torch.tensor(0)), 400).changed.sum(1).tolist()) for k in (0, 1, 2)]  # type: ignore[union-attr]
    assert counts == [{1, 2, 3}, {1}, {1, 2}]


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (AdaGVAE(), {"batch": 9}, r"batch of AdaGVAE.*even.*Got 9.*Use 10"),
        (SlowVAE(), {"batch": 9}, r"batch of SlowVAE.*even.*Got 9"),
        (AdaGVAE(pairs="laplace", k=2), {}, r"k of changed factors must be 0 with pairs=laplace.*Got 2"),
        (AdaGVAE(k=7), {}, r"k of changed factors must be 1 to 4 for toy.*Got 7"),
        (AdaMLVAE(apart="factors"), {"latents": 3}, r"each of the 4 factors of toy needs a latent.*Got 3"),
    ],
)
def test_invalid_settings_raise(method: Method, settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick_train(method=method, **settings)


@pytest.mark.parametrize("method", [AdaGVAE(), AdaMLVAE(pairs="laplace"), SlowVAE()], ids=str)
def test_data_without_a_grid_raise(method: Method) -> None:
    data = Labelled("mine", ("a",), (2,), torch.rand(6, 3), torch.zeros(6, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"full grid of factors. mine is not a full grid.*BetaVAE"):
        quick_train(method=method, data=data)


def test_fields_are_checked() -> None:
    with pytest.raises(ValueError, match="'apart' parameter of AdaMLVAE must be one of threshold, count, factors"):
        AdaMLVAE(apart="labels")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'rate' parameter of SlowVAE"):
        SlowVAE(rate=0.0)
