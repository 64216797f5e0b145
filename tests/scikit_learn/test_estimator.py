"""The estimator: scikit-learn's own checks, pipelines, parameters, images, scores and errors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import unbraid as ub
from unbraid.sklearn import VAE, metric_scorer

Array = np.ndarray[Any, np.dtype[Any]]


@parametrize_with_checks([VAE(steps=5)])
def test_scikit_learn_checks(estimator: VAE, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def blobs() -> tuple[Array, Array]:
    """Points around two centres, and which centre each belongs to."""
    generator = np.random.default_rng(0)
    y = generator.integers(2, size=200)
    return generator.normal(size=(200, 6)) + 4 * y[:, None], y


def test_fit_is_the_training_of_unbraid(blobs: tuple[Array, Array]) -> None:
    X, _ = blobs
    vae = VAE(ub.methods.BetaVAE(beta=2.0), latents=3, steps=40, learning_rate=1e-3, random_state=7).fit(X)
    (run,) = ub.train(ub.methods.BetaVAE(beta=2.0), X, latents=3, steps=40, learning_rate=1e-3, seeds=[7], quiet=True)
    assert vae.run_.id == run.id
    np.testing.assert_allclose(vae.transform(X), run.encode(X).numpy(), atol=1e-5)
    np.testing.assert_array_equal(vae.transform(X.astype(np.float32)), run.encode(X).numpy())
    np.testing.assert_allclose(vae.inverse_transform(vae.transform(X)), run.decode(run.encode(X)).numpy(), atol=1e-5)


def test_score_is_the_mean_elbo_and_prefers_the_better_model(blobs: tuple[Array, Array]) -> None:
    X, _ = blobs
    short, long = (VAE(steps=steps, random_state=0).fit(X[:150]) for steps in (1, 150))
    bound = ub.likelihood_bounds(long.run_, ub.data.from_arrays(X[150:]), samples=10, quiet=True)["elbo"]
    assert long.score(X[150:]) == pytest.approx(bound)
    assert long.score(X[150:]) > short.score(X[150:]) + 2


def test_pipeline_with_a_classifier(blobs: tuple[Array, Array]) -> None:
    model = make_pipeline(StandardScaler(), VAE(latents=2, steps=60, random_state=0), LogisticRegression())
    assert cross_val_score(model, *blobs, cv=3).mean() > 0.95


def test_settings_of_the_method_are_parameters() -> None:
    vae = VAE("beta_vae").set_params(method__beta=3.0, latents=4)
    assert (vae.method, vae.latents) == (ub.methods.BetaVAE(beta=3.0), 4)
    assert vae.get_params()["method__beta"] == 3.0
    assert "method__beta" not in vae.get_params(deep=False)
    assert clone(vae).method == vae.method
    pipeline = make_pipeline(StandardScaler(), VAE()).set_params(vae__method="factor_vae", vae__method__gamma=9.0)
    assert pipeline[-1].method == ub.methods.FactorVAE(gamma=9.0)
    with pytest.raises(ub.UserError, match=r"Unknown setting of VAE 'beta'\. Choose from: warmup"):
        VAE().set_params(method__beta=1.0)
    with pytest.raises(ValueError, match="Invalid parameter 'betas'"):
        VAE().set_params(betas=1.0)


def test_images() -> None:
    data = ub.data.load("sprites")
    images = data.images(range(40)).numpy()
    X = images.reshape(40, -1) / 255
    vae = VAE(shape=data.shape, steps=3, latents=4, batch=8, random_state=0).fit(X)
    assert vae.run_.spec.net == "locatello"
    assert vae.run_.spec.likelihood == "bernoulli"
    np.testing.assert_allclose(vae.transform(X), vae.run_.encode(images).numpy(), atol=1e-5)
    decoded = vae.inverse_transform(vae.transform(X))
    assert decoded.shape == X.shape
    assert (decoded >= 0).all()
    assert (decoded <= 1).all()
    assert np.isfinite(vae.score(X))
    with pytest.raises(ub.UserError, match=r"must be \(h, w\) or \(c, h, w\) with 1024 values"):
        VAE(shape=(8, 8)).fit(X)


def test_data_frames_keep_their_names_and_codes_have_names(blobs: tuple[Array, Array]) -> None:
    frame = pd.DataFrame(blobs[0], columns=list("abcdef"))
    vae = VAE(latents=2, steps=2).set_output(transform="pandas").fit(frame)
    assert list(vae.feature_names_in_) == list("abcdef")
    assert list(vae.transform(frame).columns) == ["vae0", "vae1"]
    with pytest.raises(ValueError, match="feature names should match"):
        vae.transform(frame.rename(columns={"a": "z"}))


def test_pickle_does_not_contain_the_training_data() -> None:
    X = np.random.default_rng(0).normal(size=(100_000, 3))
    vae = VAE(latents=2, steps=1, random_state=0).fit(X)
    stored = pickle.dumps(vae)
    assert len(stored) < X.astype(np.float32).nbytes
    np.testing.assert_array_equal(pickle.loads(stored).transform(X[:9]), vae.transform(X[:9]))


def test_the_run_knows_its_data(tmp_path: Path) -> None:
    data = ub.data.load("toy")
    X, factors = data.images(slice(None)).numpy(), data.factors(slice(None)).numpy()
    vae = VAE(steps=3, random_state=0).fit(X, factors)
    [row] = ub.score(vae.run_, "mig", quiet=True)
    [same] = ub.score(vae.run_, "mig", data=(X, factors), quiet=True)
    assert row["mig.discrete_mig"] == same["mig.discrete_mig"]
    assert ub.report(vae.run_, tmp_path / "report.html", metrics="mig", quiet=True).exists()
    loaded = pickle.loads(pickle.dumps(vae))
    with pytest.raises(ub.UserError, match="pass these data with the argument data="):
        ub.score(loaded.run_, "mig", quiet=True)
    assert ub.score(loaded.run_, "mig", data=(X, factors), quiet=True) == [same]
    assert VAE(steps=1).fit(X).run_.data is not None
    assert VAE(steps=1).fit(X, [object()] * len(X)).run_.data is not None  # not labels, and ignored


def test_random_states(blobs: tuple[Array, Array]) -> None:
    X, _ = blobs
    seeds = [VAE(steps=1, random_state=np.random.RandomState(3)).fit(X).run_.spec.seed for _ in range(2)]
    assert seeds[0] == seeds[1]
    assert VAE(steps=1).fit(X).run_.spec.seed != VAE(steps=1).fit(X).run_.spec.seed


def test_metric_scorer_is_the_score_of_unbraid() -> None:
    data = ub.data.load("toy")
    X, factors = data.images(slice(None)).numpy(), data.factors(slice(None)).numpy()
    vae = VAE(steps=50, random_state=0).fit(X)
    for metric, key, sign in [("mig", "discrete_mig", 1), ("unsupervised", "gaussian_total_correlation", -1)]:
        [row] = ub.score(codes=vae.transform(X), factors=factors, metrics=metric, quiet=True)
        assert metric_scorer(metric)(vae, X, factors) == sign * row[f"{metric}.{key}"]
    with pytest.raises(ub.UserError, match="Did you mean 'mig'"):
        metric_scorer("migg")


def test_errors(blobs: tuple[Array, Array]) -> None:
    X, _ = blobs
    with pytest.raises(ub.UserError, match="Unknown method 'beta_va'"):
        VAE("beta_va").fit(X)
    with pytest.raises(ub.UserError, match="Bounds on the likelihood need"):
        VAE("ae", steps=1).fit(X).score(X)
    with pytest.raises(ub.UserError, match="diverged at step"):
        VAE(steps=300, learning_rate=1e30).fit(X)
    with pytest.raises(ub.UserError, match=r"takes 10 latents\. Got 3 columns"):
        VAE(steps=1).fit(X).inverse_transform(X[:, :3])
    with pytest.raises(ub.UserError, match="full grid"):
        VAE("ada_gvae").fit(X)
    with pytest.raises(ub.UserError, match=r"'shape' must be \(h, w\)"):
        VAE(shape=6).fit(X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        VAE(steps=1).fit(X, np.zeros(len(X) - 1))


def test_an_unknown_argument_says_where_settings_of_the_method_belong() -> None:
    message = r"^VAE has no argument 'beta'\. Settings of the method belong to the method.*Its arguments are: method, "
    with pytest.raises(ub.UserError, match=message):
        VAE("beta_vae", beta=4.0)  # type: ignore[call-arg]
    with pytest.raises(ub.UserError, match="Did you mean 'latents'"):
        VAE(latent_dim=4)  # type: ignore[call-arg]
    with pytest.raises(ub.UserError, match="Did you mean 'random_state'"):
        VAE(seed=4)  # type: ignore[call-arg]
