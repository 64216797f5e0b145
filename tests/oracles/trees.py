"""Boosted trees recomputed with loops over rows, and DCI with the classifier of scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from sklearn.ensemble import GradientBoostingClassifier

Rows = Sequence[Sequence[float]]


class Replay(NamedTuple):
    """The results of sending the training rows through given trees."""

    cuts: list[
        tuple[float, float]
    ]  # per node: error reduction of its cut (0 without a cut) and of the best of all cuts
    gains: list[list[float]]  # error reduction by each column, one row per tree
    values: list[list[float]]  # leaf values by one Newton step, 8 per tree; 0 for empty leaves
    scores: list[list[float]]  # scores of all classes after the last stage, one row per point


def error(residuals: list[float]) -> float:
    mean = math.fsum(residuals) / len(residuals)
    return math.fsum((r - mean) ** 2 for r in residuals)


def gain(left: list[float], right: list[float]) -> float:
    return error(left + right) - error(left) - error(right) if left and right else 0.0


def best_gain(codes: Rows, rows: list[int], residual: list[float]) -> float:
    """Return the largest gain of all cuts of these rows between values at least 1e-7 apart."""
    best = 0.0
    for f in range(len(codes[0])):
        ordered = sorted(rows, key=lambda i: codes[i][f])
        for j in range(1, len(ordered)):
            if np.float32(codes[ordered[j]][f]) > np.float32(codes[ordered[j - 1]][f]) + np.float32(1e-7):
                best = max(best, gain([residual[i] for i in ordered[:j]], [residual[i] for i in ordered[j:]]))
    return best


def softmax(scores: list[float]) -> list[float]:
    powers = [math.exp(s - max(scores)) for s in scores]
    return [p / math.fsum(powers) for p in powers]


def newton_step(residuals: list[float], rate: float) -> float:
    """Return the Newton step of one leaf. Residuals are y - p, so |r| (1 - |r|) = p (1 - p)."""
    curve = math.fsum(abs(r) * (1 - abs(r)) for r in residuals)
    return rate * math.fsum(residuals) / curve if curve else 0.0


def replay(
    codes: Rows,
    y: Sequence[int],
    feature: Int[np.ndarray, "t k 7"],
    threshold: Float[np.ndarray, "t k 7"],
    value: Float[np.ndarray, "t k 8"],
) -> Replay:
    """Send the training rows through given trees, and recompute the gain of every cut and the value of every leaf."""
    k, n = max(y) + 1, len(y)
    done = Replay([], [], [], [[math.log(y.count(c) / y.count(0)) for c in range(k)] for _ in range(n)])
    rate = 0.1 if k == 2 else 0.1 * (k - 1) / k
    for stage in range(len(feature)):
        probabilities = [softmax(row) for row in done.scores]
        for c in range(1 if k == 2 else 0, k):
            residual = [(y[i] == c) - probabilities[i][c] for i in range(n)]
            nodes: list[list[int]] = [list(range(n))]
            gains = [0.0] * len(codes[0])
            for t in range(7):
                f, cut, rows = int(feature[stage, c, t]), float(threshold[stage, c, t]), nodes[t]
                left, right = [i for i in rows if codes[i][f] <= cut], [i for i in rows if codes[i][f] > cut]
                reduction = gain([residual[i] for i in left], [residual[i] for i in right])
                done.cuts.append((reduction, best_gain(codes, rows, residual)))
                gains[f] += reduction
                nodes += [left, right]
            done.gains.append(gains)
            done.values.append([newton_step([residual[i] for i in rows], rate) for rows in nodes[7:]])
            for leaf, rows in enumerate(nodes[7:]):
                for i in rows:
                    done.scores[i][c] += float(value[stage, c, leaf])
    return done


def one_minus_entropy(weights: Sequence[float]) -> float:
    """Return 1 minus the entropy, to base len(weights), of weights + 1e-11 scaled to sum 1."""
    total = sum(w + 1e-11 for w in weights)
    return 1 + sum((w + 1e-11) / total * math.log((w + 1e-11) / total, len(weights)) for w in weights)


def weighted_mean(matrix: Rows) -> float:
    total = sum(map(sum, matrix))
    return sum(sum(row) / total * one_minus_entropy(row) for row in matrix)


def disentanglement(codes: Float[np.ndarray, "n d"], factors: Int[np.ndarray, "n k"], seeds: int = 4) -> float:
    """Return D with the classifier of scikit-learn, averaged over the random order in which it breaks ties."""
    scores = []
    for seed in range(seeds):
        models = [GradientBoostingClassifier(random_state=seed).fit(codes, column) for column in factors.T]
        scores.append(weighted_mean(np.stack([m.feature_importances_ for m in models], axis=1).tolist()))
    return sum(scores) / seeds
