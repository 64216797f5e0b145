"""Slow versions of the metrics of information, correlation and robustness, with loops over points."""

from __future__ import annotations

import itertools
import math

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from oracles.metrics import Rows, binned, column, entropy, information


def information_matrix(codes: Rows, factors: Rows, bins: int = 20) -> list[list[float]]:
    """Return the information of each binned code about each factor."""
    pairs = [[(i, j) for j in range(len(factors[0]))] for i in range(len(codes[0]))]
    return [[information(binned(column(codes, i), bins), column(factors, j)) for i, j in row] for row in pairs]


def quantile(values: list[float], q: float) -> float:
    """Return the quantile q, by linear interpolation between the two nearest sorted values."""
    ordered, place = sorted(values), q * (len(values) - 1)
    low = math.floor(place)
    return ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def stability(code: list[float], factor: list[float], q: float) -> float:
    """Return one minus the mean quantile of deviations within a value, in units of the largest deviation."""
    centre, deviations = mean(code), []
    for value in sorted(set(factor)):
        same = [z for z, v in zip(code, factor, strict=True) if v == value]
        deviations.append(quantile([abs(z - mean(same)) for z in same], q))
    return 1 - mean(deviations) / max(abs(z - centre) for z in code)


def irs(codes: Rows, factors: Rows, bins: int = 20, q: float = 0.99) -> float:
    total = weights = 0.0
    for i in range(len(codes[0])):
        code = column(codes, i)
        weight = max(abs(z - mean(code)) for z in code)
        best = max(stability(code, binned(column(factors, j), bins), q) for j in range(len(factors[0])))
        total, weights = total + weight * best, weights + weight
    return total / weights


def correlation(a: list[float], b: list[float]) -> float:
    centred = [(x - mean(a), y - mean(b)) for x, y in zip(a, b, strict=True)]
    spread = math.sqrt(math.fsum(x * x for x, _ in centred) * math.fsum(y * y for _, y in centred))
    return abs(math.fsum(x * y for x, y in centred)) / spread


def ranks(values: list[float]) -> list[float]:
    """Return the ranks: one plus the number of smaller values and half the number of other equal values."""
    return [1 + sum(y < x for y in values) + (sum(y == x for y in values) - 1) / 2 for x in values]


def mcc(codes: Rows, factors: Rows, *, ranked: bool = False) -> float:
    """Return the best of all assignments, for at least as many codes as factors."""
    convert = ranks if ranked else list
    left = [convert(column(codes, i)) for i in range(len(codes[0]))]
    right = [convert(column(factors, j)) for j in range(len(factors[0]))]
    return max(
        mean([correlation(left[i], factor) for i, factor in zip(assignment, right, strict=True)])
        for assignment in itertools.permutations(range(len(left)), len(right))
    )


def concentration(matrix: list[list[float]]) -> float:
    chance = 1 / len(matrix[0])
    return (mean([max(row) / math.fsum(row) for row in matrix]) - chance) / (1 - chance)


def infomec(codes: Rows, factors: Rows, bins: int = 20) -> tuple[float, float]:
    """Return InfoM and InfoC if no code is pruned."""
    entropies = [entropy(column(factors, j)) for j in range(len(factors[0]))]
    shares = [[x / h for x, h in zip(row, entropies, strict=True)] for row in information_matrix(codes, factors, bins)]
    return concentration(shares), concentration([list(row) for row in zip(*shares, strict=True)])


def explicitness(codes: Float[np.ndarray, "n d"], factors: Rows) -> float:
    """Return InfoE: a softmax with one line per value, fitted by a general minimiser with numerical gradients."""
    x = np.c_[(codes - codes.mean(axis=0)) / codes.std(axis=0), np.ones(len(codes))]
    removed = []
    for j in range(len(factors[0])):
        labels = column(factors, j)
        values = sorted(set(labels))
        own = [values.index(label) for label in labels]

        def loss(w: Float[np.ndarray, " p"], own: list[int] = own, values: list[float] = values) -> float:
            scores = x @ w.reshape(x.shape[1], len(values))
            return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[range(len(own)), own]))

        fitted = minimize(loss, np.zeros(x.shape[1] * len(values)), method="BFGS")
        removed.append(1 - float(fitted.fun) / entropy(labels))
    return mean(removed)


def dcimig(codes: Rows, factors: Rows, bins: int = 20) -> float:
    best = [0.0] * len(factors[0])
    for row in information_matrix(codes, factors, bins):
        first, second = sorted(row, reverse=True)[:2]
        j = row.index(first)
        best[j] = max(best[j], first - second)
    return math.fsum(best) / math.fsum(entropy(column(factors, j)) for j in range(len(best)))


def jemmig(codes: Rows, factors: Rows, bins: int = 20) -> tuple[float, float]:
    """Return the normalised score and the nats, with the joint entropy computed over pairs of labels."""
    matrix, scores, nats = information_matrix(codes, factors, bins), [], []
    for j in range(len(factors[0])):
        ordered = sorted(range(len(matrix)), key=lambda i: matrix[i][j])
        pairs = list(zip(binned(column(codes, ordered[-1]), bins), column(factors, j), strict=True))
        joint = -sum(n / len(pairs) * math.log(n / len(pairs)) for n in map(pairs.count, set(pairs)))
        nats.append(joint - matrix[ordered[-1]][j] + matrix[ordered[-2]][j])
        scores.append(1 - nats[-1] / (entropy(column(factors, j)) + math.log(bins)))
    return mean(scores), mean(nats)


def mig_sup(codes: Rows, factors: Rows, bins: int = 20) -> float:
    gaps = []
    for row in information_matrix(codes, factors, bins):
        shares = sorted(x / entropy(column(factors, j)) for j, x in enumerate(row))
        gaps.append(shares[-1] - shares[-2])
    return mean(gaps)
