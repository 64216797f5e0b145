"""Slow versions of OMES, SNC, NK, AAM, flatness, linearity, factorised support and DCI-ES, with loops over points."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from oracles.information import information_matrix
from oracles.linear import boosted
from oracles.metrics import Rows, column, entropy, information

Array = np.ndarray[Any, np.dtype[Any]]


def aam(codes: Rows, factors: Rows) -> float:
    matrix, shares = information_matrix(codes, factors), []
    for j in range(len(factors[0])):
        ordered = sorted((row[j] for row in matrix), reverse=True)
        shares.append(max(0.0, ordered[0] - sum(ordered[1:])) / ordered[0])
    return sum(shares) / len(shares)


def differ_only_in(a: Any, b: Any, j: int) -> bool:
    return all((x != y) == (i == j) for i, (x, y) in enumerate(zip(a, b, strict=True)))


def omes(codes: Rows, factors: Rows, alpha: float = 0.5) -> float:
    """Return the score over all pairs that differ in one factor only."""
    n, d, k = len(codes), len(codes[0]), len(factors[0])
    S = [[0.0] * k for _ in range(d)]
    for j in range(k):
        pairs = [(a, b) for a in range(n) for b in range(n) if differ_only_in(factors[a], factors[b], j)]
        for i in range(d):
            x, y = [codes[a][i] for a, _ in pairs], [codes[b][i] for _, b in pairs]
            S[i][j] = 1 - abs(float(np.corrcoef(x, y)[0, 1]))
    scores = []
    for j in range(k):
        weighted = 0.0
        for i in range(d):
            overlap = 1 - sum(abs((other == j) - S[i][other]) for other in range(k)) / k
            multiple = 1 - sum(abs((other == i) - S[other][j]) for other in range(d)) / d
            weighted += S[i][j] * S[i][j] * (alpha * overlap + (1 - alpha) * multiple)
        scores.append(weighted / sum(S[i][j] for i in range(d)))
    return sum(scores) / k


def rank_bins(values: list[float], count: int) -> list[float]:
    """Return the bin of each value. The values are different, so bins are intervals of ranks."""
    n = len(values)
    starts = [math.floor(c * n / count) for c in range(1, count)]
    return [float(sum(sorted(values).index(x) >= start for start in starts)) for x in values]


def assigned_latents(codes: Rows, factors: Rows) -> tuple[int, ...]:
    """Return a different latent for each factor, with the largest total information."""

    def gain(j: int, i: int) -> float:
        factor = column(factors, j)
        return information(rank_bins(column(codes, i), len(set(factor))), factor)

    d, k = len(codes[0]), len(factors[0])
    gains = [[gain(j, i) for i in range(d)] for j in range(k)]
    return max(itertools.permutations(range(d), k), key=lambda p: sum(gains[j][i] for j, i in enumerate(p)))


def snc(codes: Rows, factors: Rows) -> float:
    accuracies = []
    for j, i in enumerate(assigned_latents(codes, factors)):
        factor = column(factors, j)
        values = sorted(set(factor))
        counts = Counter(zip(rank_bins(column(codes, i), len(values)), factor, strict=True))
        correct = [[counts[b, value] for value in values] for b in range(len(values))]
        orders = itertools.permutations(range(len(values)))
        accuracies.append(max(sum(correct[b][v] for b, v in enumerate(p)) for p in orders) / len(factor))
    return sum(accuracies) / len(accuracies)


def nk(codes: Array, factors: Array) -> float:
    losses = []
    for j, i in enumerate(assigned_latents(codes.tolist(), factors.tolist())):
        rest, labels = np.delete(codes, i, axis=1), factors[:, j]
        losses.append(boosted(codes, labels).score(codes, labels) - boosted(rest, labels).score(rest, labels))
    return float(sum(losses) / len(losses))


def traversals(codes: Rows, factors: Rows, j: int) -> list[list[Any]]:
    """Return the codes of each line of a complete table along factor j, in the order of its values."""
    lines: dict[tuple[float, ...], list[tuple[float, Any]]] = {}
    for row, labels in zip(codes, factors, strict=True):
        lines.setdefault(tuple(v for i, v in enumerate(labels) if i != j), []).append((labels[j], row))
    return [[row for _, row in sorted(line)] for line in lines.values()]


def flatness(codes: Rows, factors: Rows) -> float:
    """Return the flatness over all lines of a complete table."""
    k, ratios = len(factors[0]), []
    for j in range(k):
        width = length = 0.0
        for points in traversals(codes, factors, j):
            width += max(math.dist(a, b) for a in points for b in points)
            cycle = zip(points, [*points[1:], points[0]], strict=True)
            steps = [sum(abs(x - y) for x, y in zip(a, b, strict=True)) for a, b in cycle]
            length += sum(sorted(steps)[:-1])
        ratios.append(width / length)
    return sum(ratios) / k


def support_distance(codes: Array) -> float:
    """Return the mean over pairs of standardised latents of the squared Hausdorff distance."""
    z = ((codes - codes.mean(axis=0)) / codes.std(axis=0)).T.tolist()
    distances = [
        max(min((a - x) ** 2 + (b - y) ** 2 for x, y in zip(first, second, strict=True)) for a in first for b in second)
        for first, second in itertools.combinations(z, 2)
    ]
    return sum(distances) / len(distances)


def impurity(labels: list[float]) -> float:
    """Return the number of labels times their entropy."""
    return len(labels) * entropy(labels)


def tree_errors(codes: Rows, labels: list[float], depth: int) -> int:
    """Return the number of errors, on its own points, of a tree that minimises the entropy greedily."""
    errors = len(labels) - max(Counter(labels).values())
    if depth == 0 or errors == 0:
        return errors
    best: tuple[float, list[bool]] | None = None
    for i in range(len(codes[0])):
        for cut in sorted(set(column(codes, i)))[:-1]:
            left = [row[i] <= cut for row in codes]
            sides = [[y for y, inside in zip(labels, left, strict=True) if inside == side] for side in (True, False)]
            total = sum(map(impurity, sides))
            if best is None or total < best[0] - 1e-9:
                best = total, left
    assert best
    parts = [[n for n, inside in enumerate(best[1]) if inside == side] for side in (True, False)]
    return sum(tree_errors([codes[n] for n in part], [labels[n] for n in part], depth - 1) for part in parts)


def mean_informativeness(codes: Rows, factors: Rows, depths: tuple[int, ...]) -> float:
    means = []
    for j in range(len(factors[0])):
        labels = column(factors, j)
        baseline = tree_errors(codes, labels, 0)
        curve = [min(baseline, tree_errors(codes, labels, depth)) for depth in depths]
        area = sum((b - a) * (x + y) / 2 for (a, b), (x, y) in zip(
            itertools.pairwise(depths), itertools.pairwise(curve), strict=True))  # fmt: skip
        means.append(1 - area / (depths[-1] - depths[0]) / baseline)
    return sum(means) / len(means)


def covariance(points: list[Any]) -> Array:
    means = [sum(column) / len(points) for column in zip(*points, strict=True)]
    d = len(means)
    matrix = np.zeros((d, d))
    for a in range(d):
        for b in range(d):
            matrix[a, b] = sum((p[a] - means[a]) * (p[b] - means[b]) for p in points) / (len(points) - 1)
    return matrix


def linearity(codes: Rows, factors: Rows) -> dict[str, float]:
    """Return the ratios over all lines of a complete table."""
    means = []
    for j in range(len(factors[0])):
        found = []
        for line in traversals(codes, factors, j):
            matrix = covariance(line)
            d, trace = len(matrix), float(np.trace(matrix))
            largest = float(np.linalg.eigvalsh(matrix)[-1]), float(np.diag(matrix).max())
            linear, axis = ((value / trace - 1 / d) / (1 - 1 / d) for value in largest)
            found.append((linear, axis, axis / linear))
        means.append(np.mean(found, axis=0))
    names = ("linear_ratio", "axis_ratio", "axis_alignment")
    return dict(zip(names, np.mean(means, axis=0).tolist(), strict=True))


def distance(a: Any, b: Any, order: int) -> float:
    return float(sum(abs(x - y) ** order for x, y in zip(a, b, strict=True)) ** (1 / order))


def factor_rank_correlation(codes: Rows, factors: Rows, order: int) -> float:
    """Return the mean over factors of the correlation over all pairs in all lines of a complete table."""
    found = []
    for j in range(len(factors[0])):
        pairs = [
            (abs(a - b), distance(line[a], line[b], order))
            for line in traversals(codes, factors, j)
            for a, b in itertools.combinations(range(len(line)), 2)
        ]
        found.append(float(spearmanr(*zip(*pairs, strict=True)).statistic))
    return sum(found) / len(found)


def global_rank_correlation(codes: Rows, factors: Rows, order: int) -> float:
    """Return the correlation over all pairs of rows."""
    pairs = [
        (distance(factors[a], factors[b], 1), distance(codes[a], codes[b], order))
        for a, b in itertools.combinations(range(len(codes)), 2)
    ]
    return float(spearmanr(*zip(*pairs, strict=True)).statistic)
