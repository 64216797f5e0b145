"""Laws, facts and reference values for every metric in the registry."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from oracles import metrics as oracle
from unbraid.metrics import HEADLINE, METRICS, WHOLE_TABLE
from unbraid.metrics.factor_vae import accuracy, interventions, votes
from unbraid.metrics.information import discretise, entropy, mutual_information
from unbraid.metrics.sap import accuracies, squared_correlation

Array = np.ndarray[Any, np.dtype[Any]]
ARRAYS = ("codes", "factors", "test_codes", "test_factors")
FEW_VOTES: dict[str, dict[str, Any]] = {"factor_vae": {"train": 1000, "test": 500}}

CODE_SIZES = {
    "dsprites": (3, 6, 40, 32, 32),
    "smallnorb": (5, 9, 18, 6),
    "cars3d": (4, 24, 183),
    "shapes3d": (10, 10, 10, 8, 4, 15),
    "mpi3d": (6, 6, 2, 3, 3, 40, 40),
}


def takes(name: str) -> set[str]:
    return set(inspect.signature(METRICS[name]).parameters) & set(ARRAYS)


def score(name: str, codes: object, factors: object, **options: Any) -> dict[str, float]:
    """A metric on one table, which stands for the test points too."""
    arrays = {"codes": codes, "factors": factors, "test_codes": codes, "test_factors": factors}
    given_arrays = {key: arrays[key] for key in takes(name)}
    return METRICS[name](**given_arrays, **{**FEW_VOTES.get(name, {}), **options})


def table(*sizes: int) -> Array:
    """Every combination of factor values, last factor fastest."""
    return np.indices(sizes).reshape(len(sizes), -1).T


def drawn(sizes: tuple[int, ...], rows: int, seed: int) -> Array:
    return np.random.default_rng(seed).integers(sizes, size=(rows, len(sizes)))


def noise(rows: int, d: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(rows, d))


def reflected(codes: Array) -> Array:
    """Unit-variance codes times a Householder matrix that mixes all of them."""
    z = (codes - codes.mean(axis=0)) / codes.std(axis=0)
    v = np.arange(1, z.shape[1] + 1) / np.linalg.norm(np.arange(1, z.shape[1] + 1))
    return np.asarray(z @ (np.eye(z.shape[1]) - 2 * np.outer(v, v)))


GRID = table(5, 4, 6)
NOISY = GRID + 0.4 * noise(len(GRID), 3)
CASES: dict[str, Array] = {
    "perfect": GRID.astype(float),
    "noisy": NOISY,
    "reflected": reflected(GRID),
    "noise": noise(len(GRID), 3),
    "collapsed": NOISY * [1, 1, 0] + [0, 0, 0.3],
    "all constant": np.full(GRID.shape, 0.3),
    "duplicates": NOISY[:, [0, 0, 1]],
}

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


def spoilt(value: float) -> Array:
    codes = NOISY.copy()
    codes[7, 2] = codes[9, 1] = codes[8, 0] = value
    return codes


REFUSED: dict[str, tuple[object, object, str]] = {
    "vector of codes": (NOISY[:, 0], GRID, r"Codes must be a 2-d array. Got shape \(120,\) instead. .*reshape"),
    "stack of codes": (NOISY[None], GRID, r"Codes must be a 2-d array. Got shape \(1, 120, 3\) instead"),
    "one row": (NOISY[:1], GRID[:1], r"Codes must have at least 2 rows"),
    "no columns": (NOISY[:, :0], GRID, r"Codes must have at least 2 rows and 1 column"),
    "nan": (spoilt(math.nan), GRID, r"finite. Got 3 NaN .*\(first at row 7, column 2\) instead. Drop those rows"),
    "infinite": (spoilt(-math.inf), GRID, r"Codes must be finite. Got 3 NaN or infinite"),
    "complex": (NOISY + 1j, GRID, r"Codes must be real numbers. Got dtype complex128 instead"),
    "words": ([["a", "b"], ["c", "d"]], GRID[:2], r"Codes must be real numbers"),
    "vector of factors": (NOISY, GRID[:, 0], r"Factors must be a 2-d array"),
    "other length": (NOISY, GRID[:90], r"same number of rows. Got 120 and 90 instead. Row i"),
    "transposed": (NOISY.T, GRID, r"same number of rows. Got 3 and 120 instead. .*transpos"),
    "continuous": (
        NOISY,
        GRID + 0.5,
        r"Factors must be integers.* Got 0.5 \(row 0, column 0\) .* discretise them first",
    ),
    "unknown label": (NOISY, np.where(GRID == 5, np.nan, GRID), r"Factors must be finite. Got 20 NaN"),
    "constant factor": (NOISY, GRID * [1, 0, 1], r"at least 2 values. Got only the value 0 in factor column 1"),
}
UNLABELLED = ("vector of codes", "stack of codes", "one row", "no columns", "nan", "infinite", "complex", "words")


@pytest.mark.parametrize(
    ("name", "what"),
    [(name, what) for name in METRICS for what in REFUSED if "factors" in takes(name) or what in UNLABELLED],
)
def test_refuses(name: str, what: str) -> None:
    codes, factors, message = REFUSED[what]
    with pytest.raises(ValueError, match=message):
        score(name, codes, factors)


@pytest.mark.parametrize("name", ["mig", "sap", "unsupervised"])
def test_gaps_need_two_codes(name: str) -> None:
    with pytest.raises(ValueError, match=r"Codes must have at least 2 columns. Got 1 instead"):
        score(name, NOISY[:, :1], GRID)


def test_modularity_needs_two_factors() -> None:
    with pytest.raises(ValueError, match=r"Factors must have at least 2 columns. Got 1 instead"):
        score("modularity", NOISY, GRID[:, :1])


def test_sap_refuses_test_points_of_another_kind() -> None:
    sap = METRICS["sap"]
    with pytest.raises(ValueError, match=r"Codes must have as many columns in train as in test. Got 3 and 2"):
        sap(NOISY, GRID, NOISY[:, :2], GRID)
    with pytest.raises(ValueError, match=r"Factors must have as many columns in train as in test. Got 3 and 2"):
        sap(NOISY, GRID, NOISY, GRID[:, :2])
    with pytest.raises(ValueError, match="Test codes must be finite"):
        sap(NOISY, GRID, spoilt(math.nan), GRID)
    with pytest.raises(ValueError, match=r"same number of rows. Got 120 and 90"):
        sap(NOISY, GRID, NOISY, GRID[:90])


def test_factor_vae_refuses_a_value_seen_once() -> None:
    factors = np.r_[GRID, [[5, 0, 0]]]
    with pytest.raises(ValueError, match=r"Got 1 row with value 5 of factor column 0 .* table of 121 rows"):
        score("factor_vae", np.r_[NOISY, NOISY[:1]], factors)


@pytest.mark.parametrize(
    ("name", "option", "low"),
    [
        *((name, "bins", 1) for name in ("mig", "modularity", "unsupervised")),
        *(("factor_vae", option, low) for option, low in {"batch": 2, "train": 1, "test": 1, "prune": 0}.items()),
    ],
)
def test_refuses_a_parameter_too_small(name: str, option: str, low: int) -> None:
    with pytest.raises(ValueError, match=f"The '{option}' parameter must be >= {low}. Got {low - 1} instead."):
        score(name, NOISY, GRID, **{option: low - 1})


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, bool])
@pytest.mark.parametrize("name", METRICS)
def test_any_dtype_of_integers_will_do(name: str, dtype: type) -> None:
    factors = table(2, 2, 2).repeat(4, axis=0)
    codes = noise(32, 3).astype(np.float32)
    assert score(name, codes, factors.astype(dtype)) == score(name, codes.astype(float).tolist(), factors)


def test_labels_are_names_not_sizes() -> None:
    far = np.array([-(2**62), 7, 2**62, 2**40, 5, 6])[GRID]
    for name in ("mig", "modularity", "factor_vae"):
        ranked = np.argsort(np.argsort([-(2**62), 7, 2**62, 2**40, 5, 6]))[GRID]
        assert score(name, NOISY, far) == score(name, NOISY, ranked)


def test_sap_keeps_its_warnings_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import sklearn.svm

    hasty = functools.partial(sklearn.svm.LinearSVC, max_iter=1)
    with pytest.warns(match="failed to converge"):
        hasty(dual=False).fit(NOISY, GRID[:, 0])
    monkeypatch.setattr(sklearn.svm, "LinearSVC", hasty)
    score("sap", NOISY, GRID)


def test_factor_vae_depends_on_its_seed_only() -> None:
    codes = reflected(GRID)
    np.random.seed(0)
    first = score("factor_vae", codes, GRID, batch=4)
    np.random.seed(1)
    assert score("factor_vae", codes, GRID, batch=4) == first
    assert score("factor_vae", codes, GRID, batch=4, seed=1) != first


def test_factor_vae_never_keeps_a_constant() -> None:
    assert score("factor_vae", CASES["collapsed"], GRID, prune=0)["num_active_dims"] == 2


def test_factor_vae_is_judged_by_votes_it_did_not_learn_from() -> None:
    scores = score("factor_vae", GRID, GRID, train=1, test=1000)
    assert scores["train_accuracy"] == 1
    assert scores["eval_accuracy"] < 0.75  # one vote names one code; the codes without votes fall to factor 0


def test_interventions_hold_the_factor_fixed() -> None:
    fixed, local = interventions(GRID.astype(float), GRID, 3000, 64, np.random.default_rng(0))
    assert np.all(local[np.arange(3000), fixed] == 0)
    assert np.all(np.bincount(fixed) > 900)
    expected = GRID.var(axis=0)  # independent factors: the others keep their variance
    for j in range(3):
        others = [i for i in range(3) if i != j]
        assert local[fixed == j][:, others].mean(axis=0) == pytest.approx(expected[others], rel=0.02)


@given(
    hnp.arrays(np.int64, st.tuples(st.integers(2, 40), st.just(2)), elements=st.integers(-3, 5)),
    hnp.arrays(np.int64, 2, elements=st.integers(-(2**60), 2**60)),
)
def test_information_equals_scikit_learn(labels: Array, shift: Array) -> None:
    from sklearn.metrics import mutual_info_score

    got = mutual_information(labels + shift, labels)
    for i in range(2):
        for j in range(2):
            assert got[i, j] == pytest.approx(mutual_info_score(labels[:, i], labels[:, j]), abs=1e-12)
            assert 0 <= got[i, j] <= entropy(labels)[[i, j]].min() + 1e-12
    assert np.diag(got) == pytest.approx(entropy(labels), abs=1e-12)


def test_information_of_many_labels_fits_in_memory() -> None:
    names = np.arange(5000)[:, None]
    tracemalloc.start()
    assert mutual_information(names, names[::-1])[0, 0] == pytest.approx(math.log(5000))
    assert tracemalloc.get_traced_memory()[1] < 20e6  # a table of all pairs would take 200 MB
    tracemalloc.stop()


@settings(max_examples=200)
@given(hnp.arrays(np.float64, st.integers(2, 50), elements=st.floats(-1e6, 1e6)), st.integers(1, 30))
def test_discretise_equals_numpy(x: Array, bins: int) -> None:
    try:
        expected = np.digitize(x, np.histogram(x, bins)[1][:-1])
    except ValueError:  # numpy: too many bins for the data range
        expected = np.full(len(x), discretise(x[:, None], bins)[0, 0])
    assert np.array_equal(discretise(x[:, None], bins)[:, 0], expected)


def test_a_range_too_narrow_for_bins_is_one_bin() -> None:
    codes = 1 + np.array([[0.0], [2.0**-52], [2.0**-51]])
    with pytest.raises(ValueError, match="Too many bins"):
        np.histogram(codes, 20)
    assert len(np.unique(discretise(codes))) == 1


def test_metrics_need_no_torch() -> None:
    program = "import sys, unbraid.metrics; print(*{'torch', 'sklearn', 'scipy'} & set(sys.modules))"
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=path)
    assert done.stdout.split() == []


class Golden(NamedTuple):
    """One case of the reference implementation: the values wanted and the arrays they came from."""

    want: dict[str, Any]
    arrays: dict[str, Array]

    @property
    def points(self) -> tuple[Array, Array, Array, Array]:
        """Codes, factors, test codes, test factors."""
        a = self.arrays
        return a["codes_train"], a["factors_train"], a["codes_test"], a["factors_test"]


@pytest.fixture(params=["perfect", "permuted_scaled", "householder", "noisy"])
def golden(request: pytest.FixtureRequest, shared: Path) -> Golden:
    """Values computed by google-research/disentanglement_lib at 86a644d, with the tolerances it states."""
    want = json.loads((shared / "golden" / "golden.json").read_text())["cases"][request.param]
    with np.load(shared / "golden" / want["file"]) as arrays:
        return Golden(want, dict(arrays))


def test_golden_information(golden: Golden) -> None:
    codes, factors, _, _ = golden.points
    assert mutual_information(discretise(codes), factors) == pytest.approx(np.array(golden.want["mi_matrix"]), abs=1e-9)
    assert entropy(factors) == pytest.approx(np.array(golden.want["factor_entropy"]), abs=1e-9)
    assert score("mig", codes, factors)["discrete_mig"] == pytest.approx(golden.want["discrete_mig"], abs=1e-9)
    assert score("modularity", codes, factors) == {
        "modularity_score": pytest.approx(golden.want["modularity_score"], abs=1e-9)
    }


def test_golden_sap(golden: Golden) -> None:
    codes, factors, test_codes, test_factors = golden.points
    integers = factors.astype(int), test_factors.astype(int)
    matrix = accuracies(codes, integers[0], test_codes, integers[1])
    assert matrix == pytest.approx(np.array(golden.want["sap_matrix"]), abs=0.01)
    correlations = squared_correlation(codes, integers[0])
    assert correlations == pytest.approx(np.array(golden.want["sap_continuous_matrix"]), abs=1e-9)
    got = METRICS["sap"](*golden.points) | METRICS["sap"](*golden.points, continuous=True)
    assert got["SAP_score"] == pytest.approx(golden.want["SAP_score"], abs=0.01)
    assert got["SAP_score_continuous"] == pytest.approx(golden.want["SAP_score_continuous"], abs=1e-9)


def test_golden_factor_vae(golden: Golden) -> None:
    want, arrays = golden.want["factor_vae"], golden.arrays
    spread = arrays["factorvae_global_variances"]
    active = np.sqrt(spread) >= want["prune_threshold"]
    assert active.tolist() == want["active_dims"]
    learnt, held = (
        votes(
            arrays[f"factorvae_{part}_local_variances"],
            spread,
            arrays[f"factorvae_{part}_factor"].astype(int),
            active,
            4,
        )
        for part in ("train", "eval")
    )
    assert learnt.tolist() == want["train_votes"]
    assert held.tolist() == want["eval_votes"]
    assert accuracy(learnt, learnt) == pytest.approx(want["train_accuracy"], abs=1e-9)
    assert accuracy(learnt, held) == pytest.approx(want["eval_accuracy"], abs=1e-9)


def test_golden_factor_vae_end_to_end(golden: Golden) -> None:
    grid = table(*golden.arrays["factor_sizes"].tolist())
    got = score("factor_vae", golden.arrays["code_table"], grid)["eval_accuracy"]
    assert got == pytest.approx(np.mean(golden.want["factor_vae_end_to_end_eval_accuracy_3_seeds"]), abs=0.05)


def test_golden_unsupervised(golden: Golden) -> None:
    want = dict(golden.want["unsupervised"])
    assert want.pop("cov_condition_number") < 1e8
    assert score("unsupervised", golden.points[0], None) == pytest.approx(want, abs=1e-9)
