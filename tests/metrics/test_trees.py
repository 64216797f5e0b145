"""Boosted trees, compared with scikit-learn and with a slow recomputation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import GradientBoostingClassifier

from oracles.trees import replay
from support.known_codes import GRID, NOISY, Array, noise
from unbraid.metrics.dci import dci
from unbraid.metrics.trees import boosted_trees, boosting, cached_fits
from unbraid.metrics.trees.boosting import grow_trees


def make_problem(n: int, d: int, k: int, seed: int = 0) -> tuple[Array, Array]:
    """Return random codes and k classes that depend on a noisy projection of the codes. All classes occur."""
    rng = np.random.default_rng(seed)
    codes = rng.normal(size=(n, d))
    projection = codes @ rng.normal(size=d) + 0.5 * rng.normal(size=n)
    return codes, np.argsort(np.argsort(projection)) * k // n


def make_discrete_problem(n: int, d: int, k: int) -> tuple[Array, Array]:
    codes, labels = make_problem(n, d, k)
    return np.round(codes * 2), labels


def make_problem_with_copies(n: int, d: int, k: int) -> tuple[Array, Array]:
    codes, labels = make_problem(n, d, k)
    return np.c_[codes, codes[:, :1], np.ones(n)], labels


@pytest.mark.parametrize(
    ("make", "n", "d", "k", "seeds", "tolerance"),
    [
        # Ties between equally good cuts are broken at random, also by scikit-learn. With few rows or copied columns its
        # importances differ by up to 0.026 between seeds, so several seeds are averaged.
        (make_problem, 300, 4, 2, 4, 0.015),
        (make_problem, 300, 4, 6, 4, 0.015),
        (make_problem_with_copies, 500, 3, 3, 4, 0.015),
        (make_problem, 1000, 6, 4, 1, 0.005),
        (make_problem, 1500, 3, 5, 1, 0.005),
        (make_discrete_problem, 1000, 4, 4, 1, 0.005),
    ],
)
def test_agrees_with_scikit_learn(
    make: Callable[[int, int, int], tuple[Array, Array]], n: int, d: int, k: int, seeds: int, tolerance: float
) -> None:
    codes, labels = make(n, d, k)
    ours = [boosted_trees(codes, labels, seed=seed) for seed in range(seeds)]
    theirs = [boosted_trees(codes, labels, seed=seed, trees="sklearn") for seed in range(seeds)]
    for kind in ("mean", "per_tree"):
        got, expected = (np.mean([forest.importances(kind) for forest in part], axis=0) for part in (ours, theirs))
        assert got == pytest.approx(expected, abs=tolerance), kind
    points = codes + 0.01 * noise(n, codes.shape[1], seed=1)
    assert np.mean(ours[0].predict(points) == theirs[0].predict(points)) > 0.95
    assert np.mean(ours[0].train_predictions == theirs[0].train_predictions) > 0.98


@pytest.mark.parametrize(("n", "k"), [(500, 2), (700, 3)])
def test_trees_equal_scikit_learn_without_ties(n: int, k: int) -> None:
    codes, labels = make_problem(n, 1, k, seed=5)
    ours, theirs = boosted_trees(codes, labels), boosted_trees(codes, labels, trees="sklearn")
    assert ours.gains / n == pytest.approx(theirs.gains, rel=1e-6, abs=1e-12)
    points = np.linspace(-3, 3, 2001)[:, None]
    assert np.array_equal(ours.predict(points), theirs.predict(points))


@st.composite
def small_problems(draw: st.DrawFn) -> tuple[Array, Array]:
    """Draw few rows with many ties: repeated values, close values, copied columns and constant columns."""
    n, d, k = draw(st.integers(2, 24)), draw(st.integers(1, 4)), draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    codes = rng.normal(size=(n, d))
    kind = draw(st.sampled_from(["continuous", "rounded", "near", "copies", "constant"]))
    if kind == "rounded":
        codes = np.round(codes)
    elif kind == "near":
        codes = rng.integers(0, 6, size=(n, d)) * 0.6e-7
    elif kind == "copies":
        codes[:] = codes[:, :1]
    elif kind == "constant":
        codes[:, 0] = 0.3
    labels = np.append(np.arange(k), rng.integers(k, size=n))[:n]
    return codes.astype(np.float32), np.unique(labels, return_inverse=True)[1]


@given(small_problems(), st.sampled_from([2, 8, 64]))
def test_every_cut_is_the_best_cut(case: tuple[Array, Array], bins: int) -> None:
    codes, y = case
    trees, _, raw = grow_trees(codes, y, 0, 3, bins)
    replayed = replay(codes.tolist(), y.tolist(), trees.feature, trees.threshold, trees.value)
    fitted = slice(1, None) if len(raw) == 2 else slice(None)
    for reduction, best in replayed.cuts:
        assert reduction == pytest.approx(best, rel=1e-9, abs=1e-12)
    assert trees.importance[:, fitted].reshape(len(replayed.gains), -1) == pytest.approx(
        np.array(replayed.gains), abs=1e-9
    )
    assert trees.value[:, fitted].reshape(-1, 8) == pytest.approx(np.array(replayed.values), rel=1e-9, abs=1e-12)
    assert pytest.approx(np.array(replayed.scores), rel=1e-9, abs=1e-12) == raw.T


@pytest.mark.parametrize("n", [30, 500, 1500])
def test_the_number_of_bins_does_not_change_the_trees(n: int) -> None:
    codes, labels = make_problem_with_copies(n, 4, 5)
    fits = [grow_trees(codes.astype(np.float32), labels, 3, 20, bins) for bins in (2, 8, 32, 256, 2000)]
    for trees, _, raw in fits[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(trees, fits[0][0], strict=True))
        assert np.array_equal(raw, fits[0][2])


def test_the_number_of_threads_does_not_change_the_trees() -> None:
    codes, labels = make_problem(600, 4, 7)
    max_threads, fits = numba.config.NUMBA_NUM_THREADS, []
    try:
        for threads in range(1, max_threads + 1):
            numba.set_num_threads(threads)
            fits.append(grow_trees(codes.astype(np.float32), labels, 0, 20, 32))
    finally:
        numba.set_num_threads(max_threads)
    assert len(fits) == max_threads
    assert all(np.array_equal(a, b) for fit in fits for a, b in zip(fit[0], fits[0][0], strict=True))


def test_trees_with_more_than_65536_bins_in_total() -> None:
    codes = np.random.default_rng(0).normal(size=(300, 260)).astype(np.float32)
    labels = (codes[:, 7] > 0.2).astype(np.int64)
    few, many = (grow_trees(codes, labels, 0, 2, bins) for bins in (16, 300))
    assert all(np.array_equal(a, b) for a, b in zip(few[0], many[0], strict=True))


def test_the_seed_breaks_ties_between_copied_columns() -> None:
    codes, labels = make_problem(200, 1, 3)
    copies = codes[:, [0, 0]]
    one, again, other = (boosted_trees(copies, labels, seed=seed).importances() for seed in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert one == pytest.approx([0.5, 0.5], abs=0.15)
    assert boosted_trees(copies, labels, seed=-1).importances().sum() == pytest.approx(1)


@pytest.mark.parametrize("trees", ["fast", "sklearn"])
def test_a_single_label_is_always_predicted(trees: str) -> None:
    forest = boosted_trees(NOISY, np.full(120, -5), trees=trees)
    assert np.all(forest.train_predictions == -5)
    assert np.all(forest.predict(NOISY[:7]) == -5)
    assert forest.importances("mean").tolist() == forest.importances("per_tree").tolist() == [0, 0, 0]


@pytest.mark.parametrize("trees", ["fast", "sklearn"])
def test_label_values_do_not_matter(trees: str) -> None:
    plain = boosted_trees(NOISY, GRID[:, 1], stages=5, trees=trees)
    values = np.array([-(2**62), -1, 7, 2**62])
    relabelled = boosted_trees(NOISY, values[GRID[:, 1]], stages=5, trees=trees)
    assert np.array_equal(relabelled.predict(NOISY), values[plain.predict(NOISY)])
    assert np.array_equal(relabelled.train_predictions, values[plain.train_predictions])


@pytest.mark.parametrize("labels", [[0, 0, 1, 1], [0, 1, 2, 2], [0, 1, 1, 1]])
def test_predictions_of_constant_codes_equal_scikit_learn(labels: list[int]) -> None:
    codes, y = np.full((4, 2), 0.3), np.array(labels)
    ours, theirs = boosted_trees(codes, y), boosted_trees(codes, y, trees="sklearn")
    assert np.array_equal(ours.train_predictions, theirs.train_predictions)
    assert np.array_equal(ours.predict(codes), theirs.predict(codes))
    assert ours.importances("per_tree").tolist() == theirs.importances("mean").tolist() == [0, 0]


@pytest.mark.parametrize("k", [2, 3])
def test_one_row_per_class_and_one_column(k: int) -> None:
    codes, labels = np.arange(float(k))[:, None], np.arange(k)
    forest = boosted_trees(codes, labels)
    assert forest.train_predictions.tolist() == forest.predict(codes).tolist() == labels.tolist()
    assert forest.importances("mean").tolist() == [1.0]
    assert len(forest.gains) == (100 if k == 2 else 300)


def test_codes_are_compared_as_float32() -> None:
    labels = GRID[:, 0]
    assert np.array_equal(boosted_trees(NOISY, labels).gains, boosted_trees(NOISY.astype(np.float32), labels).gains)
    with pytest.raises(ValueError, match=r"must fit into float32.* Got a largest absolute value of 1e\+300 .*Scale"):
        boosted_trees(np.where(NOISY > 4, 1e300, NOISY), labels)
    assert boosted_trees(NOISY * 1e-9, labels).importances().tolist() == [0, 0, 0]  # values closer than 1e-7 are equal


def test_predictions_do_not_depend_on_the_other_rows() -> None:
    codes, labels = make_problem(400, 3, 6)
    forest = boosted_trees(codes, labels)
    assert np.array_equal(forest.predict(codes), forest.train_predictions)
    assert forest.predict(codes[:1]).tolist() == forest.train_predictions[:1].tolist()


def test_neighbouring_float32_values_are_separated() -> None:
    """The midpoint of the two values is not a float32 number and would be rounded up to the larger value."""
    step = np.float32(2**-21)  # spacing of float32 values between 4 and 8
    codes = np.array([[4 + step], [4 + 2 * step]], np.float32)
    assert boosted_trees(codes, np.array([0, 1])).predict(codes).tolist() == [0, 1]


def test_per_tree_importances_equal_those_of_old_scikit_learn() -> None:
    codes, labels = make_problem(200, 3, 3)
    model = GradientBoostingClassifier(random_state=0).fit(codes.astype(np.float32), labels)
    total = sum(sum(tree.feature_importances_ for tree in stage) / len(stage) for stage in model.estimators_)
    forest = boosted_trees(codes, labels, trees="sklearn")
    assert forest.importances("per_tree") == pytest.approx(total / len(model.estimators_), abs=1e-12)
    assert forest.importances("mean") == pytest.approx(model.feature_importances_, abs=1e-12)


def test_unknown_options() -> None:
    with pytest.raises(ValueError, match=r"Unknown trees 'fats'. Did you mean 'fast'\? Choose from: fast, sklearn."):
        boosted_trees(NOISY, GRID[:, 0], trees="fats")
    with pytest.raises(ValueError, match=r"Unknown trees 'slow'.* Choose from: fast, sklearn."):
        dci(NOISY, GRID, NOISY, GRID, trees="slow")
    with pytest.raises(ValueError, match=r"Unknown kind of importances 'median'.* Choose from: mean, per_tree."):
        dci(NOISY, GRID, NOISY, GRID, importances="median")
    with pytest.raises(ValueError, match="Unknown kind of importances 'gain'"):
        boosted_trees(NOISY, GRID[:, 0], stages=1).importances("gain")
    with pytest.raises(ValueError, match=r"The 'stages' parameter must be >= 1. Got 0 instead."):
        boosted_trees(NOISY, GRID[:, 0], stages=0)


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the name of each fit that is computed."""
    computed: list[str] = []
    for name, fit in dict(boosting.FITS).items():

        def recorded(*args: Any, name: str = name, fit: Callable[..., Any] = fit) -> Any:
            computed.append(name)
            return fit(*args)

        monkeypatch.setitem(boosting.FITS, name, recorded)
    return computed


