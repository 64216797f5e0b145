"""Fairness by enumeration of all settings of the other factors instead of random ones."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def distances(counts: list[Counter[int]]) -> list[float]:
    """Return the total variation distance of the distribution of each group from that of all groups."""
    overall: Counter[int] = sum(counts, Counter())
    total = overall.total()
    return [sum(abs(c[y] / c.total() - overall[y] / total) for y in overall) / 2 for c in counts]


def predictions_by_value(predictions: list[int], factors: list[list[int]], j: int) -> list[Counter[int]]:
    """Count predictions under each value of factor j, over settings of the others that occur with all values."""
    values = sorted({row[j] for row in factors})
    cells: dict[tuple[int, ...], dict[int, list[int]]] = {}
    for prediction, row in zip(predictions, factors, strict=True):
        setting = tuple(v for i, v in enumerate(row) if i != j)
        cells.setdefault(setting, {}).setdefault(row[j], []).append(prediction)
    complete = [cell for cell in cells.values() if len(cell) == len(values)]
    return [Counter(prediction for cell in complete for prediction in cell[value]) for value in values]


def fairness(codes: Array, factors: Array, *, stages: int = 100, seed: int = 0) -> float:
    """Return the mean over targets and sensitive factors, with trees of scikit-learn fitted to the table itself."""
    from sklearn.ensemble import GradientBoostingClassifier

    k, pairs = factors.shape[1], {}
    for i in range(k):
        forest = GradientBoostingClassifier(n_estimators=stages, random_state=seed).fit(codes, factors[:, i])
        predictions = forest.predict(codes).tolist()
        for j in set(range(k)) - {i}:
            values = distances(predictions_by_value(predictions, factors.tolist(), j))
            pairs[i, j] = sum(values) / len(values)
    return sum(pairs[i, j] for i, j in itertools.permutations(range(k), 2)) / (k * (k - 1))
