"""Searches of scikit-learn that train the candidates of each fold together, in stacks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from numbers import Integral
from typing import Any

from sklearn import model_selection
from sklearn.base import clone, is_classifier
from sklearn.model_selection import ParameterGrid, ParameterSampler, check_cv
from sklearn.utils import _safe_indexing

from unbraid.errors import UserError
from unbraid.sklearn.estimator import VAE
from unbraid.sklearn.jobs import Recorded, TrainingJob, recorded_jobs, train_together, trained_runs

Candidate = dict[str, Any]


class StackedSearch:
    """What `GridSearchCV` and `RandomizedSearchCV` add to the classes of scikit-learn."""

    estimator: Any
    cv: Any
    n_jobs: int | None

    def candidates(self) -> list[Candidate]:
        """Return the parameters of all candidates."""
        raise NotImplementedError(f"{type(self).__name__} must define candidates().")

    def fit(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Search. The arguments and the result are those of scikit-learn.

        Args:
            X: Examples, (n, d).
            y: The target of the estimator, or the factors that `metric_scorer` needs.
            params: Further arguments of scikit-learn, such as `groups`.

        Returns:
            The search.

        Raises:
            UserError: If `n_jobs` is neither None nor 1, or if a random state is not an integer.
        """
        if self.n_jobs not in (None, 1):
            raise UserError(
                "A stacked search trains in this process, on several threads. Got n_jobs="
                f"{self.n_jobs}. Leave n_jobs out, or use sklearn.model_selection to train each candidate by itself."
            )
        splitter, candidates = self.cv, self.candidates()
        splits = list(check_cv(splitter, y, classifier=is_classifier(self.estimator)).split(X, y, params.get("groups")))
        jobs = [
            job
            for train, _ in splits
            for job in record_jobs(self.estimator, candidates, _rows(X, train), _rows(y, train))
        ]
        self.cv = splits  # reuse these folds, because a splitter that shuffles could draw others in the second pass
        try:
            with trained_runs(train_together(jobs)):
                return super().fit(X, y, **params)  # type: ignore[misc]
        finally:
            self.cv = splitter


class GridSearchCV(StackedSearch, model_selection.GridSearchCV):
    """`sklearn.model_selection.GridSearchCV` whose candidates are trained together.

    The candidates of one fold have the same training data. Candidates that differ only in hyperparameters such as
    `method__beta`, in the learning rate or in the seed form one stack. Training a stack is faster than training its
    candidates one after another. Candidates with different numbers of latents, steps or examples per batch form
    separate stacks. The scores are the same as those of scikit-learn's class up to rounding.

    The estimator is a `VAE`, or contains one, as a pipeline does. Every candidate is fitted in two passes: the first
    collects the runs to train, and the second is the search of scikit-learn. The steps of a pipeline before the `VAE`
    are therefore fitted twice, and `random_state` of the `VAE` must be an integer, so that both passes refer to the
    same run. `fit_time` in `cv_results_` does not include the training. All arguments are those of scikit-learn, but
    `n_jobs` must be None or 1.

    >>> import numpy as np
    >>> from unbraid.sklearn import VAE
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> grid = {"method__beta": [1.0, 4.0], "learning_rate": [1e-4, 1e-3]}
    >>> search = GridSearchCV(VAE("beta_vae", steps=10, random_state=0), grid, cv=2).fit(X)
    >>> len(search.cv_results_["params"]), sorted(search.best_params_)
    (4, ['learning_rate', 'method__beta'])
    """

    def candidates(self) -> list[Candidate]:
        """Return the parameters of all candidates."""
        return list(ParameterGrid(self.param_grid))


class RandomizedSearchCV(StackedSearch, model_selection.RandomizedSearchCV):
    """`sklearn.model_selection.RandomizedSearchCV` whose candidates are trained together (see `GridSearchCV`).

    The `random_state` of the search must be an integer too.
    """

    def candidates(self) -> list[Candidate]:
        """Return the parameters of all candidates."""
        if not isinstance(self.random_state, Integral):
            raise UserError(
                "A stacked search needs an integer random_state, such as random_state=0. Got "
                f"{self.random_state!r} instead."
            )
        return list(ParameterSampler(self.param_distributions, self.n_iter, random_state=self.random_state))


def record_jobs(estimator: Any, candidates: Iterable[Candidate], X: Any, y: Any) -> list[TrainingJob]:
    """Return what the estimator would train with each of the candidate parameters.

    Candidates whose parameters or data are invalid are left out. When scikit-learn fits them in the second pass, the
    same error occurs again, and scikit-learn handles it according to `error_score`.
    """
    with recorded_jobs() as jobs:
        for parameters in candidates:
            candidate = clone(estimator).set_params(**clone(parameters, safe=False))
            _require_integer_seed(candidate)
            with contextlib.suppress(Recorded, Exception):
                candidate.fit(X) if y is None else candidate.fit(X, y)
    return jobs


def _require_integer_seed(candidate: Any) -> None:
    """Raise a UserError if a `VAE` in an estimator draws its seed at random."""
    parts = [candidate, *candidate.get_params(deep=True).values()]
    for part in parts:
        if isinstance(part, VAE) and not isinstance(part.random_state, Integral):
            raise UserError(
                "A stacked search needs a VAE with an integer random_state, such as random_state=0. Got "
                f"{part.random_state!r} instead."
            )


def _rows(table: Any, index: Any) -> Any:
    return None if table is None else _safe_indexing(table, index)
