"""Searches whose candidates are trained together: equal to scikit-learn's own, but in few calls of the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import model_selection
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unbraid as ub
from unbraid.sklearn import VAE, GridSearchCV, RandomizedSearchCV, jobs, metric_scorer

Array = np.ndarray[Any, np.dtype[Any]]
GRID = {"vae__method__beta": [0.5, 4.0], "vae__learning_rate": [1e-3, 1e-2]}


@pytest.fixture(scope="module")
def toy() -> tuple[Array, Array]:
    data = ub.data.load("toy")
    index = np.random.default_rng(0).permutation(len(data))[:300]
    return data.images(index).numpy(), data.factors(index).numpy()


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of runs of each call of the engine."""
    sizes: list[int] = []
    real = jobs.train_specs

    def count(specs: Any, *arguments: Any, **options: Any) -> Any:
        sizes.append(len(specs))
        return real(specs, *arguments, **options)

    monkeypatch.setattr(jobs, "train_specs", count)
    return sizes


def pipeline(**settings: Any) -> Any:
    return make_pipeline(StandardScaler(), VAE("beta_vae", steps=20, latents=4, **{"random_state": 0, **settings}))


def test_results_are_those_of_scikit_learn(toy: tuple[Array, Array], trainings: list[int]) -> None:
    plain = model_selection.GridSearchCV(pipeline(), GRID, cv=2).fit(toy[0])
    assert trainings == [1] * (2 * 4 + 1)
    trainings.clear()
    stacked = GridSearchCV(pipeline(), GRID, cv=2).fit(toy[0])
    assert trainings == [4, 4, 1]  # the candidates of each fold together, and the best one again on all rows
    assert stacked.best_params_ == plain.best_params_
    assert stacked.cv_results_["params"] == plain.cv_results_["params"]
    for fold in range(2):
        column = f"split{fold}_test_score"
        np.testing.assert_allclose(stacked.cv_results_[column], plain.cv_results_[column], rtol=1e-4)
    np.testing.assert_allclose(stacked.transform(toy[0]), plain.transform(toy[0]), atol=1e-4)


def test_shuffled_folds_and_scoring_by_a_metric(toy: tuple[Array, Array], trainings: list[int]) -> None:
    """The folds are drawn once, although the splitter would draw others the next time."""
    search = GridSearchCV(pipeline(), GRID, cv=KFold(2, shuffle=True), scoring=metric_scorer("mig"))
    search.fit(*toy)
    assert trainings == [4, 4, 1]
    assert ((search.cv_results_["mean_test_score"] >= 0) & (search.cv_results_["mean_test_score"] <= 1)).all()


def test_a_classifier_after_the_vae(toy: tuple[Array, Array], trainings: list[int]) -> None:
    X, factors = toy
    model = make_pipeline(*[step for _, step in pipeline().steps], LogisticRegression())
    grid = {"vae__method__beta": [0.1, 1.0], "logisticregression__C": [0.1, 1.0]}
    search = GridSearchCV(model, grid, cv=2).fit(X, factors[:, 0])
    assert trainings == [2, 2, 1]  # candidates that differ in the classifier alone share a run
    plain = model_selection.GridSearchCV(model, grid, cv=2).fit(X, factors[:, 0])
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"], atol=0.02)


def test_randomised_search(toy: tuple[Array, Array], trainings: list[int]) -> None:
    search = RandomizedSearchCV(pipeline(), GRID, n_iter=3, random_state=1, cv=2).fit(toy[0])
    assert trainings == [3, 3, 1]
    assert len(search.cv_results_["params"]) == 3


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_a_candidate_that_fails_does_not_harm_the_others(toy: tuple[Array, Array], trainings: list[int]) -> None:
    grid = {"vae__latents": [2, -1], "vae__learning_rate": [1e-3, 1e30]}
    with pytest.warns(FitFailedWarning, match="'latents' parameter of RunSpec must be finite and >= 1") as warned:
        search = GridSearchCV(pipeline(), grid, cv=2).fit(toy[0])
    assert "diverged at step" in str(warned[0].message)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).tolist() == [True, False, False, False]
    assert trainings == [2, 2, 1]


def test_the_seed_must_be_fixed_and_there_is_one_process(toy: tuple[Array, Array]) -> None:
    with pytest.raises(ub.UserError, match=r"integer random_state, such as random_state=0\. Got None"):
        GridSearchCV(pipeline(random_state=None), GRID).fit(toy[0])
    with pytest.raises(ub.UserError, match=r"integer random_state, such as random_state=0\. Got None"):
        RandomizedSearchCV(pipeline(), GRID).fit(toy[0])
    with pytest.raises(ub.UserError, match="Leave n_jobs out"):
        GridSearchCV(pipeline(), GRID, n_jobs=2).fit(toy[0])


def test_seeds_may_be_integers_of_numpy(toy: tuple[Array, Array]) -> None:
    search = GridSearchCV(VAE(steps=1), {"random_state": np.arange(2)}, cv=2).fit(toy[0])
    assert len(search.cv_results_["params"]) == 2


def test_nothing_is_kept_after_the_search(toy: tuple[Array, Array], trainings: list[int]) -> None:
    search = GridSearchCV(pipeline(), GRID, cv=2, refit=False).fit(toy[0])
    trainings.clear()
    pipeline().fit(toy[0])
    assert trainings == [1]
    assert search.cv == 2
