"""Linear estimators, compared with those of scikit-learn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from oracles import linear as oracle
from support.known_codes import Array, noise, random_factors
from unbraid.metrics.explicitness import areas_under_curve
from unbraid.metrics.linear import Logistic, logistic_regression, logistic_regression_cv, svm_accuracies
from unbraid.metrics.linear.svm import fit_one_vs_rest


def make_problem(n: int, d: int, k: int, scale: float = 1.0, seed: int = 0) -> tuple[Array, Array]:
    """Return codes that are weakly informative about k values."""
    labels = np.random.default_rng(seed).integers(k, size=n)
    centres = noise(k, d, seed + 1)
    return scale * (centres[labels] + noise(n, d, seed + 2)), labels


PROBLEMS: dict[str, tuple[Array, Array]] = {
    "three classes": make_problem(300, 4, 3),
    "two classes": make_problem(300, 4, 2),
    "forty classes": make_problem(2000, 10, 40),
    "one latent": make_problem(200, 1, 5),
    "exactly one block": make_problem(128, 3, 4),
    "one row more than a block": make_problem(129, 3, 4),
    "five rows": make_problem(5, 2, 3),
    "labels far apart": (make_problem(90, 2, 3)[0], np.array([-(2**60), 7, 2**62])[make_problem(90, 2, 3)[1]]),
    "a constant latent": (make_problem(200, 3, 4)[0] * [1, 1, 0] + [0, 0, 0.3], make_problem(200, 3, 4)[1]),
    "a duplicated latent": (make_problem(200, 3, 4)[0][:, [0, 0, 1]], make_problem(200, 3, 4)[1]),
    "codes with a small scale": make_problem(200, 3, 4, scale=1e-3),
}


def sklearn_weights(model: Logistic) -> Array:
    """Return weights and intercepts in the form of scikit-learn, which has only the second of two classes."""
    rows = np.c_[model.weights, model.intercepts]
    return rows[1:] if len(rows) == 2 else rows


@pytest.mark.parametrize("name", PROBLEMS)
def test_logistic_regression_equals_scikit_learn(name: str) -> None:
    codes, labels = PROBLEMS[name]
    ours, theirs = logistic_regression(codes, labels), oracle.logistic(codes, labels)
    expected = np.c_[theirs.coef_, theirs.intercept_]
    assert sklearn_weights(ours) == pytest.approx(expected, abs=1e-6 * np.abs(expected).max())
    assert ours.classes.tolist() == theirs.classes_.tolist()
    assert ours.probabilities(codes) == pytest.approx(theirs.predict_proba(codes), abs=1e-6)
    assert np.array_equal(ours.predict(codes), theirs.predict(codes))


@pytest.mark.parametrize("scale", [100.0, 1e4])
def test_large_codes_stop_at_the_same_iteration_as_scikit_learn(scale: float) -> None:
    codes, labels = make_problem(500, 5, 6, scale)
    ours, theirs = logistic_regression(codes, labels), oracle.logistic(codes, labels)
    assert theirs.n_iter_[0] > 20  # enough to reveal a different line search
    assert sklearn_weights(ours)[:, :-1] == pytest.approx(theirs.coef_, rel=0.05, abs=0.01 * np.abs(theirs.coef_).max())
    assert np.mean(ours.predict(codes) == theirs.predict(codes)) > 0.98


def test_iterates_equal_those_of_scipy() -> None:
    from scipy.optimize import minimize

    from unbraid.metrics.linear.lbfgs import minimise
    from unbraid.metrics.linear.softmax import as_blocks, loss_gradient

    codes, labels = make_problem(100, 5, 6, scale=30.0)
    sums = np.stack([np.c_[codes, np.ones(100)][labels == c].sum(axis=0) for c in range(6)])
    data = (as_blocks(codes, np.float64), 100, sums, 1e-4, False)

    def function(w: Array) -> tuple[float, Array]:
        gradient = np.empty_like(w)
        return loss_gradient(w, gradient, *data), gradient

    options = {"maxiter": 100, "maxls": 50, "gtol": 1e-4, "ftol": 64 * np.finfo(float).eps}
    expected = minimize(function, np.zeros(36), jac=True, method="L-BFGS-B", options=options)
    w = np.zeros(36)
    assert minimise(w, data, 100) == expected.nit > 30
    assert expected.nfev > expected.nit + 3  # some line searches need more than one evaluation
    assert function(w)[0] == pytest.approx(expected.fun, rel=1e-4)


@given(
    hnp.arrays(np.float64, (7, 3), elements=st.floats(-300, 300)),
    hnp.arrays(np.float64, (4, 4), elements=st.floats(-3, 3)),
    st.booleans(),
)
def test_loss_and_gradient_equal_their_formula(codes: Array, w: Array, zero: bool) -> None:
    from scipy.special import logsumexp, softmax

    from unbraid.metrics.linear.softmax import as_blocks, loss_gradient

    x, y = np.c_[codes, np.ones(7)], np.arange(7) % 4
    scores = np.c_[x @ w.T, np.zeros((7, int(zero)))]
    own = scores[np.arange(7), y]
    loss = np.mean(logsumexp(scores, axis=1) - own) + 0.25 * np.sum(w[:, :-1] ** 2)
    gradient = (softmax(scores, axis=1)[:, :4] - np.eye(4)[y]).T @ x / 7 + 0.5 * w * [1, 1, 1, 0]
    got = np.empty(16)
    assert loss_gradient(
        w.ravel(), got, as_blocks(codes, np.float64), 7, np.eye(4)[y].T @ x, 0.5, zero
    ) == pytest.approx(loss, rel=1e-10, abs=1e-9)
    assert got.reshape(4, 4) == pytest.approx(gradient, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("dtype", "rounding"), [(np.float64, 1e-12), (np.float32, 1e-6)])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize(("n", "d", "k"), [(1, 1, 1), (40, 2, 1), (128, 3, 3), (129, 10, 5), (300, 12, 8), (17, 1, 9)])
def test_loss_and_gradient_for_any_number_of_rows_and_classes(
    n: int, d: int, k: int, zero: bool, dtype: type, rounding: float
) -> None:
    from scipy.special import logsumexp, softmax

    from unbraid.metrics.linear.softmax import as_blocks, loss_gradient

    codes, w, y = noise(n, d), noise(k, d + 1, 1) - 2, np.arange(n) % k  # negative scores, so that 0 may be the largest
    x = np.c_[codes, np.ones(n)]
    scores = np.c_[x @ w.T, np.zeros((n, int(zero)))]
    loss = np.mean(logsumexp(scores, axis=1) - scores[np.arange(n), y]) + 0.25 * np.sum(w[:, :-1] ** 2)
    gradient = (softmax(scores, axis=1)[:, :k] - np.eye(k)[y]).T @ x / n + 0.5 * w * np.append(np.ones(d), 0)
    got = np.empty(w.size)
    got_loss = loss_gradient(w.ravel(), got, as_blocks(codes, dtype), n, np.eye(k)[y].T @ x, 0.5, zero)
    assert got_loss == pytest.approx(loss, rel=rounding)
    assert got.reshape(w.shape) == pytest.approx(gradient, rel=10 * rounding, abs=rounding)


def test_folds_are_fitted_in_float32_if_that_is_exact_and_saves_time() -> None:
    from unbraid.metrics.linear.logistic import _precision_of_folds

    codes = noise(1000, 3).astype(np.float32).astype(np.float64)
    assert _precision_of_folds(codes) is np.float32
    assert _precision_of_folds(codes[1:]) is np.float64
    assert _precision_of_folds(codes + 1e-12) is np.float64
    assert _precision_of_folds(codes * 2.0**20) is np.float64


@pytest.mark.parametrize("k", [2, 5])
def test_cross_validation_in_float32_selects_the_same_model(k: int) -> None:
    """These fits converge, so rounding hardly matters."""
    labels = np.arange(1500) % k
    codes = (noise(1500, 4) + 0.5 * labels[:, None] * noise(1, 4, 1)).astype(np.float32).astype(np.float64)
    ours, theirs = logistic_regression_cv(codes, labels), oracle.logistic_cv(codes, labels)
    assert np.isclose(ours.C, np.ravel(theirs.C_)[0])
    assert np.mean(ours.predict(codes) == theirs.predict(codes)) >= 0.999


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "forty classes"])
def test_cross_validation_equals_scikit_learn(name: str) -> None:
    codes, labels = PROBLEMS[name]
    ours, theirs = logistic_regression_cv(codes, labels), oracle.logistic_cv(codes, labels)
    assert np.isclose(ours.C, np.ravel(theirs.C_)[0])
    expected = np.c_[theirs.coef_, theirs.intercept_]
    assert sklearn_weights(ours) == pytest.approx(expected, abs=0.01 * np.abs(expected).max())
    assert np.mean(ours.predict(codes) == theirs.predict(codes)) > 0.99


def test_cross_validation_of_many_classes_is_close_to_scikit_learn() -> None:
    """With many classes the solver does not converge in 100 iterations, so rounding changes the result."""
    codes, labels = make_problem(800, 6, 20)
    ours, theirs = logistic_regression_cv(codes[:400], labels[:400]), oracle.logistic_cv(codes[:400], labels[:400])
    for part in (slice(400), slice(400, 800)):
        accuracy = np.mean(ours.predict(codes[part]) == labels[part])
        assert accuracy == pytest.approx(theirs.score(codes[part], labels[part]), abs=0.011)


def test_cross_validation_ends_if_all_predictions_are_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    from unbraid.metrics.linear import lbfgs, logistic

    labels = np.arange(60) % 3
    codes = np.c_[labels, labels**2] + 0.01 * noise(60, 2)
    model, solve, penalties = oracle.logistic_cv(codes, labels), lbfgs.minimise, []

    def count(weights: Array, problem: tuple[Any, ...], iterations: int) -> int:
        penalties.append(problem[3])
        return solve(weights, problem, iterations)

    monkeypatch.setattr(lbfgs, "minimise", count)
    got = logistic_regression_cv(codes, labels)
    assert np.isclose(got.C, np.ravel(model.C_)[0])
    tried = np.searchsorted(logistic.CS, got.C) + 1
    assert tried < len(logistic.CS)
    assert len(penalties) == 5 * tried + 1


def test_classes_may_be_missing_from_folds() -> None:
    codes, labels = noise(12, 2), np.repeat([0, 1, 2, 3], 3)  # the rows are sorted, so every fold lacks some class
    ours, theirs = logistic_regression_cv(codes, labels), oracle.logistic_cv(codes, labels)
    assert np.isclose(ours.C, np.ravel(theirs.C_)[0])
    assert np.array_equal(ours.predict(codes), theirs.predict(codes))


def test_fewer_rows_than_folds_and_one_class() -> None:
    codes = np.array([[-1.0], [1.0], [-2.0], [2.0]])
    assert logistic_regression_cv(codes, np.array([0, 1, 0, 1])).predict(codes).tolist() == [0, 1, 0, 1]
    for fit in (logistic_regression, logistic_regression_cv):
        assert fit(noise(6, 2), np.full(6, 4)).predict(noise(3, 2)).tolist() == [4, 4, 4]


SVM_PROBLEMS = {name: data for name, data in PROBLEMS.items() if name not in ("five rows", "codes with a small scale")}


@pytest.mark.parametrize("name", SVM_PROBLEMS)
def test_svm_lines_equal_scikit_learn(name: str) -> None:
    codes, labels = SVM_PROBLEMS[name]
    x = np.sort(codes[:, 0] + 0.5)
    classes, y = np.unique(labels[np.argsort(codes[:, 0])], return_inverse=True)
    slopes, intercepts = fit_one_vs_rest(x, y, len(classes))
    svm = oracle.svm(x[:, None], y, tol=1e-10)
    first = 1 if len(classes) == 2 else 0
    assert slopes[first:] == pytest.approx(svm.coef_[:, 0], abs=1e-5)
    assert intercepts[first:] == pytest.approx(svm.intercept_, abs=1e-5)


def test_svm_accuracies_are_close_to_scikit_learn() -> None:
    factors = random_factors((3, 2, 40), 3000, 1)
    codes = factors @ noise(3, 4) + noise(3000, 4, 5)
    train, test = slice(2000), slice(2000, 3000)
    got = svm_accuracies(codes[train], factors[train], codes[test], factors[test])
    for i in range(4):
        for j in range(3):
            svm = oracle.svm(codes[train, i : i + 1], factors[train, j])
            expected = np.mean(svm.predict(codes[test, i : i + 1]) == factors[test, j])
            assert got[i, j] == pytest.approx(expected, abs=0.002)


def test_svm_counts_new_test_values_as_errors() -> None:
    codes = np.array([[-9.0], [-8.0], [8.0], [9.0]])
    factors = (codes > 0).astype(int)
    assert svm_accuracies(codes, factors, codes, factors * 5).tolist() == [[0.5]]


@given(
    hnp.arrays(np.float64, (30, 3), elements=st.integers(0, 5).map(float)),
    hnp.arrays(np.int64, 30, elements=st.integers(0, 2)),
)
def test_areas_equal_scikit_learn(scores: Array, labels: Array) -> None:
    from sklearn.metrics import roc_auc_score

    got = areas_under_curve(scores, labels, np.arange(3))
    for c in range(3):
        own = labels == c
        if own.any() and not own.all():
            assert got[c] == pytest.approx(roc_auc_score(own, scores[:, c]), abs=1e-12)
        else:
            assert math.isnan(got[c])