def test_equal_fits_are_computed_once(fits: list[str]) -> None:
    labels = GRID[:, 0]
    outside = boosted_trees(NOISY, labels, stages=5)
    with cached_fits():
        first = boosted_trees(NOISY, labels, stages=5)
        with cached_fits():
            assert boosted_trees(NOISY.astype(np.float32), labels.copy(), stages=5) is first
        assert boosted_trees(NOISY.copy(), labels, stages=5) is first
        assert len(fits) == 2
        for change in ({"seed": 1}, {"stages": 6}, {"trees": "sklearn"}):
            boosted_trees(NOISY, labels, **{"stages": 5, **change})
        boosted_trees(NOISY[:, ::-1], labels, stages=5)
        boosted_trees(NOISY, labels[::-1], stages=5)
        assert len(fits) == 7
    assert np.array_equal(first.gains, outside.gains)
    boosted_trees(NOISY, labels, stages=5)
    assert len(fits) == 8


def test_dci_shares_fits(fits: list[str]) -> None:
    alone = dci(NOISY, GRID, NOISY, GRID)
    with cached_fits():
        mean, per_tree = (dci(NOISY, GRID, NOISY, GRID, importances=kind) for kind in ("mean", "per_tree"))
        boosted_trees(NOISY, GRID[:, 2])
    assert len(fits) == 6
    assert alone == mean
    assert per_tree["disentanglement"] == per_tree["disentanglement_per_tree"] == mean["disentanglement_per_tree"]
    assert mean["completeness"] == mean["completeness_mean"] == per_tree["completeness_mean"]


