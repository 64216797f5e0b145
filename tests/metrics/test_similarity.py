"""Similarity of the codes of two models: oracles, invariances and codes with known similarities."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from oracles import similarity as oracle
from support.known_codes import Array, factor_grid, noise
from unbraid.metrics import debiased_cka, fit_linear_map, linear_cka, linear_r2, procrustes_distance

CKAS: dict[str, tuple[Callable[..., float], Callable[..., float]]] = {
    "biased": (linear_cka, oracle.cka),
    "debiased": (debiased_cka, oracle.debiased_cka),
}
SYMMETRIC = (linear_cka, debiased_cka, procrustes_distance)
TWO = factor_grid(5, 5).astype(float)  # two exactly uncorrelated codes with equal variances


def rotation(d: int, seed: int = 0) -> Array:
    return np.asarray(np.linalg.qr(noise(d, d, seed))[0])


@pytest.mark.parametrize("name", CKAS)
def test_cka_equals_its_oracle(name: str) -> None:
    ours, theirs = CKAS[name]
    a, b = noise(8, 3) + 1, noise(8, 2, seed=1)
    b[:, 0] += a[:, 1]
    assert ours(a, b) == pytest.approx(theirs(a.tolist(), b.tolist()), abs=1e-10)


def test_procrustes_distance_equals_scipy() -> None:
    from scipy.linalg import orthogonal_procrustes

    a, b = noise(30, 3), noise(30, 3, seed=1) + 4
    x, y = ((z - z.mean(axis=0)) / np.linalg.norm(z - z.mean(axis=0)) for z in (a, b))
    best, _ = orthogonal_procrustes(y, x)
    assert procrustes_distance(a, b) == pytest.approx(np.linalg.norm(x - y @ best), abs=1e-12)


def test_linear_map_equals_scikit_learn() -> None:
    from sklearn.linear_model import LinearRegression
    from sklearn.metrics import r2_score

    a, b = noise(60, 3), noise(60, 2, seed=1) + noise(60, 3) @ noise(3, 2, seed=2)
    want = LinearRegression().fit(a[:40], b[:40])
    found = fit_linear_map(a[:40], b[:40])
    assert found(a) == pytest.approx(want.predict(a), abs=1e-10)
    r2 = r2_score(b[40:], want.predict(a[40:]), multioutput="variance_weighted")
    assert linear_r2(a[:40], b[:40], a[40:], b[40:]) == pytest.approx(r2, abs=1e-10)


@pytest.mark.parametrize(
    "change",
    [lambda z: z @ rotation(3), lambda z: z[:, [2, 0, 1]], lambda z: -4 * z + [1, 2, 3], lambda z: np.c_[z, 0 * z]],
    ids=["rotation", "permutation", "scale, sign and shift", "constant latents"],
)
def test_equal_codes_after_a_change_that_does_not_count(change: Callable[[Array], Array]) -> None:
    codes, other = noise(200, 3) * [1, 2, 5], noise(200, 4, seed=1)
    changed = change(codes)
    assert linear_cka(codes, changed) == pytest.approx(1, abs=1e-12)
    assert debiased_cka(codes, changed) == pytest.approx(1, abs=1e-12)
    assert procrustes_distance(codes, changed) == pytest.approx(0, abs=1e-7)
    assert linear_r2(codes, changed, codes, changed) == pytest.approx(1, abs=1e-12)
    for measure in SYMMETRIC:
        assert measure(changed, other) == pytest.approx(measure(codes, other), abs=1e-12)


@pytest.mark.parametrize("measure", SYMMETRIC)
def test_measures_are_symmetric_and_do_not_depend_on_the_order_of_rows(measure: Callable[..., float]) -> None:
    a, b = noise(50, 3), noise(50, 2, seed=1) + noise(50, 3)[:, :2]
    order = np.random.default_rng(2).permutation(50)
    assert measure(a, b) == pytest.approx(measure(b, a), abs=1e-12)
    assert measure(a[order], b[order]) == pytest.approx(measure(a, b), abs=1e-12)
    assert measure(a * 1e200, b * 1e-200) == pytest.approx(measure(a, b), abs=1e-9)


def test_one_of_two_codes() -> None:
    """The second model has one of the two equally large, uncorrelated codes of the first."""
    assert linear_cka(TWO, TWO[:, :1]) == pytest.approx(1 / math.sqrt(2), abs=1e-12)
    assert procrustes_distance(TWO, TWO[:, :1]) == pytest.approx(math.sqrt(2 - math.sqrt(2)), abs=1e-12)
    assert linear_r2(TWO, TWO[:, :1], TWO, TWO[:, :1]) == pytest.approx(1, abs=1e-12)
    assert linear_r2(TWO[:, :1], TWO, TWO[:, :1], TWO) == pytest.approx(0.5, abs=1e-12)


def test_a_linear_map_that_is_no_rotation() -> None:
    """If b has twice the scale of a in one of two codes, A'B has the entries 1 and 2 and B'B the entries 1 and 4."""
    stretched = TWO * [1, 2]
    assert linear_cka(TWO, stretched) == pytest.approx(5 / math.sqrt(2 * 17), abs=1e-12)
    assert procrustes_distance(TWO, stretched) == pytest.approx(math.sqrt(2 - 2 * 3 / math.sqrt(10)), abs=1e-12)
    assert linear_r2(TWO, stretched, TWO, stretched) == pytest.approx(1, abs=1e-12)


def test_exactly_uncorrelated_codes() -> None:
    a, b = TWO[:, :1], TWO[:, 1:]
    assert linear_cka(a, b) == pytest.approx(0, abs=1e-12)
    assert procrustes_distance(a, b) == pytest.approx(math.sqrt(2), abs=1e-12)
    assert linear_r2(a, b, a, b) == pytest.approx(0, abs=1e-12)


def test_independent_gaussians() -> None:
    """With d latents each and n examples, CKA is about d / n too large. The debiased score is 0 on average."""
    n, d = 60, 6
    pairs = [(noise(n, d, seed), noise(n, d, seed + 1000)) for seed in range(200)]
    biased, debiased = (np.array([cka(a, b) for a, b in pairs]) for cka in (linear_cka, debiased_cka))
    assert biased.mean() == pytest.approx(d / (n + d), abs=0.01)
    assert abs(debiased.mean()) < 4 * debiased.std() / math.sqrt(len(pairs))
    assert debiased.min() < 0
    assert np.mean([linear_r2(a[:30], b[:30], a[30:], b[30:]) for a, b in pairs]) < 0


def test_the_distance_satisfies_the_triangle_inequality() -> None:
    tables = [noise(20, d, seed) for seed, d in enumerate((2, 3, 3, 4, 5))]
    distance = np.array([[procrustes_distance(a, b) for b in tables] for a in tables])
    assert (distance[:, :, None] <= distance[:, None, :] + distance.T[None] + 1e-12).all()


def test_constant_codes_have_no_similarity() -> None:
    codes, constant = noise(20, 2), np.full((20, 2), 0.3)
    assert all(math.isnan(measure(codes, constant)) for measure in SYMMETRIC)
    assert math.isnan(linear_r2(codes, constant, codes, constant))
    assert linear_r2(constant, codes, constant, codes) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("measure", SYMMETRIC)
def test_invalid_input(measure: Callable[..., float]) -> None:
    with pytest.raises(ValueError, match=r"must have the same rows\. Got 20 and 19 rows instead"):
        measure(noise(20, 2), noise(19, 2))
    with pytest.raises(ValueError, match=r"The second codes must be a 2-d array"):
        measure(noise(20, 2), noise(20, 2)[:, 0])
    with pytest.raises(ValueError, match=r"The first codes must be finite"):
        measure(np.full((20, 2), np.nan), noise(20, 2))
    with pytest.raises(ValueError, match=r"at least 4 rows\. Got 3 rows instead"):
        debiased_cka(noise(3, 2), noise(3, 2))
