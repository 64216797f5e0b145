"""Boosted trees replayed with loops over rows, and DCI with scikit-learn's own classifier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from sklearn.ensemble import GradientBoostingClassifier

Rows = Sequence[Sequence[float]]


class Replay(NamedTuple):
    """What a literal walk through given trees finds."""

    cuts: list[tuple[float, float]]  # a node: error taken away by its cut (0 without), and by the best of all cuts
    gains: list[list[float]]  # error taken away by each column, a row a tree
    values: list[list[float]]  # leaf values by one Newton step, 8 a tree; 0 for empty leaves
    scores: list[list[float]]  # of all classes, a row a point, after the last stage


def error(residuals: list[float]) -> float:
    mean = math.fsum(residuals) / len(residuals)
    return math.fsum((r - mean) ** 2 for r in residuals)


def gain(left: list[float], right: list[float]) -> float:
    return error(left + right) - error(left) - error(right) if left and right else 0.0


def best_gain(codes: Rows, rows: list[int], residual: list[float]) -> float:
    """The largest gain of all cuts of these rows between values at least 1e-7 apart."""
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


def newton(residuals: list[float], rate: float) -> float:
    """The step of one leaf; residuals are y - p, so |r| (1 - |r|) = p (1 - p)."""
    curve = math.fsum(abs(r) * (1 - abs(r)) for r in residuals)
    return rate * math.fsum(residuals) / curve if curve else 0.0


def replay(
    codes: Rows,
    y: Sequence[int],
    feature: Int[np.ndarray, "t k 7"],
    threshold: Float[np.ndarray, "t k 7"],
    value: Float[np.ndarray, "t k 8"],
) -> Replay:
    """Send the training rows through given trees, with every cut's gain and every leaf's value computed anew."""
    k, n = max(y) + 1, len(y)
    done = Replay([], [], [], [[math.log(y.count(c) / y.count(0)) for c in range(k)] for _ in range(n)])
    rate = 0.1 if k == 2 else 0.1 * (k - 1) / k
    for stage in range(len(feature)):
        chances = [softmax(row) for row in done.scores]
        for c in range(1 if k == 2 else 0, k):
            residual = [(y[i] == c) - chances[i][c] for i in range(n)]
            nodes: list[list[int]] = [list(range(n))]
            gains = [0.0] * len(codes[0])
            for t in range(7):
                f, cut, rows = int(feature[stage, c, t]), float(threshold[stage, c, t]), nodes[t]
                left, right = [i for i in rows if codes[i][f] <= cut], [i for i in rows if codes[i][f] > cut]
                found = gain([residual[i] for i in left], [residual[i] for i in right])
                done.cuts.append((found, best_gain(codes, rows, residual)))
                gains[f] += found
                nodes += [left, right]
            done.gains.append(gains)
            done.values.append([newton([residual[i] for i in rows], rate) for rows in nodes[7:]])
            for leaf, rows in enumerate(nodes[7:]):
                for i in rows:
                    done.scores[i][c] += float(value[stage, c, leaf])
    return done


def spread(weights: Sequence[float]) -> float:
    """1 - entropy to base len(weights) of weights + 1e-11, scaled to sum 1."""
    total = sum(w + 1e-11 for w in weights)
    return 1 + sum((w + 1e-11) / total * math.log((w + 1e-11) / total, len(weights)) for w in weights)


def weighted(matrix: Rows) -> float:
    total = sum(map(sum, matrix))
    return sum(sum(row) / total * spread(row) for row in matrix)


def disentanglement(codes: Float[np.ndarray, "n d"], factors: Int[np.ndarray, "n k"], seeds: int = 4) -> float:
    """D by scikit-learn's classifier, averaged over the random order in which it breaks ties."""
    scores = []
    for seed in range(seeds):
        models = [GradientBoostingClassifier(random_state=seed).fit(codes, column) for column in factors.T]
        scores.append(weighted(np.stack([m.feature_importances_ for m in models], axis=1).tolist()))
    return sum(scores) / seeds
