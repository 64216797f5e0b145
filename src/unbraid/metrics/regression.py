"""How well predictions agree with the labels of a discrete or a continuous factor."""

from __future__ import annotations

import numpy as np
from jaxtyping import Real

from unbraid.metrics.labels import Column


def prediction_score(predictions: Real[np.ndarray, " n"], column: Column) -> float:
    """Return the accuracy for a discrete factor, or the coefficient of determination for a continuous one."""
    if column.continuous:
        return explained_variance(predictions, column.values)
    return float(np.mean(predictions == column.values))


def explained_variance(predictions: Real[np.ndarray, " n"], values: Real[np.ndarray, " n"]) -> float:
    r"""Return the coefficient of determination, limited to [0, 1].

    .. math:: R^2 = \max \left( 0, 1 - \frac{\sum_i (\hat y_i - y_i)^2}{\sum_i (y_i - \bar y)^2} \right)

    0 means that the predictions are no better than the mean of the labels. 1 means that they are exact. If all labels
    are equal, the result is 0.

    >>> explained_variance(np.array([1.0, 2.0]), np.array([1.0, 2.0])), explained_variance(np.zeros(2), np.arange(2))
    (1.0, 0.0)
    """
    total = float(np.sum((values - values.mean()) ** 2))
    return max(0.0, 1 - float(np.sum((predictions - values) ** 2)) / total) if total > 0 else 0.0


def concordance(predictions: Real[np.ndarray, " n"], values: Real[np.ndarray, " n"]) -> float:
    r"""Return the probability that two rows with different labels have predictions in the same order as their labels.

    .. math:: P(\hat y > \hat y' \mid y > y') + \tfrac12 P(\hat y = \hat y' \mid y > y')

    Random predictions score 0.5. If there are only two labels, this is the area under the ROC curve. If all labels are
    equal, the result is NaN.

    >>> concordance(np.array([0.1, 0.4, 0.4, 0.8]), np.array([0, 0, 1, 1]))
    0.875
    """
    from scipy.stats import kendalltau

    pairs = len(values) * (len(values) - 1) / 2
    ordered, ordered_predictions = (pairs - _tied_pairs(x) for x in (values, predictions))
    if not ordered or not ordered_predictions:
        return 0.5 if ordered else float("nan")
    # Kendall's tau-b is the number of concordant minus discordant pairs, divided by the square root below.
    difference = kendalltau(predictions, values).statistic * np.sqrt(ordered * ordered_predictions)
    return float(np.clip((1 + difference / ordered) / 2, 0.0, 1.0))


def _tied_pairs(x: Real[np.ndarray, " n"]) -> float:
    """Return the number of pairs of equal entries."""
    counts = np.unique(x, return_counts=True)[1].astype(np.float64)
    return float(np.sum(counts * (counts - 1) / 2))
