"""Slow versions of the metrics that predict factors from codes, with the estimators of scikit-learn."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def logistic(x: Array, y: Array) -> Any:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LogisticRegression().fit(x, y)


def logistic_cv(x: Array, y: Array) -> Any:
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import KFold

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LogisticRegressionCV(Cs=10, cv=KFold(5)).fit(x, y)


def svm(x: Array, y: Array, tol: float = 1e-4) -> Any:
    from sklearn.svm import LinearSVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LinearSVC(C=0.01, class_weight="balanced", dual=False, tol=tol, max_iter=100_000).fit(x, y)


def boosted(x: Array, y: Array) -> Any:
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(random_state=0).fit(x, y)


def area(scores: list[float], own: list[bool]) -> float:
    """Return the share of pairs (own, other) that the scores order correctly; ties count half."""
    own_scores = [s for s, o in zip(scores, own, strict=True) if o]
    other_scores = [s for s, o in zip(scores, own, strict=True) if not o]
    wins = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in own_scores for b in other_scores)
    return wins / (len(own_scores) * len(other_scores))


def explicitness(codes: Array, factors: Array, test_codes: Array, test_factors: Array) -> float:
    mean, std = codes.mean(axis=0), codes.std(axis=0)
    means = []
    for j in range(factors.shape[1]):
        model = logistic((codes - mean) / std, factors[:, j])
        p = model.predict_proba((test_codes - mean) / std)
        areas = [area(p[:, c].tolist(), (test_factors[:, j] == v).tolist()) for c, v in enumerate(model.classes_)]
        means.append(sum(areas) / len(areas))
    return sum(means) / len(means)


def beta_vae(codes: Array, factors: Array, batch: int, train: int, test: int, seed: int = 0) -> float:
    """Return the accuracy of predicting the factor that all pairs of a batch share, with independent draws."""
    draw, (n, k) = random.Random(seed), factors.shape
    features, fixed = [], []
    for _ in range(train + test):
        j, total = draw.randrange(k), np.zeros(codes.shape[1])
        for _ in range(batch):
            one = draw.randrange(n)
            two = draw.choice([i for i in range(n) if factors[i, j] == factors[one, j]])
            total += abs(codes[one] - codes[two])
        features.append(total / batch)
        fixed.append(j)
    model = logistic(np.array(features[:train]), np.array(fixed[:train]))
    return float(model.score(np.array(features[train:]), np.array(fixed[train:])))


def downstream(fit: Callable[[Array, Array], Any], codes: Array, factors: Array) -> float:
    """Return the mean accuracy over factors on the training rows."""
    scores = [fit(codes, factors[:, j]).score(codes, factors[:, j]) for j in range(factors.shape[1])]
    return float(sum(scores) / len(scores))
