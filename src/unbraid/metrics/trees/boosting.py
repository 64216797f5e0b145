"""Gradient-boosted trees. Our implementation and that of scikit-learn have the same interface."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Float32, Int, Real

from unbraid.errors import UserError, unknown_name_message
from unbraid.metrics.arrays import as_codes, check_at_least, check_same_rows, input_error
from unbraid.metrics.trees.bins import Trees, as_columns, number_of_bins
from unbraid.metrics.trees.fit_cache import cached_fit

LEARNING_RATE = 0.1
SCORES_PER_THREAD = 100_000  # number of scores per stage that keep one thread busy for some milliseconds
IMPORTANCES = ("mean", "per_tree")
PredictIndex: TypeAlias = Callable[[Float32[np.ndarray, "m d"]], Int[np.ndarray, " m"]]
FitResult: TypeAlias = tuple[PredictIndex, Int[np.ndarray, " n"], Float[np.ndarray, "t d"]]

_fit_lock = threading.Lock()


@dataclass(frozen=True)
class Forest:
    """A fitted classifier: its labels, its predictions for the training rows, and the gains of each tree."""

    labels: Int[np.ndarray, " k"]
    train_predictions: Int[np.ndarray, " n"]
    gains: Float[np.ndarray, "t d"]  # reduction of the squared error by cuts in each column, one row per tree
    predict_index: PredictIndex  # returns the index of the label of each row

    def predict(self, codes: Real[np.ndarray, "m d"]) -> Int[np.ndarray, " m"]:
        """Return the predicted label of each row.

        >>> forest = boosted_trees(np.array([[0.0], [1.0], [2.0]]), np.array([-7, 5, 5]))
        >>> forest.predict(np.array([[0.1], [9.0]])).tolist()
        [-7, 5]
        """
        return self.labels[self.predict_index(as_float32(codes))]

    def importances(self, kind: str = "mean") -> Float[np.ndarray, " d"]:
        r"""Return the importance of each column, which is the share of the error reduction that its cuts achieve.

        Let :math:`g_{ti}` be the reduction of the squared error by the cuts in column i of tree t, one of T trees:

        .. math:: \text{mean: } \frac{\sum_t g_{ti}}{\sum_t \sum_l g_{tl}}, \qquad
            \text{per\_tree: } \frac{1}{T} \sum_t \frac{g_{ti}}{\sum_l g_{tl}}

        "mean" is the definition of current scikit-learn. "per_tree" is the definition of scikit-learn up to 0.19. It
        gives late trees, which fit noise, the same weight as the first trees. A tree without cuts contributes zeros,
        and the importances "per_tree" then sum to less than 1. If no tree has a cut, all importances are 0.

        >>> boosted_trees(np.array([[0.0, 3.0], [1.0, 3.0]]), np.array([0, 1])).importances("per_tree").tolist()
        [1.0, 0.0]
        """
        return importances_from_gains(self.gains, kind)


def importances_from_gains(gains: Float[np.ndarray, "t d"], kind: str) -> Float[np.ndarray, " d"]:
    """Return the importances of the columns, given the gains of each tree (see `Forest.importances`)."""
    if kind not in IMPORTANCES:
        raise UserError(unknown_name_message("kind of importances", kind, IMPORTANCES))
    rows = gains if kind == "per_tree" else gains.sum(axis=0, keepdims=True)
    if not len(rows):
        return np.zeros(rows.shape[1])
    total = rows.sum(axis=1, keepdims=True)
    fractions = np.divide(rows, total, out=np.zeros_like(rows), where=total > 0)
    return np.asarray(fractions.mean(axis=0))


def boosted_trees(
    codes: Real[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    *,
    seed: int = 0,
    stages: int = 100,
    trees: str = "fast",
) -> Forest:
    """Fit gradient-boosted trees that minimise the log loss (deviance).

    Each stage grows one tree of depth 3 per class, and the learning rate is 0.1. The definition is that of
    ``GradientBoostingClassifier()`` in scikit-learn. ``trees="fast"`` finds the same cuts. It considers every cut
    between two values of a column, without approximation. If two cuts are equally good, both implementations take the
    first in a random order of columns that depends on `seed`. The two implementations use different orders, and in
    scikit-learn rounding may also break such ties.

    Both implementations read codes as float32 and treat values closer than 1e-7 as equal.

    Args:
        codes: Array of shape (n, d).
        labels: Integer array of shape (n,). If there is only one label, it is always predicted, and all importances are
            0.
        seed: Random seed that breaks ties between equally good cuts.
        stages: Number of boosting stages.
        trees: "fast" for our implementation, or "sklearn" for that of scikit-learn.

    Returns:
        The fitted classifier.

    Raises:
        UserError: If the codes are not a finite 2-d array that fits into float32, if the lengths differ, or if an
            option is invalid.

    Example:
        >>> codes = np.arange(6.0)[:, None]
        >>> boosted_trees(codes, np.array([3, 3, 9, 9, 3, 3]), stages=20).train_predictions.tolist()
        [3, 3, 9, 9, 3, 3]
    """
    check_at_least(1, stages=stages)
    if trees not in FITS:
        raise UserError(unknown_name_message("trees", trees, FITS))
    table = as_float32(as_codes(codes))
    check_same_rows(table, labels[:, None])
    return cached_fit(lambda: _fit(table, labels, seed, stages, trees), table, labels, seed, stages, trees)


def _fit(
    codes: Float32[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], seed: int, stages: int, trees: str
) -> Forest:
    """Fit the classifier without checks and without the cache."""
    names, y = np.unique(labels, return_inverse=True)
    predict_index, train, gains = (_fit_constant if len(names) == 1 else FITS[trees])(codes, y, seed, stages)
    return Forest(names, names[train], gains, predict_index)


def _fit_constant(codes: Float32[np.ndarray, "n d"], y: Int[np.ndarray, " n"], seed: int, stages: int) -> FitResult:
    """Return a fit that always predicts the only class."""
    return lambda rows: np.zeros(len(rows), np.int64), y, np.zeros((0, codes.shape[1]))


def _fit_fast(codes: Float32[np.ndarray, "n d"], y: Int[np.ndarray, " n"], seed: int, stages: int) -> FitResult:
    """Fit with our implementation."""
    trees, start, raw = grow_trees(codes, y, seed, stages, number_of_bins(len(codes)))
    bound = round_down(trees.threshold)

    def predict_index(rows: Float32[np.ndarray, "m d"]) -> Int[np.ndarray, " m"]:
        from unbraid.metrics.trees.stages import add_forest

        scores = np.repeat(start[:, None], len(rows), axis=1)
        with numba_threads(scores.size):
            add_forest(np.ascontiguousarray(rows.T), trees.feature, bound, trees.value, scores)
        return _highest_class(scores)

    # With two classes, only the second one has trees.
    gains = trees.importance[:, 1:] if len(start) == 2 else trees.importance
    return predict_index, _highest_class(raw), gains.reshape(-1, codes.shape[1])


def grow_trees(
    codes: Float32[np.ndarray, "n d"], y: Int[np.ndarray, " n"], seed: int, stages: int, bins: int
) -> tuple[Trees, Float[np.ndarray, " k"], Float[np.ndarray, "k n"]]:
    """Grow all trees of a fit to the labels 0 to k - 1.

    The number of bins affects only the run time.

    Returns:
        The trees, the initial scores of the classes, and the final scores of the training rows.
    """
    from unbraid.metrics.trees.stages import fit_stages

    (n, d), counts = codes.shape, np.bincount(y)
    k, members, first = len(counts), np.argsort(y, kind="stable"), np.cumsum([0, *counts])
    rate = LEARNING_RATE if k == 2 else LEARNING_RATE * (k - 1) / k
    start = np.log(counts / counts[0])
    raw = np.repeat(start[:, None], n, axis=1)
    features, thresholds = np.zeros((stages, k, 7), np.int32), np.full((stages, k, 7), np.inf)
    trees = Trees(features, thresholds, np.zeros((stages, k, 8)), np.zeros((stages, k, d)))
    with numba_threads(n * k) as threads:
        fit_stages(as_columns(codes, bins), y, members, first, raw, rate, np.uint64(seed % 2**64), threads, trees)
    return trees, start, raw


@contextmanager
def numba_threads(work: int) -> Iterator[int]:
    """Limit the number of numba threads to those that have enough work, and yield this number.

    If the cores are busy, waiting for additional threads costs more time than these threads save. Only one fit runs at
    a time, because the fallback threading layer of numba ends the process if two threads enter it.
    """
    from numba import get_num_threads, set_num_threads

    with _fit_lock, _preserved_torch_threads():
        allowed = get_num_threads()
        threads = min(allowed, 1 + work // SCORES_PER_THREAD)
        set_num_threads(threads)
        try:
            yield threads
        finally:
            set_num_threads(allowed)


@contextmanager
def _preserved_torch_threads() -> Iterator[None]:
    """Restore torch's number of threads on exit.

    The OpenMP layer of numba sets the number of OpenMP threads when it starts, and torch uses the same OpenMP library.
    This function does not import torch. If torch is not loaded, there is nothing to restore.
    """
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else 0
    try:
        yield
    finally:
        if torch and torch.get_num_threads() != before:
            torch.set_num_threads(before)


def _highest_class(raw: Float[np.ndarray, "k n"]) -> Int[np.ndarray, " n"]:
    """Return the class with the highest score.

    If there are two classes, a tie goes to the second. If there are more, it goes to the first of the tied classes.
    """
    best: Int[np.ndarray, " n"] = (raw[1] >= raw[0]).astype(np.int64) if len(raw) == 2 else raw.argmax(axis=0)
    return best


def round_down(threshold: Float[np.ndarray, "t k 7"]) -> Float32[np.ndarray, "t k 7"]:
    """Return the largest float32 that does not exceed each threshold.

    Comparing float32 codes with this float32 number gives the same result as comparing them with the float64 threshold.
    """
    near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)


def _fit_sklearn(codes: Float32[np.ndarray, "n d"], y: Int[np.ndarray, " n"], seed: int, stages: int) -> FitResult:
    """Fit with the implementation of scikit-learn."""
    from sklearn.ensemble import GradientBoostingClassifier

    model = GradientBoostingClassifier(n_estimators=stages, random_state=seed).fit(codes, y)
    gains = [tree.tree_.compute_feature_importances(normalize=False) for tree in model.estimators_.ravel()]
    return model.predict, model.predict(codes), np.array(gains)


FITS: dict[str, Callable[..., FitResult]] = {"fast": _fit_fast, "sklearn": _fit_sklearn}


def as_float32(codes: Real[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
    """Return the codes as float32, because trees compare them in this precision."""
    with np.errstate(over="ignore"):
        narrow = np.asarray(codes, np.float32)
    if not np.isfinite(narrow).all():
        got = f"a largest absolute value of {np.abs(codes).max()}"
        raise input_error("Codes must fit into float32, in which trees compare them.", got, "Scale the codes down.")
    return narrow