def test_the_fit_cache_is_cleared_after_an_error(fits: list[str]) -> None:
    with pytest.raises(KeyError), cached_fits():
        boosted_trees(NOISY, GRID[:, 0], stages=1)
        raise KeyError
    boosted_trees(NOISY, GRID[:, 0], stages=1)
    assert len(fits) == 2


def test_importing_does_not_load_numba() -> None:
    heavy = "{'numba', 'sklearn', 'scipy', 'torch'}"
    program = f"import sys, unbraid.metrics.dci, unbraid.metrics.trees; print(*{heavy} & set(sys.modules))"
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=path)
    assert done.stdout.split() == []


def test_the_number_of_torch_threads_is_preserved() -> None:
    """This needs a new process, because numba starts its threads and sets their number in OpenMP only once."""
    program = """
import numpy as np, torch
torch.set_num_threads(1)
torch.get_num_threads()  # after this call torch reads the number from OpenMP
from unbraid.metrics.trees import boosted_trees
forest = boosted_trees(np.arange(6.0)[:, None], np.arange(6) // 2, stages=1)
fitted = torch.get_num_threads()
forest.predict(np.zeros((2, 1)))
print(fitted, torch.get_num_threads())
"""
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=path)
    assert done.stdout.split() == ["1", "1"]


