"""Invalid input to metrics, and properties of single metrics that the laws do not cover."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from support.known_codes import (
    CASES,
    GRID,
    NOISY,
    Array,
    array_parameters,
    factor_grid,
    noise,
    reflected,
    score,
)
from unbraid.errors import UserError
from unbraid.metrics import METRICS
from unbraid.metrics.factor_vae import intervention_variances
from unbraid.metrics.information import discretise, entropy, mutual_information


def make_codes_with(value: float) -> Array:
    """Return codes with three entries replaced by `value`."""
    codes = NOISY.copy()
    codes[7, 2] = codes[9, 1] = codes[8, 0] = value
    return codes


REJECTED: dict[str, tuple[object, object, str]] = {
    "vector of codes": (NOISY[:, 0], GRID, r"Codes must be a 2-d array. Got shape \(120,\) instead. .*reshape"),
    "stack of codes": (NOISY[None], GRID, r"Codes must be a 2-d array. Got shape \(1, 120, 3\) instead"),
    "one row": (NOISY[:1], GRID[:1], r"Codes must have at least 2 rows"),
    "no columns": (NOISY[:, :0], GRID, r"Codes must have at least 2 rows and 1 column"),
    "nan": (
        make_codes_with(math.nan),
        GRID,
        r"finite. Got 3 NaN .*\(first at row 7, column 2\) instead. Drop those rows",
    ),
    "infinite": (make_codes_with(-math.inf), GRID, r"Codes must be finite. Got 3 NaN or infinite"),
    "complex": (NOISY + 1j, GRID, r"Codes must be real numbers. Got dtype complex128 instead"),
    "words": ([["a", "b"], ["c", "d"]], GRID[:2], r"Codes must be real numbers"),
    "vector of factors": (NOISY, GRID[:, 0], r"Factors must be a 2-d array"),
    "other length": (NOISY, GRID[:90], r"same number of rows. Got 120 and 90 instead. Row i"),
    "transposed": (NOISY.T, GRID, r"same number of rows. Got 3 and 120 instead. .*Transpos"),
    "continuous": (
        NOISY,
        GRID + 0.5,
        r"Factors must be integers.* Got 0.5 \(row 0, column 0\) .* pass continuous=.* discretise them first",
    ),
    "infinite label": (NOISY, np.where(GRID == 5, np.inf, GRID), r"Factors must be finite. Got 20 NaN"),
    "unlabelled factor": (NOISY, GRID * [1, 1, np.nan], r"at least 2 labels each. Got fewer in column 2"),
    "masked code": (np.ma.masked_greater(NOISY, 1.0), GRID, r"finite. Got \d+ NaN"),
    "inexact labels": (NOISY, np.where(GRID == 1, 1e19, GRID), r"Factors must not exceed 2\^53"),
    "constant factor": (NOISY, GRID * [1, 0, 1], r"at least 2 values. Got only the value 0 in factor column 1"),
}
WITHOUT_FACTORS = (
    "masked code", "vector of codes", "stack of codes", "one row", "no columns", "nan", "infinite", "complex", "words"
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (name, what)
        for name in METRICS
        for what in REJECTED
        if "factors" in array_parameters(name) or what in WITHOUT_FACTORS
    ],
)
def test_rejects_invalid_arrays(name: str, what: str) -> None:
    codes, factors, message = REJECTED[what]
    with pytest.raises(ValueError, match=message):
        score(name, codes, factors)


@pytest.mark.parametrize("name", ["mig", "sap", "unsupervised"])
def test_gaps_between_latents_need_two_latents(name: str) -> None:
    with pytest.raises(ValueError, match=r"Codes must have at least 2 columns. Got 1 instead"):
        score(name, NOISY[:, :1], GRID)


def test_modularity_needs_two_factors() -> None:
    with pytest.raises(ValueError, match=r"Factors must have at least 2 columns. Got 1 instead"):
        score("modularity", NOISY, GRID[:, :1])


def test_sap_rejects_test_arrays_that_do_not_match() -> None:
    sap = METRICS["sap"]
    with pytest.raises(ValueError, match=r"Codes must have as many columns in train as in test. Got 3 and 2"):
        sap(NOISY, GRID, NOISY[:, :2], GRID)
    with pytest.raises(ValueError, match=r"Factors must have as many columns in train as in test. Got 3 and 2"):
        sap(NOISY, GRID, NOISY, GRID[:, :2])
    with pytest.raises(ValueError, match="Test codes must be finite"):
        sap(NOISY, GRID, make_codes_with(math.nan), GRID)
    with pytest.raises(ValueError, match=r"same number of rows. Got 120 and 90"):
        sap(NOISY, GRID, NOISY, GRID[:90])


def test_factor_vae_rejects_factors_without_repeated_values() -> None:
    factors = np.c_[GRID[:, :2], np.arange(len(GRID))]
    with pytest.raises(ValueError, match=r"Got 0 of 120 rows, with 0 of 120 values, in factor column 2 instead"):
        score("factor_vae", NOISY, factors)


@pytest.mark.parametrize(
    ("name", "option", "low"),
    [
        *((name, "bins", 1) for name in ("mig", "modularity", "unsupervised")),
        *(("factor_vae", option, low) for option, low in {"batch": 2, "train": 1, "test": 1, "prune": 0}.items()),
    ],
)
def test_rejects_too_small_a_parameter(name: str, option: str, low: int) -> None:
    with pytest.raises(ValueError, match=f"The '{option}' parameter must be >= {low}. Got {low - 1} instead."):
        score(name, NOISY, GRID, **{option: low - 1})


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, bool])
@pytest.mark.parametrize("name", METRICS)
def test_accepts_integers_of_any_dtype(name: str, dtype: type) -> None:
    factors = factor_grid(2, 2, 2).repeat(4, axis=0)
    codes = noise(32, 3).astype(np.float32)
    assert score(name, codes, factors.astype(dtype)) == score(name, codes.astype(float).tolist(), factors)


def test_label_values_do_not_matter() -> None:
    labels = np.array([-(2**62), 7, 2**62, 2**40, 5, 6])[GRID]
    for name in ("mig", "modularity", "factor_vae"):
        ranked = np.argsort(np.argsort([-(2**62), 7, 2**62, 2**40, 5, 6]))[GRID]
        assert score(name, NOISY, labels) == score(name, NOISY, ranked)


@pytest.mark.parametrize("name", sorted(name for name in METRICS if "factors" in array_parameters(name)))
def test_large_integers_are_exact_labels(name: str) -> None:
    assert score(name, NOISY, GRID + 2**60) == score(name, NOISY, GRID)


def test_masked_labels_are_missing() -> None:
    masked = np.ma.masked_equal(GRID, 2)
    assert METRICS["mig"](NOISY, masked) == METRICS["mig"](NOISY, np.where(GRID == 2, np.nan, GRID))


def test_large_integers_beside_a_continuous_factor_raise_an_error() -> None:
    with pytest.raises(UserError, match=r"Factors must not exceed 2\^53 if .* or if another factor is continuous"):
        METRICS["mig"](NOISY, GRID + 2**60, continuous=[True, False, False])


def test_factor_vae_depends_only_on_its_seed() -> None:
    codes = reflected(GRID)
    np.random.seed(0)
    first = score("factor_vae", codes, GRID, batch=4)
    np.random.seed(1)
    assert score("factor_vae", codes, GRID, batch=4) == first
    assert score("factor_vae", codes, GRID, batch=4, seed=1) != first


def test_a_constant_latent_is_never_active_in_factor_vae() -> None:
    assert score("factor_vae", CASES["collapsed"], GRID, prune=0)["num_active_dims"] == 2


def test_factor_vae_is_tested_on_separate_votes() -> None:
    scores = score("factor_vae", GRID, GRID, train=1, test=1000)
    assert scores["train_accuracy"] == 1
    # One vote assigns a factor to one latent. The latents without votes are assigned factor 0.
    assert scores["eval_accuracy"] < 0.75


def test_interventions_fix_the_factor() -> None:
    fixed, local = intervention_variances(GRID.astype(float), GRID, 3000, 64, np.random.default_rng(0))
    assert np.all(local[np.arange(3000), fixed] == 0)
    assert np.all(np.bincount(fixed) > 900)
    expected = GRID.var(axis=0)  # factors are independent, so the others keep their variance
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
    labels = np.arange(5000)[:, None]
    tracemalloc.start()
    assert mutual_information(labels, labels[::-1])[0, 0] == pytest.approx(math.log(5000))
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


def test_a_range_too_narrow_for_bins_gives_one_bin() -> None:
    codes = 1 + np.array([[0.0], [2.0**-52], [2.0**-51]])
    with pytest.raises(ValueError, match="Too many bins"):
        np.histogram(codes, 20)
    assert len(np.unique(discretise(codes))) == 1


def test_importing_metrics_does_not_import_torch() -> None:
    program = "import sys, unbraid.metrics; print(*{'torch', 'sklearn', 'scipy'} & set(sys.modules))"
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=path)
    assert done.stdout.split() == []


@pytest.mark.parametrize("shift", [0, 250, 2**62])
def test_perfect_codes_of_large_integers_are_exact(shift: int) -> None:
    from unbraid.metrics.known_codes import make_perfect_codes

    dtype = np.uint8 if shift == 250 else np.int64  # the sum of two labels would overflow
    assert np.array_equal(make_perfect_codes((GRID + shift).astype(dtype)), make_perfect_codes(GRID))
