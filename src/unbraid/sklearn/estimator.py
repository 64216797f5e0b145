"""The estimator: a method of unbraid with the interface of scikit-learn."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from unbraid.accel.devices import check_device
from unbraid.data.own.arrays import OwnData, from_arrays
from unbraid.data.own.examples import network_input
from unbraid.errors import UserError, unknown_name_message
from unbraid.label_kinds import without_announcements
from unbraid.methods import Method
from unbraid.nets.vae import Pair, PairBuilder
from unbraid.runs.run import CHUNK, Run, posterior_codes
from unbraid.runs.spec import as_methods
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.scoring.likelihood import likelihood_bounds
from unbraid.sklearn.jobs import TrainingJob, train_job
from unbraid.training.train import RunDefaults

SCORE_SAMPLES = 10  # posterior samples per example
PREFIX = "method__"
FLOATS = (np.float64, np.float32)


class VAE(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A method of unbraid as a scikit-learn transformer. `transform` returns codes.

    Training takes a fixed number of steps. Standardise vectors first, for example with `StandardScaler`, because the
    default likelihood is a Gaussian of variance 1.

    Settings of the method are parameters with the prefix ``method__``, such as ``method__beta``. `set_params`,
    `get_params` and searches accept them.

    Args:
        method: The method: a name such as "beta_vae", a class, or an instance such as ``BetaVAE(beta=4.0)``.
        latents: The number of latent dimensions.
        steps: The number of training steps.
        batch: The number of examples per step. The examples are drawn with replacement.
        learning_rate: The learning rate of Adam. None means the default of the method, which is 1e-4 for most methods.
        net: The network, as in `unbraid.train`. Default: `locatello` for images and `mlp` for vectors.
        likelihood: "bernoulli", "gaussian" (variance 1) or "normal" (variance 0.1). Default: `bernoulli` for images and
            `gaussian` for vectors.
        shape: For images, the shape (h, w) or (c, h, w) of one image. A row of X is then a flattened image with pixels
            in [0, 1]. None means that rows are vectors.
        device: The device to train on, such as "cpu" or "cuda".
        random_state: The seed of the run, or a `numpy.random.RandomState` from which the seed is drawn. If it is None,
            each fit draws a different seed.
        verbose: Whether to show the progress of the training.

    Attributes:
        run_: The trained `unbraid.Run`. It can be passed to `unbraid.score`, `traverse`, `report` and `export`. It
            keeps X, and y as factors. A pickled estimator does not contain them. After unpickling, pass the data to
            these functions as `data=`.
        n_features_in_: The number of columns of X.
        feature_names_in_: The names of the columns of X, if it was a data frame with names.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(40, 5))
    >>> vae = VAE("beta_vae", latents=3, steps=30, random_state=0).set_params(method__beta=2.0).fit(X)
    >>> vae.transform(X).shape, bool(vae.score(X) < 0), vae.method
    ((40, 3), True, BetaVAE(beta=2.0, warmup=0.0))
    """

    @explain_unknown_arguments(
        "Settings of the method belong to the method, as in VAE(ub.methods.BetaVAE(beta=4.0)), or have the prefix "
        "method__, as in VAE('beta_vae').set_params(method__beta=4.0)."
    )
    def __init__(
        self,
        method: str | type[Method] | Method = "vae",
        *,
        latents: int = 10,
        steps: int = 5_000,
        batch: int = 64,
        learning_rate: float | None = 1e-3,
        net: str | PairBuilder | Pair | None = None,
        likelihood: str | None = None,
        shape: tuple[int, ...] | None = None,
        device: str = "cpu",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.latents = latents
        self.steps = steps
        self.batch = batch
        self.learning_rate = learning_rate
        self.net = net
        self.likelihood = likelihood
        self.shape = shape
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name. If `deep`, those with the prefix ``method__`` are included.

        Args:
            deep: Whether to include the settings of the method.

        Returns:
            The values of the parameters.
        """
        params: dict[str, Any] = super().get_params(deep)
        if deep:
            params |= {PREFIX + name: value for name, value in _settings(self.method).items()}
        return params

    def set_params(self, **params: Any) -> VAE:
        """Set parameters. Those with the prefix ``method__`` are settings of the method.

        Args:
            params: The values of the parameters.

        Returns:
            The estimator.

        Raises:
            ValueError: If there is no such parameter.
        """
        own = {name: value for name, value in params.items() if not name.startswith(PREFIX)}
        super().set_params(**own)
        settings = {name.removeprefix(PREFIX): value for name, value in params.items() if name not in own}
        if settings:
            (method,) = as_methods(self.method)
            known = _settings(method)
            for name in settings:
                if name not in known:
                    raise UserError(unknown_name_message(f"setting of {type(method).__name__}", name, known))
            self.method = dataclasses.replace(method, **settings)
        return self

    def fit(self, X: Any, y: Any = None) -> VAE:
        """Train the method.

        Args:
            X: Examples, (n, d).
            y: Labels of the examples, (n,) or (n, k). The training ignores them. They are kept as the factors of the
                data of `run_`, so that `unbraid.score` can compute metrics.

        Returns:
            The estimator.

        Raises:
            ValueError: If X or a parameter is invalid, or if the training diverges.
        """
        X = validate_data(self, X, dtype=FLOATS)
        check_consistent_length(X, y)
        data = self._dataset(X)
        run = train_job(self._job(data), quiet=not self.verbose)
        self._raise_if_diverged(run)
        self.run_ = dataclasses.replace(run, data=self._with_factors(data, X, y))
        self._n_features_out = self._codes(X[:1]).shape[1]
        return self

    def transform(self, X: Any) -> Any:
        """Compute the codes of examples: the posterior means, or the default codes of the method.

        Args:
            X: Examples, (n, d).

        Returns:
            Codes, (n, latents), with the dtype of X. The codes of a few methods have another number of columns. The
            network `mlp` also computes in this dtype. In float64, rounding is so small that the code of a row
            does not visibly depend on the other rows of X.
        """
        check_is_fitted(self, "run_")
        X = validate_data(self, X, dtype=FLOATS, reset=False)
        return self._codes(X)

    def inverse_transform(self, X: Any) -> Any:
        """Decode codes.

        Args:
            X: Codes, (n, latents).

        Returns:
            The means of p(x|z), (n, d), with the dtype of X.

        Raises:
            ValueError: If the codes have the wrong shape, or if the method has no decoder for its codes.
        """
        check_is_fitted(self, "run_")
        codes = check_array(X, dtype=FLOATS, input_name="X")
        if codes.shape[1] != self.run_.spec.latents:
            raise UserError(
                f"The decoder takes {self.run_.spec.latents} latents. Got {codes.shape[1]} columns instead. Pass the "
                f"output of transform. The codes of a few methods, such as those on projective spaces, are not latents."
            )
        decoded = self.run_.decode(codes.astype(np.float32))
        return decoded.cpu().numpy().reshape(len(codes), -1).astype(codes.dtype)

    def score(self, X: Any, y: Any = None) -> float:
        """Compute the mean evidence lower bound (ELBO) of examples, in nats per example.

        It is estimated with 10 posterior samples per example and a fixed random seed (see `unbraid.likelihood_bounds`).
        It is the ELBO of the model for every method, without the weights of the training objective, so it can be
        compared between methods that have the same likelihood.

        Args:
            X: Examples, (n, d).
            y: Ignored.

        Returns:
            The mean. Higher is better.

        Raises:
            ValueError: If X is invalid, or if the method (such as `ae`) has no ELBO.
        """
        check_is_fitted(self, "run_")
        data = self._dataset(validate_data(self, X, dtype=FLOATS, reset=False))
        return likelihood_bounds(self.run_, data, samples=SCORE_SAMPLES, quiet=True)["elbo"]

    def __getstate__(self) -> Any:
        """Return what is pickled. The training data are left out."""
        state = super().__getstate__()
        return {**state, "run_": dataclasses.replace(state["run_"], data=None)} if "run_" in state else state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @torch.no_grad()
    def _codes(self, X: Any) -> Any:
        """Return the default codes of examples. The network `mlp` computes them in the dtype of X."""
        run = self.run_
        double = X.dtype == np.float64 and run.spec.net == "mlp" and run.device.type != "mps"  # mps has no float64
        net = copy.deepcopy(run.net).double() if double else run.net
        x = network_input(self._examples(X), net.shape).to(run.device, torch.float64 if double else torch.float32)
        codes = [posterior_codes(run.spec.method, net, net.encode(part)) for part in x.split(CHUNK)]
        return torch.cat(codes).cpu().numpy().astype(X.dtype)

    def _examples(self, X: Any) -> Any:
        """Return the rows of X as vectors, or as images (n, c, h, w) if the parameter `shape` is set."""
        if self.shape is None:
            return X.astype(np.float32)
        given = tuple(self.shape) if np.ndim(self.shape) == 1 else ()
        shape = given if len(given) == 3 else (1, *given)
        if len(shape) != 3 or int(np.prod(shape)) != X.shape[1]:
            raise UserError(
                f"The parameter 'shape' must be (h, w) or (c, h, w) with {X.shape[1]} values, the number of columns of "
                f"X. Got {self.shape!r} instead."
            )
        return X.reshape(len(X), *shape)

    def _dataset(self, X: Any, factors: Any = None) -> OwnData:
        check_device(self.device)
        layout = None if self.shape is None else "chw"
        return from_arrays(self._examples(X), factors, layout=layout, device=self.device)

    def _with_factors(self, data: OwnData, X: Any, y: Any) -> OwnData:
        """Return the data with the labels y as factors, or without factors if y cannot be used as labels."""
        if y is None:
            return data
        with without_announcements(), contextlib.suppress(UserError):
            return self._dataset(X, y)
        return data

    def _job(self, data: OwnData) -> TrainingJob:
        """Return the training job for the data: the spec of the run, the data and the builder of its network."""
        (method,) = as_methods(self.method)
        defaults = RunDefaults.choose(data, self.net, self.likelihood)
        spec = defaults.spec(
            method, seed=self._seed(), steps=self.steps, batch=self.batch, learning_rate=self.learning_rate,
            latents=self.latents,
        )  # fmt: skip
        return TrainingJob(spec, data, defaults.builder)

    def _seed(self) -> int:
        """Return `random_state` if it is an integer. Otherwise draw a seed from it."""
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _raise_if_diverged(self, run: Run) -> None:
        if run.divergence is not None:
            raise UserError(
                f"The training diverged at step {run.divergence['step']}: {run.divergence['term']} was not finite. "
                "Standardise X, or use a lower learning_rate."
            )


def _settings(method: Any) -> dict[str, Any]:
    """Return the settings of a method by name, or an empty dictionary if it is not a valid method."""
    try:
        (chosen,) = as_methods(method)
    except (TypeError, ValueError):
        return {}
    return {field.name: getattr(chosen, field.name) for field in dataclasses.fields(chosen)}