@pytest.mark.parametrize(("k", "n"), [(2, 1), (3, 8), (5, 300), (9, 777)])
def test_residuals_and_root_histograms_of_all_sizes(k: int, n: int) -> None:
    """Sizes need not be multiples of the number of lanes. Packed residuals and histograms are exact sums."""
    from unbraid.metrics.trees.residuals import add_to_histogram, pack_residuals, softmax_residuals
    from unbraid.runtime.vectors import LANES, aligned, round_up

    rng = np.random.default_rng(k)
    m, width, block, shift = round_up(n, LANES), round_up(k, LANES), 8 * LANES, np.int64(48)
    raw, y = aligned(k * m, 0.0).reshape(k, m), rng.integers(0, k, n)
    raw[:, :n] = rng.normal(size=(k, n)) * 30
    residual, sizes, totals = np.zeros_like(raw), np.zeros((k, LANES)), np.zeros(k)
    for a in range(0, n, block):
        softmax_residuals(raw, y, a, min(n, a + block), residual, sizes)
        totals += sizes.sum(1)
    powers = np.exp(raw - raw.max(axis=0))
    expected = -powers / powers.sum(axis=0)
    expected[y, np.arange(n)] += 1
    np.testing.assert_allclose(residual, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(totals, np.abs(expected).sum(axis=1), rtol=1e-12)

    packed, by_row = aligned(k * m, 0).reshape(k, m), aligned(n * width, 0).reshape(n, width)
    scale = 2.0 ** rng.integers(20, 40, k)
    for a in range(0, n, block):
        pack_residuals(residual, a, min(n, a + block), scale, shift, packed, by_row)
    fixed = np.rint(residual * scale[:, None]).astype(np.int64)
    np.testing.assert_array_equal(packed, fixed + (1 << 48))
    np.testing.assert_array_equal(by_row[:, :k], packed[:, :n].T)

    index, root = rng.integers(0, 4, (n, 2)).astype(np.uint32), aligned(4 * width, 0).reshape(4, width)
    add_to_histogram(1, index, by_row, 0, n, root)
    sums = np.zeros((4, k), np.int64)
    np.add.at(sums, index[:, 1], packed[:, :n].T)
    np.testing.assert_array_equal(root[:, :k], sums)
