"""Linear regression with a squared penalty, and its cross-validated form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Real

ALPHAS = np.logspace(-4, 4, 10)  # penalties from which cross-validation selects


@dataclass(frozen=True)
class Ridge:
    """A fitted linear regression on standardised codes."""

    centre: Float[np.ndarray, " d"]
    spread: Float[np.ndarray, " d"]
    weights: Float[np.ndarray, " d"]
    intercept: float
    alpha: float

    def predict(self, codes: Real[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Return the prediction for each row."""
        return np.asarray((codes - self.centre) / self.spread @ self.weights + self.intercept)


def ridge_regression(codes: Real[np.ndarray, "n d"], values: Real[np.ndarray, " n"], *, alpha: float = 1e-6) -> Ridge:
    r"""Fit a linear regression to standardised codes.

    .. math:: \min_{w, b} \sum_i (w \cdot x_i + b - y_i)^2 + \alpha \|w\|^2

    :math:`x_i` are the standardised codes of row i, and :math:`y_i` is its value. Constant columns have weight 0. The
    default penalty is very small. Its only purpose is to make the solution unique if codes are collinear.

    >>> ridge_regression(np.array([[0.0], [2.0]]), np.array([1.0, 5.0])).predict(np.array([[4.0]])).round(4).tolist()
    [9.0]
    """
    varies = np.ptp(codes, axis=0) > 0
    centre = np.where(varies, codes.mean(axis=0), codes[0])
    spread = np.where(varies & (codes.std(axis=0) > 0), codes.std(axis=0), 1.0)
    x = np.where(varies, (codes - centre) / spread, 0.0)
    mean = float(values.mean())
    weights = np.linalg.solve(x.T @ x + alpha * np.eye(x.shape[1]), x.T @ (values - mean))
    return Ridge(centre, spread, np.where(varies, weights, 0.0), mean, alpha)


def ridge_regression_cv(codes: Real[np.ndarray, "n d"], values: Real[np.ndarray, " n"], *, folds: int = 5) -> Ridge:
    """Fit a linear regression whose penalty is selected by cross-validation.

    The penalty with the smallest squared error, summed over the folds, is selected from 10 values between 1e-4 and 1e4.
    Row i is in fold i mod `folds`.

    >>> x = np.arange(20.0)[:, None]
    >>> ridge_regression_cv(x, 3 * x[:, 0]).alpha
    0.0001
    """
    fold = np.arange(len(codes)) % min(folds, len(codes))
    errors = np.zeros(len(ALPHAS))
    for f in range(int(fold.max()) + 1):
        train, test = fold != f, fold == f
        for a, alpha in enumerate(ALPHAS):
            model = ridge_regression(codes[train], values[train], alpha=float(alpha))
            errors[a] += np.sum((model.predict(codes[test]) - values[test]) ** 2)
    return ridge_regression(codes, values, alpha=float(ALPHAS[errors.argmin()]))
