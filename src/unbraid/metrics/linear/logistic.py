"""Logistic regression that equals the defaults of scikit-learn, and its cross-validated form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

ITERATIONS = 100
CS = np.logspace(-4, 4, 10)  # inverse penalties among which cross-validation selects


@dataclass(frozen=True)
class Logistic:
    """A fitted classifier: a softmax of linear scores. With two classes, the score of the first is 0."""

    classes: Int[np.ndarray, " c"]
    weights: Float[np.ndarray, "c d"]
    intercepts: Float[np.ndarray, " c"]
    C: float

    def scores(self, codes: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n c"]:
        """Return the log-probability of each class, up to a constant per row."""
        return np.asarray(codes @ self.weights.T + self.intercepts)

    def probabilities(self, codes: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n c"]:
        """Return the probability of each class."""
        scores = self.scores(codes)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def predict(self, codes: Float[np.ndarray, "n d"]) -> Int[np.ndarray, " n"]:
        """Return the most probable class, the first of equal ones."""
        return np.asarray(self.classes[self.scores(codes).argmax(axis=1)])


def logistic_regression(
    codes: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], *, C: float = 1.0, iterations: int = ITERATIONS
) -> Logistic:
    r"""Fit ``LogisticRegression()``: C = 1, unpenalised intercepts, at most 100 iterations of L-BFGS from zero.

    .. math:: \min_{W, b} \frac{1}{n} \sum_i -\log \mathrm{softmax}(W x_i + b)_{y_i} + \frac{1}{2 C n} \|W\|^2

    With two classes one binomial logit is fitted. A single class is always predicted. If 100 iterations do not suffice,
    the result is what they reached; this is part of published protocols. An infinite C means no penalty.

    >>> model = logistic_regression(np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array([0, 0, 7, 7]))
    >>> model.predict(np.array([[-5.0], [5.0]])).tolist()
    [0, 7]
    """
    classes, y = np.unique(labels, return_inverse=True)
    return _as_model(classes, _fit_path(codes, y, len(classes), np.array([C]), iterations=iterations)[0], C)


def logistic_regression_cv(
    codes: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], *, folds: int = 5
) -> Logistic:
    """Fit ``LogisticRegressionCV(Cs=10, cv=KFold(5))``: the best of 10 values of C from 1e-4 to 1e4.

    The folds are contiguous. In each fold the values of C are fitted in increasing order, each starting from the
    previous weights. The C with the highest accuracy, summed over folds, is then fitted to all rows, starting from the
    mean of the weights of the folds. If several values are equally good, the smallest is taken. If there are fewer rows
    than folds, each row is a fold. A single class is always predicted.

    >>> codes = np.array([[-2.0], [1.0], [-1.0], [2.0], [-3.0], [3.0]])
    >>> logistic_regression_cv(codes, np.array([0, 1, 0, 1, 0, 1])).predict(codes).tolist()
    [0, 1, 0, 1, 0, 1]
    """
    classes, y = np.unique(labels, return_inverse=True)
    paths, accuracies = [], []
    for test in np.array_split(np.arange(len(y)), min(folds, len(y))):
        train = np.ones(len(y), dtype=bool)
        train[test] = False
        paths.append(_fit_path(codes[train], y[train], len(classes), CS))
        accuracies.append([np.mean(_is_correct(_as_model(classes, w, 0.0), codes[test], y[test])) for w in paths[-1]])
    best = int(np.argmax(np.sum(accuracies, axis=0)))
    start = np.mean([weights[best] for weights in paths], axis=0)
    weights = _fit_path(codes, y, len(classes), CS[best : best + 1], start)[0]
    return _as_model(classes, weights, float(CS[best]))


def _is_correct(model: Logistic, codes: Float[np.ndarray, "n d"], y: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Return whether the highest score is that of class number y."""
    return np.asarray(model.scores(codes).argmax(axis=1) == y)


def _fit_path(
    codes: Float[np.ndarray, "n d"],
    y: Int[np.ndarray, " n"],
    k: int,
    Cs: Float[np.ndarray, " m"],
    start: Float[np.ndarray, "c e"] | None = None,
    iterations: int = ITERATIONS,
) -> Float[np.ndarray, "m c e"]:
    """Return weights and, in the last column, intercepts for each C: one row per class, or a single row for two."""
    from unbraid.metrics.linear.lbfgs import regularisation_path
    from unbraid.metrics.linear.softmax import as_blocks

    sums = np.zeros((k, codes.shape[1] + 1))
    np.add.at(sums, y, np.c_[codes, np.ones(len(codes))])
    sums = sums[1:] if k == 2 else sums
    begin = np.zeros(sums.size) if start is None else start.ravel()
    return np.asarray(
        regularisation_path(begin, as_blocks(codes), len(y), sums, Cs, k == 2, iterations).reshape(len(Cs), *sums.shape)
    )


def _as_model(classes: Int[np.ndarray, " k"], weights: Float[np.ndarray, "c e"], C: float) -> Logistic:
    rows = np.r_[np.zeros_like(weights), weights] if len(classes) == 2 else weights
    return Logistic(classes, rows[:, :-1], rows[:, -1], C)
