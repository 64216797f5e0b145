"""Metrics of disentanglement as `scoring` functions of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unbraid.metrics import TRAITS, headline
from unbraid.metrics.protocol import Protocol, resolve_metric_names
from unbraid.scoring.arrays import score_arrays

Scorer = Callable[[Any, Any, Any], float]


def metric_scorer(
    metric: str, *, continuous: str | list[str] | None = None, protocol: Protocol | None = None
) -> Scorer:
    """Make a function that scores the codes of an estimator with a metric, for the argument `scoring` of searches.

    Args:
        metric: The name of a metric in `unbraid.metrics.METRICS`. Its headline score is used. If lower values of this
            score are better, its sign is changed, because scikit-learn maximises scores.
        continuous: Names of continuous factors (see `unbraid.score`).
        protocol: Defines which rows the metric uses. The default is that of `unbraid.score`.

    Returns:
        A function ``(estimator, X, y) -> float``. It computes ``estimator.transform(X)`` and takes the factors of the
        examples from y, (n, k).

    Raises:
        UserError: If there is no such metric.

    >>> import unbraid as ub
    >>> data = ub.data.load("toy")
    >>> X, factors = data.images(slice(None)).numpy(), data.factors(slice(None)).numpy()
    >>> vae = ub.sklearn.VAE(steps=10, random_state=0).fit(X)
    >>> 0 <= metric_scorer("mig")(vae, X, factors) <= 1
    True
    """
    (name,) = resolve_metric_names(metric)
    column, sign = headline(name), -1.0 if TRAITS[name].low_is_good else 1.0

    def score(estimator: Any, X: Any, y: Any) -> float:
        row, _ = score_arrays(
            estimator.transform(X), y, [name], continuous=continuous, protocol=protocol or Protocol(), quiet=True
        )
        return sign * float(row[column])

    return score
