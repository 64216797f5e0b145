"""Slow versions of the metrics, written from their definitions with loops over points."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import sqrtm
from scipy.optimize import minimize

Rows = Sequence[Sequence[float]]


def bin_of(x: float, low: float, high: float, bins: int) -> int:
    """Return the bin, from 0, of x among equal-width bins between low and high; the last one is closed."""
    if low == high:
        return 0
    return min(bins - 1, math.floor((x - low) / (high - low) * bins))


def column(table: Rows, j: int) -> list[float]:
    return [float(row[j]) for row in table]


def binned(values: list[float], bins: int) -> list[float]:
    return [bin_of(x, min(values), max(values), bins) for x in values]


def entropy(values: list[float]) -> float:
    n = len(values)
    return -sum(c / n * math.log(c / n) for c in Counter(values).values())


def information(a: list[float], b: list[float]) -> float:
    """Return I(a; b), the sum over pairs of values of p(u, v) log(p(u, v) / (p(u) p(v)))."""
    n, total = len(a), 0.0
    for u in set(a):
        for v in set(b):
            joint = sum(x == u and y == v for x, y in zip(a, b, strict=True)) / n
            if joint:
                total += joint * math.log(joint / (a.count(u) / n * b.count(v) / n))
    return total


def mig(codes: Rows, factors: Rows, bins: int = 20) -> float:
    gaps = []
    for j in range(len(factors[0])):
        factor = column(factors, j)
        ordered = sorted(information(binned(column(codes, i), bins), factor) for i in range(len(codes[0])))
        gaps.append((ordered[-1] - ordered[-2]) / entropy(factor))
    return sum(gaps) / len(gaps)


def modularity(codes: Rows, factors: Rows, bins: int = 20) -> float:
    scores, k = [], len(factors[0])
    for i in range(len(codes[0])):
        row = [information(binned(column(codes, i), bins), column(factors, j)) for j in range(k)]
        best = row.index(max(row))
        others = sum(row[j] ** 2 for j in range(k) if j != best)
        scores.append(1 - others / (row[best] ** 2 * (k - 1)) if row[best] > 1e-12 else 0.0)
    return sum(scores) / len(scores)


def fit_line(
    x: Float[np.ndarray, " n"], own: Int[np.ndarray, " n"], own_cost: float, other_cost: float
) -> tuple[float, float]:
    """Return the weight and bias, both penalised, with the smallest squared hinge loss."""
    sign, cost = np.where(own, 1.0, -1.0), 0.01 * np.where(own, own_cost, other_cost)

    def objective(wb: Float[np.ndarray, " 2"]) -> float:
        slack = np.maximum(0, 1 - sign * (wb[0] * x + wb[1]))
        return float(0.5 * wb @ wb + np.sum(cost * slack**2))

    solution = minimize(objective, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    return float(solution.x[0]), float(solution.x[1])


def svm_accuracy(
    x: Float[np.ndarray, " n"], y: Int[np.ndarray, " n"], tx: Float[np.ndarray, " m"], ty: Int[np.ndarray, " m"]
) -> float:
    """Fit one line per class against the rest; the highest wins. As in liblinear, only own points have weights."""
    values = sorted(set(y.tolist()))
    lines = [fit_line(x, y == v, len(y) / (len(values) * int(np.sum(y == v))), 1.0) for v in values]
    predictions = [values[max(range(len(values)), key=lambda c: lines[c][0] * p + lines[c][1])] for p in tx.tolist()]
    return float(np.mean([prediction == truth for prediction, truth in zip(predictions, ty.tolist(), strict=True)]))


def sap(
    codes: Float[np.ndarray, "n d"],
    factors: Int[np.ndarray, "n k"],
    test_codes: Float[np.ndarray, "m d"],
    test_factors: Int[np.ndarray, "m k"],
) -> float:
    """Return SAP for factors of three or more values (with two, liblinear fits one line instead of two)."""
    gaps: list[float] = []
    for j in range(factors.shape[1]):
        ordered = sorted(
            svm_accuracy(codes[:, i], factors[:, j], test_codes[:, i], test_factors[:, j])
            for i in range(codes.shape[1])
        )
        gaps.append(ordered[-1] - ordered[-2])
    return sum(gaps) / len(gaps)


def sap_continuous(codes: Rows, factors: Rows) -> float:
    gaps = []
    for j in range(len(factors[0])):
        squares = [np.corrcoef(column(codes, i), column(factors, j))[0, 1] ** 2 for i in range(len(codes[0]))]
        ordered = sorted(map(float, squares))
        gaps.append(ordered[-1] - ordered[-2])
    return sum(gaps) / len(gaps)


def variance(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return sum((x - mean) ** 2 for x in values) / (len(values) - 1)


def least_varying_code(codes: Rows, factors: Rows, fixed: int, batch: int, prune: float, draw: random.Random) -> int:
    """Return the active code with the least relative variance over random rows that share the fixed factor."""
    value = draw.choice(factors)[fixed]
    same = [row for row, labels in zip(codes, factors, strict=True) if labels[fixed] == value]
    rows = [draw.choice(same) for _ in range(batch)]
    ratios = {}
    for i in range(len(codes[0])):
        total = variance(column(codes, i))
        if math.sqrt(total) >= prune:
            ratios[i] = variance(column(rows, i)) / total
    return min(ratios, key=lambda i: ratios[i])


def factor_vae(
    codes: Rows, factors: Rows, batch: int, train: int, test: int, prune: float = 0.05, seed: int = 0
) -> float:
    """Return the accuracy of the majority vote, with independent draws."""
    draw, k = random.Random(seed), len(factors[0])
    pairs = []
    for _ in range(train + test):
        fixed = draw.randrange(k)
        pairs.append((least_varying_code(codes, factors, fixed, batch, prune, draw), fixed))
    counts = Counter(pairs[:train])
    assigned = {i: max(range(k), key=lambda j: counts[i, j]) for i in range(len(codes[0]))}
    return sum(assigned[i] == fixed for i, fixed in pairs[train:]) / test


def unsupervised(codes: Float[np.ndarray, "n d"], bins: int = 20) -> dict[str, float]:
    """Return the scores by the formulas of the reference, with a log determinant and a matrix square root."""
    covariance = np.cov(codes.T)
    diagonal = np.diag(covariance)
    d = len(covariance)
    root = np.trace(np.real(sqrtm(covariance * diagonal[:, None])))
    distance = float(2 * np.trace(covariance) - 2 * root)
    labels = [binned(column(codes.tolist(), i), bins) for i in range(d)]
    pairs = [information(labels[i], labels[j]) for i in range(d) for j in range(d) if i != j]
    return {
        "gaussian_total_correlation": float(0.5 * (np.log(diagonal).sum() - np.linalg.slogdet(covariance)[1])),
        "gaussian_wasserstein_correlation": distance,
        "gaussian_wasserstein_correlation_norm": distance / float(np.trace(covariance)),
        "mutual_info_score": sum(pairs) / len(pairs),
    }
