"""Methods that see pairs: which latents are shared and how, what a transition costs, and that it helps."""

from __future__ import annotations

import pytest
import torch

from support.engine_laws import (
    assert_divergence_stays_home,
    assert_every_parameter_learns,
    assert_stack_equals_solo,
    assert_vmap_equals_turns,
    varied,
)
from support.training import quick
from unbraid.data.dataset import FactorData
from unbraid.data.in_memory import Labelled
from unbraid.data.sampling import PAIRS
from unbraid.methods.ada_vae import AdaGVAE, AdaMLVAE
from unbraid.methods.method import Method
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


# The laws of the registry, for every form.


@pytest.mark.parametrize("method", FORMS, ids=str)
def test_stack_equals_solo(method: Method, toy: FactorData) -> None:
    assert_stack_equals_solo(varied(method), toy)


@pytest.mark.parametrize("method", FORMS, ids=str)
def test_vmap_equals_turns(method: Method, toy: FactorData) -> None:
    assert_vmap_equals_turns(varied(method), toy)


@pytest.mark.parametrize("method", FORMS, ids=str)
def test_every_parameter_learns(method: Method, toy: FactorData) -> None:
    assert_every_parameter_learns(method, toy)


@pytest.mark.parametrize("vmapped", [False, True])
@pytest.mark.parametrize("method", FORMS, ids=str)
def test_divergence_stays_home(method: Method, vmapped: bool, toy: FactorData) -> None:
    assert_divergence_stays_home(method, toy, vmapped)


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
