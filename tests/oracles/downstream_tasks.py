"""Strong and reduced downstream tasks by enumeration, with the boosted trees of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.linear import boosted

Array = np.ndarray[Any, np.dtype[Any]]


def strong_accuracy(codes: Array, factors: Array) -> float:
    """Return the accuracy after a shift, averaged over factors and over all values of all other factors."""
    k, means = factors.shape[1], []
    for j in range(k):
        for other in [i for i in range(k) if i != j]:
            values = sorted(set(factors[:, other].tolist()))
            accuracies = []
            for value in values:
                inside = factors[:, other] == value
                model = boosted(codes[inside], factors[inside, j])
                accuracies.append(model.score(codes[~inside], factors[~inside, j]))
            means.append(sum(accuracies) / len(values))
    return float(sum(means) / len(means))


def accuracy_of_other_factors(codes: Array, factors: Array) -> float:
    """Return the mean accuracy on the training rows of all factors but the one whose best latent is removed."""
    k, accuracies = factors.shape[1], []
    for j in range(k):
        best = int(np.argmax(boosted(codes, factors[:, j]).feature_importances_))
        rest = np.delete(codes, best, axis=1)
        accuracies += [boosted(rest, factors[:, i]).score(rest, factors[:, i]) for i in range(k) if i != j]
    return float(sum(accuracies) / len(accuracies))
