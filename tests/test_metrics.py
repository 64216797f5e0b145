"""Laws that every metric obeys, and planted codes with known scores."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from oracles import metrics as oracle
from planted import (
    CASES,
    CODE_SIZES,
    GRID,
    NOISY,
    Array,
    drawn,
    noise,
    reflected,
    score,
    table,
)
from unbraid.metrics import HEADLINE, METRICS, WHOLE_TABLE
from unbraid.metrics.sap import squared_correlation

UNIT = (0.0, 1.0)
LENGTH = (0.0, math.inf)
RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "mig": {"discrete_mig": UNIT},
    "sap": {"SAP_score": UNIT},
    "modularity": {"modularity_score": UNIT},
    "factor_vae": {"train_accuracy": UNIT, "eval_accuracy": UNIT, "num_active_dims": LENGTH},
    "unsupervised": {
        "gaussian_total_correlation": LENGTH,
        "gaussian_wasserstein_correlation": LENGTH,
        "gaussian_wasserstein_correlation_norm": LENGTH,
        "mutual_info_score": LENGTH,
    },
}

# How closely a score stays the same under each map. sap: a point on a decision boundary may cross it by rounding.
# factor_vae: other rows are drawn when rows or factors are reordered.
TOLERANCES: dict[str, dict[str, float]] = {
    "mig": {"rows": 1e-12, "codes": 1e-12, "factors": 1e-12, "affine": 1e-12},
    "sap": {"rows": 0.01, "codes": 1e-12, "factors": 1e-12},
    "modularity": {"rows": 1e-12, "codes": 1e-12, "factors": 1e-12, "affine": 1e-12},
    "factor_vae": {"rows": 0.05, "codes": 1e-12, "factors": 0.05, "affine": 1e-12},
    "unsupervised": {"rows": 1e-12, "codes": 1e-12, "factors": 0.0, "affine": 1e-12},
}
MAPS: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "rows": lambda c, v: (c[(order := np.random.default_rng(1).permutation(len(c)))], v[order]),
    "codes": lambda c, v: (c[:, [2, 0, 1]], v),
    "factors": lambda c, v: (c, v[:, [2, 0, 1]]),
    "affine": lambda c, v: (c * [3.0, 0.7, 11.0] + [5.0, -2.0, 0.1], v),
}
# Scores that a positive affine map of the codes may change, and why.
SCALED = {
    "SAP_score": "the SVM is regularised and codes are not standardised",
    "gaussian_wasserstein_correlation": "in squared units of the codes",
    "gaussian_wasserstein_correlation_norm": "relative to the total variance: free of a common scale only",
}

ORACLES: dict[str, tuple[Callable[[Array, Array], float], float]] = {
    "mig": (lambda c, v: oracle.mig(c.tolist(), v.tolist()), 1e-12),
    "sap": (lambda c, v: oracle.sap(c, v, c, v), 0.01),
    "modularity": (lambda c, v: oracle.modularity(c.tolist(), v.tolist()), 1e-12),
    "factor_vae": (lambda c, v: oracle.factor_vae(c.tolist(), v.tolist(), 10, 400, 400), 0.05),
    "unsupervised": (lambda c, v: oracle.unsupervised(c)["gaussian_total_correlation"], 1e-12),
}


def test_tables_cover_the_registry() -> None:
    for covered in (RANGES, TOLERANCES, ORACLES, HEADLINE, {fact.metric for fact in FACTS}):
        assert set(covered) == set(METRICS)
    assert set(METRICS) >= WHOLE_TABLE
    assert all(set(law) | {"affine"} == set(MAPS) for law in TOLERANCES.values())


@pytest.mark.parametrize("name", METRICS)
def test_is_documented(name: str) -> None:
    text = inspect.getdoc(METRICS[name]) or ""
    assert METRICS[name].__name__ == name
    assert all(part in text for part in (".. math::", "arXiv:", "0:", ">>>"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", METRICS)
def test_in_range(name: str, case: str) -> None:
    scores = score(name, CASES[case], GRID)
    assert set(scores) == set(RANGES[name])
    assert HEADLINE[name] in scores
    assert all(type(value) is float and math.isfinite(value) for value in scores.values())
    assert all(low <= scores[key] <= high + 1e-12 for key, (low, high) in RANGES[name].items())
    json.dumps(scores, allow_nan=False)


@pytest.mark.parametrize(("name", "law"), [(name, law) for name in METRICS for law in TOLERANCES[name]])
def test_invariant(name: str, law: str) -> None:
    before, after = score(name, NOISY, GRID), score(name, *MAPS[law](NOISY, GRID))
    for key in before.keys() - (SCALED if law == "affine" else {}):
        assert after[key] == pytest.approx(before[key], abs=TOLERANCES[name][law]), key


def test_exceptions_to_scaling_are_real() -> None:
    assert abs(score("sap", NOISY * 0.01, GRID)["SAP_score"] - score("sap", NOISY, GRID)["SAP_score"]) > 0.02
    assert score("factor_vae", NOISY * [1, 1, 0.01], GRID)["num_active_dims"] == 2
    assert score("factor_vae", NOISY * [1, 1, 0.01], GRID, prune=0)["num_active_dims"] == 3
    one, four = score("unsupervised", NOISY, GRID), score("unsupervised", 2 * NOISY, GRID)
    assert four["gaussian_wasserstein_correlation"] == pytest.approx(4 * one["gaussian_wasserstein_correlation"])


@pytest.mark.parametrize("name", METRICS)
def test_equals_its_oracle(name: str) -> None:
    factors = table(3, 4, 3)
    codes = factors + 0.5 * noise(len(factors), 3, seed=3)
    expected, tolerance = ORACLES[name]
    options = {"batch": 10, "train": 5000, "test": 5000} if name == "factor_vae" else {}
    assert score(name, codes, factors, **options)[HEADLINE[name]] == pytest.approx(
        expected(codes, factors), abs=tolerance
    )


def test_all_unsupervised_scores_equal_the_oracle() -> None:
    assert score("unsupervised", NOISY, GRID) == pytest.approx(oracle.unsupervised(NOISY), abs=1e-12)


def test_continuous_sap_equals_its_oracle() -> None:
    factors = GRID + 0.25
    got = score("sap", NOISY, factors, continuous=True)
    assert got == {"SAP_score_continuous": pytest.approx(oracle.sap_continuous(NOISY.tolist(), factors.tolist()))}


def test_a_constant_correlates_with_nothing() -> None:
    assert np.all(squared_correlation(np.c_[np.full(120, 0.3), np.zeros(120)], GRID) == 0)


class Fact(NamedTuple):
    """A planted code whose score is known; `source` says from where."""

    metric: str
    codes: Callable[[], Array]
    factors: Callable[[], Array]
    expected: float
    tolerance: float
    source: str
    key: str = ""


def perfect(sizes: tuple[int, ...]) -> Callable[[], Array]:
    return lambda: drawn(sizes, 10_000, 0) - (np.array(sizes) - 1) / 2


def sampled(sizes: tuple[int, ...]) -> Callable[[], Array]:
    return lambda: drawn(sizes, 10_000, 0)


def correlated(rho: float) -> Array:
    """Points whose sample covariance is exactly [[1, rho], [rho, 1]]."""
    x = noise(500, 2) - noise(500, 2).mean(axis=0)
    white = x @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T))).T
    return np.asarray(white @ np.linalg.cholesky(np.array([[1.0, rho], [rho, 1.0]])).T)


ROUNDING_CEILING = -0.5 * (math.log(3 * 2.0**-52) + math.log(2))  # eigenvalues 0 (floored), 1, 2 of three codes
TABLE = "disentanglement_lib at 86a644d, 10,000 points"
FACTS = [
    Fact("mig", lambda: GRID, lambda: GRID, 1, 1e-12, "complete table, bins >= values"),
    Fact("mig", lambda: GRID[:, [0, 0, 1, 1, 2, 2]], lambda: GRID, 0, 0, "every code twice"),
    Fact("mig", lambda: GRID[:, [0, 1, 2, 2]], lambda: GRID, 2 / 3, 1e-12, "one factor of three told twice"),
    Fact("mig", lambda: noise(10_000, 10), lambda: drawn((3, 4), 10_000, 1), 0, 0.002, "noise: bias of both cancels"),
    Fact("mig", lambda: np.zeros((120, 2)), lambda: GRID, 0, 0, "constants tell nothing"),
    *(
        Fact("mig", perfect(CODE_SIZES[data]), sampled(CODE_SIZES[data]), expected, 0.001, f"{data}: {TABLE}")
        for data, expected in zip(CODE_SIZES, (0.896, 0.998, 0.819, 0.998, 0.942), strict=True)
    ),
    Fact("modularity", lambda: GRID, lambda: GRID, 1, 0, "complete table"),
    Fact("modularity", lambda: np.c_[GRID, np.ones(120)], lambda: GRID, 3 / 4, 1e-15, "a constant scores 0 and counts"),
    Fact("modularity", lambda: np.c_[GRID[:, 0], GRID[:, 0]], lambda: GRID, 1, 0, "two codes of one factor"),
    Fact(
        "modularity",
        lambda: np.ravel_multi_index(tuple(table(3, 3).T), (3, 3))[:, None],
        lambda: table(3, 3),
        0,
        1e-12,
        "one code tells two factors equally",
    ),
    *(
        Fact("modularity", perfect(CODE_SIZES[data]), sampled(CODE_SIZES[data]), expected, 0.001, f"{data}: {TABLE}")
        for data, expected in zip(CODE_SIZES, (1.0, 1.0, 0.999, 1.0, 1.0), strict=True)
    ),
    Fact(
        "modularity",
        lambda: noise(10_000, 10),
        sampled(CODE_SIZES["dsprites"]),
        0.677,
        0.04,
        f"noise is modular by bias, spread .02 over seeds: {TABLE}",
    ),
    Fact("sap", lambda: GRID[:, [0, 0, 1, 1, 2, 2]], lambda: GRID, 0, 0, "every code twice"),
    Fact("sap", lambda: 20 * table(2, 2, 9) - 10, lambda: table(2, 2, 9)[:, :2], 0.5, 0, "binary: 1 against chance"),
    *(
        Fact("sap", perfect(CODE_SIZES[data]), sampled(CODE_SIZES[data]), expected, 0.01, f"{data}: {TABLE}")
        for data, expected in (("dsprites", 0.245), ("cars3d", 0.265), ("shapes3d", 0.246), ("mpi3d", 0.408))
    ),
    Fact("factor_vae", lambda: GRID, lambda: GRID, 1, 0, "the code of the fixed factor has variance 0"),
    Fact("factor_vae", lambda: np.c_[GRID, noise(120, 4)], lambda: GRID, 1, 0, "noise codes never win"),
    Fact("factor_vae", lambda: np.c_[GRID, GRID[:, 0] / 1000], lambda: GRID, 1, 0, "a pruned copy is ignored"),
    Fact("factor_vae", lambda: GRID / 1000, lambda: GRID, 0, 0, "no active code"),
    Fact("factor_vae", lambda: noise(1000, 4), lambda: drawn((2, 2), 1000, 1), 0.5, 0.1, "noise: about chance"),
    Fact("factor_vae", lambda: np.c_[GRID, np.ones(120)], lambda: GRID, 3, 0, "constant pruned", "num_active_dims"),
    Fact("factor_vae", lambda: 0.1 * GRID / GRID.std(0), lambda: GRID, 3, 0, "std .1 is above .05", "num_active_dims"),
    Fact("unsupervised", lambda: GRID, lambda: GRID, 0, 1e-12, "complete table: uncorrelated"),
    Fact("unsupervised", lambda: correlated(0.8), lambda: GRID, -0.5 * math.log(1 - 0.64), 1e-12, "-log(1 - r^2) / 2"),
    Fact(
        "unsupervised",
        lambda: correlated(0.8),
        lambda: GRID,
        4 - 2 * math.sqrt(1.8) - 2 * math.sqrt(0.2),
        1e-12,
        "eigenvalues 1 + r and 1 - r",
        "gaussian_wasserstein_correlation",
    ),
    Fact(
        "unsupervised",
        lambda: np.c_[correlated(0.8), np.full(500, 0.3)],
        lambda: GRID,
        -0.5 * math.log(0.36),
        1e-12,
        "+ constant",
    ),
    Fact("unsupervised", lambda: GRID[:, [0, 0, 1]], lambda: GRID, ROUNDING_CEILING, 1e-9, "a copy: the ceiling"),
    Fact(
        "unsupervised",
        lambda: table(3, 3)[:, [0, 0, 1]],
        lambda: GRID,
        math.log(3) / 3,
        1e-12,
        "one equal pair of three",
        "mutual_info_score",
    ),
    Fact("unsupervised", lambda: np.ones((9, 3)), lambda: GRID, 0, 0, "constants"),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact.metric}: {fact.source}")
def test_fact(fact: Fact) -> None:
    got = score(fact.metric, fact.codes(), fact.factors())[fact.key or HEADLINE[fact.metric]]
    assert got == pytest.approx(fact.expected, abs=fact.tolerance)


@pytest.mark.parametrize("name", ["mig", "sap", "modularity"])
def test_mixing_lowers(name: str) -> None:
    assert score(name, reflected(GRID), GRID)[HEADLINE[name]] < score(name, GRID, GRID)[HEADLINE[name]] - 0.05
