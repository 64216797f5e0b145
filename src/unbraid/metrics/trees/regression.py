"""Gradient-boosted trees that predict numbers. Our implementation and that of scikit-learn have the same interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Float32, Real

from unbraid.errors import UserError, unknown_name_message
from unbraid.metrics.arrays import as_codes, check_at_least, check_same_rows
from unbraid.metrics.trees.bins import Trees, as_columns, number_of_bins
from unbraid.metrics.trees.boosting import (
    LEARNING_RATE,
    as_float32,
    importances_from_gains,
    numba_threads,
    round_down,
)
from unbraid.metrics.trees.fit_cache import cached_fit

Predict: TypeAlias = Callable[[Float32[np.ndarray, "m d"]], Float[np.ndarray, " m"]]
RegressionFit: TypeAlias = tuple[Predict, Float[np.ndarray, " n"], Float[np.ndarray, "t d"]]


@dataclass(frozen=True)
class RegressionForest:
    """A fitted regression: its predictions for the training rows, and the gains of each tree."""

    train_predictions: Float[np.ndarray, " n"]
    gains: Float[np.ndarray, "t d"]  # reduction of the squared error by cuts in each column, one row per tree
    predict_rows: Predict

    def predict(self, codes: Real[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Return the prediction for each row.

        >>> forest = boosted_regression(np.array([[0.0], [1.0]]), np.array([2.0, 4.0]), stages=1)
        >>> forest.predict(np.array([[0.1], [9.0]])).round(6).tolist()
        [2.9, 3.1]
        """
        return self.predict_rows(as_float32(codes))

    def importances(self, kind: str = "mean") -> Float[np.ndarray, " d"]:
        """Return the importance of each column (see `Forest.importances`)."""
        return importances_from_gains(self.gains, kind)


def boosted_regression(
    codes: Real[np.ndarray, "n d"],
    values: Real[np.ndarray, " n"],
    *,
    seed: int = 0,
    stages: int = 100,
    trees: str = "fast",
) -> RegressionForest:
    """Fit gradient-boosted trees that minimise the squared error.

    Each stage grows one tree of depth 3, and the learning rate is 0.1. The definition is that of
    ``GradientBoostingRegressor()`` in scikit-learn. As in `boosted_trees`, ``trees="fast"`` finds the same cuts.

    Args:
        codes: Array of shape (n, d).
        values: Array of shape (n,), the numbers to predict. If all are equal, this number is always predicted, and all
            importances are 0.
        seed: Random seed that breaks ties between equally good cuts.
        stages: Number of boosting stages.
        trees: "fast" for our implementation, or "sklearn" for that of scikit-learn.

    Returns:
        The fitted regression.

    Raises:
        UserError: If the codes are not a finite 2-d array that fits into float32, if the lengths differ, or if an
            option is invalid.

    Example:
        >>> codes = np.arange(6.0)[:, None]
        >>> boosted_regression(codes, np.array([3.0, 3, 9, 9, 3, 3])).train_predictions.round(3).tolist()
        [3.0, 3.0, 9.0, 9.0, 3.0, 3.0]
    """
    check_at_least(1, stages=stages)
    if trees not in REGRESSION_FITS:
        raise UserError(unknown_name_message("trees", trees, REGRESSION_FITS))
    table = as_float32(as_codes(codes))
    check_same_rows(table, values[:, None])
    y = np.asarray(values, np.float64)
    return cached_fit(lambda: _fit(table, y, seed, stages, trees), table, y, seed, stages, trees, "regression")


def _fit(
    codes: Float32[np.ndarray, "n d"], values: Float[np.ndarray, " n"], seed: int, stages: int, trees: str
) -> RegressionForest:
    """Fit to the standardised values, because a node is cut only if its variance exceeds an absolute constant."""
    centre, spread = float(values.mean()), float(values.std())
    if np.ptp(values) == 0 or spread == 0:
        return RegressionForest(
            values, np.zeros((0, codes.shape[1])), lambda rows: np.full(len(rows), values[0], np.float64)
        )
    predict, train, gains = REGRESSION_FITS[trees](codes, (values - centre) / spread, seed, stages)
    return RegressionForest(centre + spread * train, gains, lambda rows: centre + spread * predict(rows))


def _fit_fast(codes: Float32[np.ndarray, "n d"], y: Float[np.ndarray, " n"], seed: int, stages: int) -> RegressionFit:
    """Fit with our implementation."""
    from unbraid.metrics.trees.regression_stages import fit_regression_stages

    (n, d), raw = codes.shape, np.zeros(len(codes))
    features, thresholds = np.zeros((stages, 1, 7), np.int32), np.full((stages, 1, 7), np.inf)
    trees = Trees(features, thresholds, np.zeros((stages, 1, 8)), np.zeros((stages, 1, d)))
    columns = as_columns(codes, number_of_bins(n))
    fit_regression_stages(columns, y, raw, LEARNING_RATE, np.uint64(seed % 2**64), trees)
    bound = round_down(trees.threshold)

    def predict(rows: Float32[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        from unbraid.metrics.trees.stages import add_forest

        scores = np.zeros((1, len(rows)))
        with numba_threads(scores.size):
            add_forest(np.ascontiguousarray(rows.T), trees.feature, bound, trees.value, scores)
        return np.asarray(scores[0])

    return predict, raw, trees.importance[:, 0]


def _fit_sklearn(
    codes: Float32[np.ndarray, "n d"], y: Float[np.ndarray, " n"], seed: int, stages: int
) -> RegressionFit:
    """Fit with the implementation of scikit-learn."""
    from sklearn.ensemble import GradientBoostingRegressor

    model = GradientBoostingRegressor(n_estimators=stages, random_state=seed).fit(codes, y)
    gains = [tree.tree_.compute_feature_importances(normalize=False) for tree in model.estimators_.ravel()]
    return model.predict, model.predict(codes), np.array(gains)


REGRESSION_FITS: dict[str, Callable[..., RegressionFit]] = {"fast": _fit_fast, "sklearn": _fit_sklearn}
