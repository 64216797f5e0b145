"""Fairness by enumeration: every setting of the other factors in place of random ones."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def distances(counts: list[Counter[int]]) -> list[float]:
    """Half the absolute differences between each group's distribution and that of all groups."""
    overall: Counter[int] = sum(counts, Counter())
    everything = overall.total()
    return [sum(abs(c[y] / c.total() - overall[y] / everything) for y in overall) / 2 for c in counts]


def groups(guesses: list[int], factors: list[list[int]], j: int) -> list[Counter[int]]:
    """Guesses under each value of factor j, over the settings of the others that were seen with all values."""
    values = sorted({row[j] for row in factors})
    seen: dict[tuple[int, ...], dict[int, list[int]]] = {}
    for guess, row in zip(guesses, factors, strict=True):
        setting = tuple(v for i, v in enumerate(row) if i != j)
        seen.setdefault(setting, {}).setdefault(row[j], []).append(guess)
    complete = [cell for cell in seen.values() if len(cell) == len(values)]
    return [Counter(guess for cell in complete for guess in cell[value]) for value in values]


def fairness(codes: Array, factors: Array, *, stages: int = 100, seed: int = 0) -> float:
    """The mean over targets and sensitive factors, with scikit-learn's trees fitted to the table itself."""
    from sklearn.ensemble import GradientBoostingClassifier

    k, pairs = factors.shape[1], {}
    for i in range(k):
        forest = GradientBoostingClassifier(n_estimators=stages, random_state=seed).fit(codes, factors[:, i])
        guesses = forest.predict(codes).tolist()
        for j in set(range(k)) - {i}:
            found = distances(groups(guesses, factors.tolist(), j))
            pairs[i, j] = sum(found) / len(found)
    return sum(pairs[i, j] for i, j in itertools.permutations(range(k), 2)) / (k * (k - 1))
