"""Laws that hold for every metric, and codes whose scores are known."""

from __future__ import annotations

import inspect
import json
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laws import LAWS
from laws.base import Fact
from oracles import metrics as oracle
from support.known_codes import CASES, GRID, MAPS, NOISY, Array, factor_grid, noise, reflected, score
from unbraid.metrics import METRICS, TRAITS
from unbraid.metrics.known_codes import KNOWN_CODES
from unbraid.metrics.protocol import Rows
from unbraid.metrics.sap import squared_correlation

FACTS = [(name, fact) for name, law in LAWS.items() for fact in law.facts]


def headline_score(name: str, codes: object, factors: object, **options: Any) -> float:
    return score(name, codes, factors, **options)[TRAITS[name].headline]


def test_tables_cover_the_registry() -> None:
    assert set(LAWS) == set(TRAITS) == set(METRICS)
    assert all(law.facts for law in LAWS.values())
    assert all(set(law.tolerances) == set(MAPS) for law in LAWS.values())


@pytest.mark.parametrize("name", METRICS)
def test_docstring_has_all_sections(name: str) -> None:
    text = inspect.getdoc(METRICS[name]) or ""
    assert METRICS[name].__name__ == name
    sections = ("Limitations:", "Reference:", "Args:", "Returns:", "Raises:", "Example:")
    assert all(part in text for part in (".. math::", "arXiv:", "0 means", ">>>", *sections))
    assert text.splitlines()[0].endswith(".")


def check_range(name: str, scores: dict[str, float]) -> None:
    assert TRAITS[name].headline in scores
    assert all(type(value) is float and math.isfinite(value) for value in scores.values())
    ranges = LAWS[name].ranges
    assert all(ranges[key][0] <= value <= ranges[key][1] + 1e-12 for key, value in scores.items() if key in ranges)
    json.dumps(scores, allow_nan=False)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", METRICS)
def test_scores_are_in_range(name: str, case: str) -> None:
    scores = score(name, CASES[case], GRID)
    assert set(scores) == set(LAWS[name].ranges)
    check_range(name, scores)


def check_invariant(name: str, law: str, codes: Array, factors: Array) -> None:
    before, after = score(name, codes, factors), score(name, *MAPS[law](codes, factors))
    for key in (before.keys() & after.keys()) - exempt_keys(name, law, before):
        assert after[key] == pytest.approx(before[key], abs=LAWS[name].tolerances[law]), key


def exempt_keys(name: str, law: str, scores: dict[str, float]) -> set[str]:
    """Return the keys that a map may change, either by the law or because they contain the number of a factor."""
    changes = set(LAWS[name].changes)
    if law == "affine":
        return set(scores) if changes >= set(LAWS[name].ranges) else changes
    return {key for key in scores if re.search(r"factor_\d|:pred\d|:sens\d", key)} if law == "factors" else set()


@pytest.mark.parametrize("law", MAPS)
@pytest.mark.parametrize("name", METRICS)
def test_scores_are_invariant(name: str, law: str) -> None:
    check_invariant(name, law, NOISY, GRID)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Array, Array]:
    """Draw a full grid of two to four factors, and codes that are noisy mixtures of them."""
    sizes = draw(st.lists(st.integers(2, 6), min_size=2, max_size=4).filter(lambda s: 30 <= math.prod(s) <= 300))
    factors = factor_grid(*sizes)
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    d = draw(st.integers(2, 5))
    density = draw(st.sampled_from([0.3, 0.6, 1.0]))
    mixing = np.where(rng.random((len(sizes), d)) < density, rng.normal(size=(len(sizes), d)), 0)
    standard = (factors - factors.mean(axis=0)) / factors.std(axis=0)
    noise_scale = draw(st.sampled_from([0.1, 0.5, 2.0]))
    return np.asarray(standard @ mixing + noise_scale * rng.normal(size=(len(factors), d))), factors


@pytest.mark.parametrize("name", METRICS)
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(), law=st.sampled_from(sorted(MAPS)))
def test_laws_hold_for_any_codes(name: str, problem: tuple[Array, Array], law: str) -> None:
    check_range(name, score(name, *problem))
    check_invariant(name, law, *problem)


def test_exemptions_from_the_affine_law_are_needed() -> None:
    """Every key that is exempt from the affine law changes under some positive affine map."""
    codes = [NOISY, reflected(GRID), GRID + 3 * noise(120, 3)]
    for name, law in ((name, law) for name, law in LAWS.items() if law.changes):
        pairs = [(score(name, c, GRID), score(name, c * [0.01, 1, 100] + [3, 0, 0], GRID)) for c in codes]
        for key in law.changes:
            assert any(abs(a[key] - b[key]) > 1e-6 for a, b in pairs), (name, key)
    assert score("factor_vae", NOISY * [1, 1, 0.01], GRID)["num_active_dims"] == 2
    assert score("factor_vae", NOISY * [1, 1, 0.01], GRID, prune=0)["num_active_dims"] == 3


@pytest.mark.parametrize("name", METRICS)
def test_equals_its_oracle(name: str) -> None:
    factors = factor_grid(3, 4, 3)
    codes = factors + 0.5 * noise(len(factors), 3, seed=3)
    law = LAWS[name]
    got = headline_score(name, codes, factors, **law.oracle_options)
    assert got == pytest.approx(law.oracle(codes, factors), abs=law.oracle_tolerance)


def test_all_unsupervised_scores_equal_the_oracle() -> None:
    assert score("unsupervised", NOISY, GRID) == pytest.approx(oracle.unsupervised(NOISY), abs=1e-12)


def test_continuous_sap_equals_its_oracle() -> None:
    factors = GRID + 0.25
    got = score("sap", NOISY, factors, continuous=True)
    assert got == {"SAP_score_continuous": pytest.approx(oracle.sap_continuous(NOISY.tolist(), factors.tolist()))}


def test_the_squared_correlation_of_a_constant_is_zero() -> None:
    assert np.all(squared_correlation(np.c_[np.full(120, 0.3), np.zeros(120)], GRID) == 0)


@pytest.mark.parametrize(("name", "fact"), FACTS, ids=[f"{name}: {fact.source}" for name, fact in FACTS])
def test_known_score(name: str, fact: Fact) -> None:
    got = score(name, fact.codes(), fact.factors())[fact.key or TRAITS[name].headline]
    assert got == pytest.approx(fact.expected, abs=fact.tolerance)


LOWERED_BY_ROTATION = ("mig", "sap", "modularity", "dci", "irs", "mcc", "infomec", "dcimig", "jemmig", "mig_sup")


@pytest.mark.parametrize("name", LOWERED_BY_ROTATION)
def test_rotation_lowers_the_score(name: str) -> None:
    assert headline_score(name, reflected(GRID), GRID) < headline_score(name, GRID, GRID) - 0.05


@pytest.mark.parametrize("name", METRICS)
def test_perfect_codes_score_better_than_noise(name: str) -> None:
    factors = np.repeat(GRID, 3, axis=0)
    rows = Rows.sample_disjoint(factors, factors, 1000, 1000, 0)
    perfect, random = (
        rows.with_codes(KNOWN_CODES[code](factors, 0)).score([name], 0).values_or_raise()[name][TRAITS[name].headline]
        for code in ("perfect", "noise")
    )
    assert perfect < random if TRAITS[name].low_is_good else perfect > random + 0.1
