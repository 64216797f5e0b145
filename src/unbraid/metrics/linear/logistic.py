"""Logistic regression with the same results as scikit-learn's defaults, and its cross-validated form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

ITERATIONS = 100
# Cross-validation computes in float32 from this number of rows on, because smaller fits take little time anyway, and up
# to this size of codes.
REDUCED_ROWS, LARGEST_CODE = 1000, 1000.0
CS = np.logspace(-4, 4, 10)  # inverse regularisation strengths from which cross-validation selects


@dataclass(frozen=True)
class Logistic:
    """A fitted classifier: the softmax of one linear score per class. With two classes, the first has the score 0."""

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
        """Return the most probable class. If several are equally probable, return the first of them."""
        return np.asarray(self.classes[self.scores(codes).argmax(axis=1)])


def logistic_regression(
    codes: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], *, C: float = 1.0, iterations: int = ITERATIONS
) -> Logistic:
    r"""Fit a logistic regression that equals scikit-learn's ``LogisticRegression(C=C, max_iter=iterations)``.

    .. math:: \min_{W, b} \frac{1}{n} \sum_i -\log \mathrm{softmax}(W x_i + b)_{y_i} + \frac{1}{2 C n} \|W\|^2

    L-BFGS starts from zero weights, and intercepts are not penalised. If it does not converge in `iterations`
    iterations, the weights of the last iteration are returned, because published protocols include this early stop. An
    infinite C means no penalty. With two classes, one binomial logit is fitted. If there is only one class, it is
    always predicted.

    >>> model = logistic_regression(np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array([0, 0, 7, 7]))
    >>> model.predict(np.array([[-5.0], [5.0]])).tolist()
    [0, 7]
    """
    classes, y = np.unique(labels, return_inverse=True)
    problem = _Problem.of(codes, y, len(classes))
    return _as_model(classes, problem.minimise(C, problem.zero_weights(), iterations), C)


def logistic_regression_cv(
    codes: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], *, folds: int = 5
) -> Logistic:
    """Fit a logistic regression that equals scikit-learn's ``LogisticRegressionCV(Cs=10, cv=KFold(5))``.

    The best of 10 values of C from 1e-4 to 1e4 is selected by cross-validation. The folds are contiguous. In each fold
    one model per value of C is fitted, in increasing order of C, and each fit starts from the weights of the previous
    one. The C with the highest accuracy, summed over folds, is then used for a fit to all rows. This fit starts from
    the mean of the weights of the folds. If several values of C are equally good, the smallest of them is used. Values
    of C above one with which all predictions are correct are therefore not tried. If there are fewer rows than folds,
    each row is a fold. If there is only one class, it is always predicted.

    From 1,000 rows on, the fits of the folds are computed in float32 if all codes are float32 numbers of at most 1,000
    in size. They only select C and the start of the last fit, which is computed in float64. Fits that stop after 100
    iterations amplify any rounding: accuracies change by up to 0.05 if the last bits of the codes change. The changes
    by float32 are not larger (`benchmarks/bench_float32_folds.py`).

    >>> codes = np.array([[-2.0], [1.0], [-1.0], [2.0], [-3.0], [3.0]])
    >>> logistic_regression_cv(codes, np.array([0, 1, 0, 1, 0, 1])).predict(codes).tolist()
    [0, 1, 0, 1, 0, 1]
    """
    classes, y = np.unique(labels, return_inverse=True)
    held_out = np.array_split(np.arange(len(y)), min(folds, len(y)))
    dtype = _precision_of_folds(codes)
    fits = [_Problem.of(np.delete(codes, rows, 0), np.delete(y, rows), len(classes), dtype) for rows in held_out]
    weights = [fit.zero_weights() for fit in fits]
    best, most, start = 0.0, -1.0, weights[0]
    for C in CS:
        weights = [fit.minimise(C, begin) for fit, begin in zip(fits, weights, strict=True)]
        models = [_as_model(classes, w, C) for w in weights]
        accuracy = sum(_accuracy(model, codes[rows], y[rows]) for model, rows in zip(models, held_out, strict=True))
        if accuracy > most:
            best, most, start = float(C), accuracy, np.mean(weights, axis=0)
        if accuracy == len(fits):
            break
    return _as_model(classes, _Problem.of(codes, y, len(classes)).minimise(best, start), best)


def _precision_of_folds(codes: Float[np.ndarray, "n d"]) -> type:
    """Return float32 if it is enough for fits that only select C, and float64 otherwise."""
    if len(codes) < REDUCED_ROWS or np.abs(codes).max(initial=0) > LARGEST_CODE:
        return np.float64
    return np.float32 if np.array_equal(codes, codes.astype(np.float32)) else np.float64


def _accuracy(model: Logistic, codes: Float[np.ndarray, "n d"], y: Int[np.ndarray, " n"]) -> float:
    """Return the share of rows for which the class with the highest score is class number y."""
    return float(np.mean(model.scores(codes).argmax(axis=1) == y))


@dataclass(frozen=True)
class _Problem:
    """The data of a fit, in the form that the compiled solver reads."""

    blocks: Float[np.ndarray, "b e rows"]
    rows: int
    sums: Float[np.ndarray, "c e"]  # sums of codes and ones over the rows of each class
    zero: bool  # whether there is one more class, whose score is always 0

    @classmethod
    def of(
        cls, codes: Float[np.ndarray, "n d"], y: Int[np.ndarray, " n"], k: int, dtype: type = np.float64
    ) -> _Problem:
        """Return the problem of predicting y, one of k classes. With two classes, the first has the score 0.

        `dtype` is the precision of the loss and its gradient.
        """
        from unbraid.metrics.linear.softmax import as_blocks

        sums = np.zeros((k, codes.shape[1] + 1))
        np.add.at(sums, y, np.c_[codes, np.ones(len(codes))])
        return cls(as_blocks(codes, dtype), len(y), sums[1:] if k == 2 else sums, k == 2)

    def zero_weights(self) -> Float[np.ndarray, "c e"]:
        """Return weights of 0, from which scikit-learn starts."""
        return np.zeros_like(self.sums)

    def minimise(
        self, C: float, start: Float[np.ndarray, "c e"], iterations: int = ITERATIONS
    ) -> Float[np.ndarray, "c e"]:
        """Return the weights, with the intercepts in the last column. The solver starts from the weights `start`.

        There is one row of weights per class. With two classes, there is a single row, for the second class.
        """
        from unbraid.metrics.linear.lbfgs import minimise

        weights = start.flatten()
        minimise(weights, (self.blocks, self.rows, self.sums, 1 / (C * self.rows), self.zero), iterations)
        return weights.reshape(start.shape)


def _as_model(classes: Int[np.ndarray, " k"], weights: Float[np.ndarray, "c e"], C: float) -> Logistic:
    """Return the classifier with the given weights. With two classes, add a row of zeros for the first class."""
    rows = np.r_[np.zeros_like(weights), weights] if len(classes) == 2 else weights
    return Logistic(classes, rows[:, :-1], rows[:, -1], C)
