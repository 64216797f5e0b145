"""Slow loops for the losses of product manifold projection; s[b][i][r] is one coordinate of one subspace."""

from __future__ import annotations

import math

Code = list[list[float]]  # one vector per subspace


def sparsity(codes: list[Code]) -> float:
    """Return the mean over examples and coordinates of sum_i |s_i[r] * sum_{j != i} s_j[r]|."""
    total = 0.0
    for s in codes:
        for r in range(len(s[0])):
            for i in range(len(s)):
                total += abs(s[i][r] * sum(s[j][r] for j in range(len(s)) if j != i))
    return total / (len(codes) * len(codes[0][0]))


def squared_distance(a: list[float], b: list[float]) -> float:
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def subspace_distances(first: list[Code], second: list[Code]) -> list[list[float]]:
    return [[squared_distance(a[i], b[i]) for i in range(len(a))] for a, b in zip(first, second, strict=True)]


def softmax(values: list[float]) -> list[float]:
    top = max(values)
    weights = [math.exp(v - top) for v in values]
    return [w / sum(weights) for w in weights]


def mean_distances(codes: list[Code]) -> list[float]:
    """Return the mean Euclidean distance in each subspace over all n^2 ordered pairs of examples."""
    n = len(codes)
    return [
        sum(math.sqrt(squared_distance(a[i], b[i])) for a in codes for b in codes) / n**2 for i in range(len(codes[0]))
    ]


def changed_subspace(first: list[Code], second: list[Code]) -> list[list[float]]:
    scale, distances = mean_distances(first + second), subspace_distances(first, second)
    return [softmax([1e6 * x / (m + 1e-8) for x, m in zip(row, scale, strict=True)]) for row in distances]


def distance(first: list[Code], second: list[Code]) -> float:
    total, count = 0.0, 0
    for row, chosen in zip(subspace_distances(first, second), changed_subspace(first, second), strict=True):
        for delta, o in zip(row, chosen, strict=True):
            total += (1 - o) * delta + 10 * max(0.05 - o * delta, 0)
            count += 1
    return total / count


def regularisation(first: list[Code], second: list[Code]) -> float:
    rows = [softmax([1e3 * x for x in row]) for row in subspace_distances(first, second)]
    k = len(rows[0])
    used = [sum(row[i] for row in rows) / len(rows) for i in range(k)]
    return 100 * sum((1 / k - a) ** 2 for a in used) / k


def mixture(first: Code, second: Code, subspace: int) -> Code:
    """Return the code of the second example with one subspace of the first."""
    return [first[i] if i == subspace else second[i] for i in range(len(first))]


def projected_vector(z: list[float], layers: list[tuple[list[list[float]], list[float]]]) -> list[float]:
    """Return the output of Linear, ReLU, Linear."""
    (w1, c1), (w2, c2) = layers
    hidden = [max(sum(w * x for w, x in zip(row, z, strict=True)) + c, 0.0) for row, c in zip(w1, c1, strict=True)]
    return [sum(w * x for w, x in zip(row, hidden, strict=True)) + c for row, c in zip(w2, c2, strict=True)]


def weights(epoch: float, epochs: float, preset: str) -> tuple[float, float, float]:
    """Return the weights b1, b2, b3 of an epoch."""
    b1 = min(math.exp(25 / epochs * (epoch - 0.4 * epochs)), 1)
    b2 = min(math.exp(25 / epochs * (epoch - 0.5 * epochs)), 1)
    if epoch <= {"paper": 0.2, "code": 0.25}[preset] * epochs:
        return 0, 0, 0
    return b1, b2, 1 - (b2 if preset == "paper" else b1)
