"""Regressions and their scores, compared with scikit-learn and with simple loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from support.known_codes import Array, noise
from unbraid.errors import UserError
from unbraid.metrics.linear import ridge_regression, ridge_regression_cv
from unbraid.metrics.regression import concordance, explained_variance
from unbraid.metrics.trees import boosted_regression, boosted_trees, cached_fits


def wave(codes: Array) -> Array:
    """Return a non-linear function of the first two latents, with noise."""
    return np.asarray(codes[:, 0] + np.sin(3 * codes[:, 1]) + 0.3 * noise(len(codes), 1, 9)[:, 0])


@pytest.mark.parametrize(("rows", "d"), [(60, 3), (700, 6)])
def test_boosted_regression_equals_scikit_learn(rows: int, d: int) -> None:
    codes = noise(rows, d).round(1 if rows == 60 else 6)
    y = wave(codes)
    ours, theirs = (boosted_regression(codes, y, trees=trees) for trees in ("fast", "sklearn"))
    # Equally good cuts may use different columns, which affects new rows but not the rows of the fit.
    assert ours.train_predictions == pytest.approx(theirs.train_predictions, abs=1e-6 if rows > 60 else 0.05)
    for kind in ("mean", "per_tree"):
        assert ours.importances(kind) == pytest.approx(theirs.importances(kind), abs=0.02)
    assert ours.predict(codes) == pytest.approx(ours.train_predictions, abs=1e-12)
    new = noise(500, d, 1)
    assert np.mean((ours.predict(new) - theirs.predict(new)) ** 2) < 0.02 * y.var()


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_boosted_regression_follows_the_unit_of_the_values(scale: float) -> None:
    codes = noise(300, 3)
    y = wave(codes)
    one, other = boosted_regression(codes, y), boosted_regression(codes, scale * y + 5 * scale)
    assert other.predict(codes) == pytest.approx(scale * one.predict(codes) + 5 * scale, rel=1e-6)
    assert other.importances() == pytest.approx(one.importances(), abs=1e-6)


def test_boosted_regression_of_a_constant() -> None:
    forest = boosted_regression(noise(9, 2), np.full(9, 2.5))
    assert forest.predict(noise(4, 2)).tolist() == [2.5] * 4
    assert forest.importances().tolist() == [0, 0]
    constant_codes = boosted_regression(np.ones((4, 1)), np.array([0.0, 1, 2, 3]))
    assert constant_codes.predict(np.ones((1, 1))).tolist() == [1.5]


def test_boosted_regression_is_cached_apart_from_classification() -> None:
    codes, y = noise(30, 2), (noise(30, 1)[:, 0] > 0).astype(float)
    with cached_fits():
        forest = boosted_regression(codes, y)
        assert boosted_regression(codes.copy(), y.copy()) is forest
        assert boosted_trees(codes, y.astype(int)) is not forest
    with pytest.raises(UserError, match="Unknown trees 'fats'"):
        boosted_regression(codes, y, trees="fats")


def test_ridge_equals_scikit_learn() -> None:
    from sklearn.linear_model import Ridge

    codes = noise(80, 4) * [1, 5, 0.1, 1] + [0, 3, 0, 0]
    y = wave(codes)
    standard = (codes - codes.mean(axis=0)) / codes.std(axis=0)
    for alpha in (1e-4, 1.0, 100.0):
        expected = Ridge(alpha=alpha).fit(standard, y).predict(standard)
        assert ridge_regression(codes, y, alpha=alpha).predict(codes) == pytest.approx(expected, abs=1e-8)


def test_cross_validation_chooses_the_penalty_with_the_smallest_error() -> None:
    codes = noise(40, 10)
    assert ridge_regression_cv(codes, noise(40, 1, 5)[:, 0]).alpha > 10  # noise cannot be predicted
    assert ridge_regression_cv(codes, codes[:, 0]).alpha < 0.1
    assert ridge_regression_cv(np.full((6, 2), 0.3), np.arange(6.0)).predict(np.ones((1, 2))).tolist() == [2.5]
    assert np.isfinite(ridge_regression_cv(codes[:2], np.array([1.0, 2.0])).predict(codes)).all()


@given(hnp.arrays(np.int64, st.tuples(st.integers(2, 25), st.just(2)), elements=st.integers(-3, 3)))
def test_concordance_equals_a_loop_over_pairs(columns: Array) -> None:
    predictions, values = columns.T
    wins = [
        1.0 if p > q else 0.5 if p == q else 0.0
        for p, v in zip(predictions, values, strict=True)
        for q, w in zip(predictions, values, strict=True)
        if v > w
    ]
    got = concordance(predictions, values)
    assert got == pytest.approx(np.mean(wins), abs=1e-9) if wins else np.isnan(got)


def test_explained_variance_equals_scikit_learn() -> None:
    from sklearn.metrics import r2_score

    y = noise(50, 1)[:, 0]
    guess = y + 0.5 * noise(50, 1, 3)[:, 0]
    assert explained_variance(guess, y) == pytest.approx(r2_score(y, guess))
    assert explained_variance(-y, y) == 0
    assert explained_variance(np.ones(3), np.ones(3)) == 0
