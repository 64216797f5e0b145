"""Gradient-boosted trees behind one interface: our own, and scikit-learn's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Float32, Int, Real

from unbraid.errors import UserError, unknown
from unbraid.metrics.arrays import as_codes, at_least, refusal, same_rows
from unbraid.metrics.trees.bins import Trees, as_columns, bins_for
from unbraid.metrics.trees.memory import once

RATE = 0.1
SHARE = 100_000  # scores a stage that keep one thread busy for some milliseconds
IMPORTANCES = ("mean", "per_tree")
Scores: TypeAlias = Callable[[Float32[np.ndarray, "m d"]], Int[np.ndarray, " m"]]
Fitted: TypeAlias = tuple[Scores, Int[np.ndarray, " n"], Float[np.ndarray, "t d"]]

_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Forest:
    """A fitted classifier: its labels, its answers on the training points, and what each tree gained by each column."""

    labels: Int[np.ndarray, " k"]
    train_predictions: Int[np.ndarray, " n"]
    gains: Float[np.ndarray, "t d"]  # squared error that the cuts of each column took away, a row a tree
    choose: Scores  # number of the label of each point

    def predict(self, codes: Real[np.ndarray, "m d"]) -> Int[np.ndarray, " m"]:
        """The label of each point.

        >>> forest = boosted_trees(np.array([[0.0], [1.0], [2.0]]), np.array([-7, 5, 5]))
        >>> forest.predict(np.array([[0.1], [9.0]])).tolist()
        [-7, 5]
        """
        return self.labels[self.choose(_as_float32(codes))]

    def importances(self, kind: str = "mean") -> Float[np.ndarray, " d"]:
        r"""What share of the error each column takes away.

        With :math:`g_{ti}` the error taken away by the cuts of tree t in column i:

        .. math:: \text{mean: } \frac{\sum_t g_{ti}}{\sum_t \sum_l g_{tl}}, \qquad
            \text{per\_tree: } \frac{1}{T} \sum_t \frac{g_{ti}}{\sum_l g_{tl}}

        `mean` is today's scikit-learn; `per_tree` is scikit-learn up to 0.19, in which late trees, which fit noise,
        weigh as much as the first ones. A tree without a cut counts as zeros, so
        `per_tree` sums to less than 1 then. Where no tree has a cut all importances are 0.

        >>> boosted_trees(np.array([[0.0, 3.0], [1.0, 3.0]]), np.array([0, 1])).importances("per_tree").tolist()
        [1.0, 0.0]
        """
        if kind not in IMPORTANCES:
            raise UserError(unknown("kind of importances", kind, IMPORTANCES))
        gains = self.gains if kind == "per_tree" else self.gains.sum(axis=0, keepdims=True)
        if not len(gains):
            return np.zeros(gains.shape[1])
        total = gains.sum(axis=1, keepdims=True)
        shares: Float[np.ndarray, " d"] = np.divide(gains, total, out=np.zeros_like(gains), where=total > 0).mean(
            axis=0
        )
        return shares


def boosted_trees(
    codes: Real[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    *,
    seed: int = 0,
    stages: int = 100,
    trees: str = "fast",
) -> Forest:
    """Fit the papers' classifier: `stages` of one tree of depth 3 a class on the deviance, learning rate .1.

    The definition is that of scikit-learn's ``GradientBoostingClassifier()``, which ``trees="sklearn"`` fits itself.
    ``trees="fast"`` finds the same cuts: every cut between two values of a column is considered, none is approximated.
    Where two cuts are equally good, both take the first in a random order of columns (`seed`), but not the same one;
    and scikit-learn's rounding may break such ties by itself.

    Both see codes as float32, and values closer than 1e-7 as one. One label only: a constant answer and no importances.

    >>> codes = np.arange(6.0)[:, None]
    >>> boosted_trees(codes, np.array([3, 3, 9, 9, 3, 3]), stages=20).train_predictions.tolist()
    [3, 3, 9, 9, 3, 3]
    """
    at_least(1, stages=stages)
    if trees not in FITS:
        raise UserError(unknown("trees", trees, FITS))
    points = _as_float32(as_codes(codes))
    same_rows(points, labels[:, None])
    return once(lambda: _fit(points, labels, seed, stages, trees), points, labels, seed, stages, trees)


def _fit(
    codes: Float32[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], seed: int, stages: int, trees: str
) -> Forest:
    names, y = np.unique(labels, return_inverse=True)
    choose, train, gains = (_constant if len(names) == 1 else FITS[trees])(codes, y, seed, stages)
    return Forest(names, names[train], gains, choose)


def _constant(codes: Float32[np.ndarray, "n d"], y: Int[np.ndarray, " n"], seed: int, stages: int) -> Fitted:
    return lambda points: np.zeros(len(points), np.int64), y, np.zeros((0, codes.shape[1]))


def _fast(codes: Float32[np.ndarray, "n d"], y: Int[np.ndarray, " n"], seed: int, stages: int) -> Fitted:
    """Our own trees."""
    trees, start, raw = grown(codes, y, seed, stages, bins_for(len(codes)))
    bound = _not_above(trees.threshold)

    def choose(points: Float32[np.ndarray, "m d"]) -> Int[np.ndarray, " m"]:
        from unbraid.metrics.trees.stages import apply

        scores = np.repeat(start[:, None], len(points), axis=1)
        with _threads(scores.size):
            apply(np.ascontiguousarray(points.T), trees.feature, bound, trees.value, scores)
        return _best(scores)

    gains = trees.importance[:, 1:] if len(start) == 2 else trees.importance  # two classes share one tree
    return choose, _best(raw), gains.reshape(-1, codes.shape[1])


def grown(
    codes: Float32[np.ndarray, "n d"], y: Int[np.ndarray, " n"], seed: int, stages: int, bins: int
) -> tuple[Trees, Float[np.ndarray, " k"], Float[np.ndarray, "k n"]]:
    """All trees of a fit to labels 0 to k - 1; the scores of the classes before; those of the training points after.

    The number of bins changes the time this takes, and nothing else.
    """
    from unbraid.metrics.trees.stages import boost

    (n, d), counts = codes.shape, np.bincount(y)
    k, members, first = len(counts), np.argsort(y, kind="stable"), np.cumsum([0, *counts])
    rate = RATE if k == 2 else RATE * (k - 1) / k
    start = np.log(counts / counts[0])
    raw = np.repeat(start[:, None], n, axis=1)
    inner, leaves, used = np.full((stages, k, 7), np.inf), np.zeros((stages, k, 8)), np.zeros((stages, k, d))
    trees = Trees(np.zeros((stages, k, 7), np.int32), inner, leaves, used)
    with _threads(n * k) as threads:
        boost(as_columns(codes, bins), y, members, first, raw, rate, np.uint64(seed % 2**64), threads, trees)
    return trees, start, raw


@contextmanager
def _threads(work: int) -> Iterator[int]:
    """As many of numba's threads as have enough to do: on busy cores, waiting for each other costs more than it saves.

    One fit at a time: numba's fallback threading layer ends the process if two threads enter it.
    """
    from numba import get_num_threads, set_num_threads

    with _one_at_a_time, _torch_left_alone():
        allowed = get_num_threads()
        threads = min(allowed, 1 + work // SHARE)
        set_num_threads(threads)
        try:
            yield threads
        finally:
            set_num_threads(allowed)


@contextmanager
def _torch_left_alone() -> Iterator[None]:
    """Keep torch's number of threads: numba's OpenMP layer sets its own on starting, and both ask the same library.

    Torch is not imported for this; where nobody has, there is nothing to keep.
    """
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else 0
    try:
        yield
    finally:
        if torch and torch.get_num_threads() != before:
            torch.set_num_threads(before)


def _best(raw: Float[np.ndarray, "k n"]) -> Int[np.ndarray, " n"]:
    """The class of the highest score; of two that are equal, scikit-learn takes the second, of more the first."""
    best: Int[np.ndarray, " n"] = (raw[1] >= raw[0]).astype(np.int64) if len(raw) == 2 else raw.argmax(axis=0)
    return best


def _not_above(threshold: Float[np.ndarray, "t k 7"]) -> Float32[np.ndarray, "t k 7"]:
    """The largest float32 that is not above: float32 codes compare with it as with the threshold itself."""
    near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)


def _sklearn(codes: Float32[np.ndarray, "n d"], y: Int[np.ndarray, " n"], seed: int, stages: int) -> Fitted:
    from sklearn.ensemble import GradientBoostingClassifier

    model = GradientBoostingClassifier(n_estimators=stages, random_state=seed).fit(codes, y)
    gains = [tree.tree_.compute_feature_importances(normalize=False) for tree in model.estimators_.ravel()]
    return model.predict, model.predict(codes), np.array(gains)


FITS: dict[str, Callable[..., Fitted]] = {"fast": _fast, "sklearn": _sklearn}


def _as_float32(codes: Real[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
    """Codes as trees see them."""
    with np.errstate(over="ignore"):
        narrow = np.asarray(codes, np.float32)
    if not np.isfinite(narrow).all():
        got = f"a largest size of {np.abs(codes).max()}"
        raise refusal("Codes must fit into float32, in which trees compare them.", got, "Scale the codes down.")
    return narrow
