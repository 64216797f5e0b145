"""Probes of growing capacity: neural networks, and linear probes on random Fourier features."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Real

from unbraid.errors import UserError
from unbraid.metrics.arrays import input_error
from unbraid.metrics.labels import Column, Labels
from unbraid.metrics.linear import logistic_regression, ridge_regression
from unbraid.metrics.regression import prediction_score

Array = np.ndarray[Any, np.dtype[Any]]
Predict = Callable[[Array], Array]

WIDTHS = (0, 14, 28, 47, 75, 131, 243)  # units in each hidden layer; with 0 units the probe is linear
FEATURES = (16, 32, 64, 128, 256, 512, 1024)  # random Fourier features
BATCH, STEPS = 256, 1500  # rows per step of Adam, and steps
RATE = 4e-3  # learning rate of Adam
PHASES = ((0.4, 1.0), (0.4, 0.1), (0.2, 0.01))  # share of the steps, and factor of the learning rate
FREQUENCY_SCALE = 0.08  # standard deviation of the frequencies, in periods per standard deviation of a latent
LARGEST_CODE = 1e6  # standardised test codes are limited to this magnitude, so that they fit into float32


class Curves(NamedTuple):
    """The loss-capacity curves of all factors.

    Attributes:
        errors: The test error of each probe, for t capacities and k factors.
        capacities: The positions of the probes on the axis of capacity.
        importances: Returns the importance of each latent to the probes with the capacity of a given index. The
            importances to one factor sum to 1, or are all 0.
    """

    errors: Float[np.ndarray, "t k"]
    capacities: Float[np.ndarray, " t"]
    importances: Callable[[int], Float[np.ndarray, "d k"]]


def fit_curves(
    family: str, codes: Array, labels: Labels, test_codes: Array, test_labels: Labels, sizes: Sequence[int], seed: int
) -> Curves:
    """Fit the probes of all factors.

    Args:
        family: "mlp" or "rff".
        codes: Codes of shape (n, d).
        labels: Factors of the same examples.
        test_codes: Codes of shape (m, d).
        test_labels: Factors of the test examples.
        sizes: Units in each hidden layer of the networks, or numbers of random features, in increasing order.
        seed: Random seed of initial weights, batches, frequencies and permutations.

    Returns:
        The curves. Capacity is the logarithm of the number of parameters of a network, or of the number of features.

    Raises:
        UserError: If the variance of a latent is too large, or if larger networks do not have more parameters.
    """
    train, test = standardise(codes, test_codes)
    fit = fit_networks if family == "mlp" else fit_on_random_features
    probes = [fit(train[column.rows], column, sizes, seed) for column in labels.columns()]
    columns = list(test_labels.columns())
    errors = np.array([
        [_error(predict, test[column.rows], column) for predict in models]
        for models, column in zip(probes, columns, strict=True)
    ])  # fmt: skip
    counts = _parameters(sizes, labels, train.shape[1]) if family == "mlp" else np.asarray(sizes, np.float64)

    def importances(index: int) -> Float[np.ndarray, "d k"]:
        parts = [
            permutation_importances(models[index], test[column.rows], column, seed)
            for models, column in zip(probes, columns, strict=True)
        ]
        return np.stack(parts, axis=1)

    return Curves(errors.T, np.log(counts), importances)


def standardise(codes: Array, test_codes: Array) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "m d"]]:
    """Return training and test codes in units of the standard deviation over the training codes.

    Latents that are constant in training become 0. Test codes are limited to `LARGEST_CODE`.

    >>> standardise(np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[4.0, 6.0]]))[1].tolist()
    [[2.0, 0.0]]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        varies, spread = np.ptp(codes, axis=0) > 0, codes.std(axis=0)
        spread = np.where(varies & (spread > 0), spread, 1.0)
        train, test = (np.where(varies, (x - codes.mean(axis=0)) / spread, 0.0) for x in (codes, test_codes))
    if not (np.isfinite(spread).all() and np.isfinite(train).all()):
        raise input_error(
            "Codes must have a finite variance.", f"a largest absolute value of {np.abs(codes).max()}",
            "Scale the codes down.",
        )  # fmt: skip
    return train, np.clip(np.nan_to_num(test), -LARGEST_CODE, LARGEST_CODE)


def fit_networks(codes: Float[np.ndarray, "n d"], column: Column, widths: Sequence[int], seed: int) -> list[Predict]:
    """Fit one network per width. A network with width 0 is a linear probe."""
    return [
        _fit_network(codes, column, width, seed) if width else _fit_linear(codes, column, math.inf, 1e-6)
        for width in widths
    ]


def _fit_linear(codes: Float[np.ndarray, "n d"], column: Column, C: float, alpha: float) -> Predict:
    """Fit a logistic regression to a discrete factor, or a linear regression to a continuous one."""
    if column.continuous:
        return ridge_regression(codes, column.values, alpha=alpha).predict
    return logistic_regression(codes, column.values.astype(np.int64), C=C).predict


def _fit_network(codes: Float[np.ndarray, "n d"], column: Column, width: int, seed: int) -> Predict:
    """Fit a network with two hidden layers of ReLU units by Adam, with a learning rate that falls twice."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    kind, values, centre, spread = MLPClassifier, column.values, 0.0, 1.0
    if column.continuous:
        kind, centre, spread = MLPRegressor, float(values.mean()), float(values.std()) or 1.0
        values = (values - centre) / spread
    model = kind(
        hidden_layer_sizes=(width, width), alpha=0.0, batch_size=min(BATCH, len(codes)), tol=0.0,
        n_iter_no_change=np.inf, random_state=seed, warm_start=True,
    )  # fmt: skip
    epochs = STEPS / -(-len(codes) // BATCH)
    for share, factor in PHASES:
        model.set_params(learning_rate_init=factor * RATE, max_iter=max(1, round(share * epochs)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # because the number of steps is fixed
            model.fit(codes.astype(np.float32), values)
    return partial(_predict, model, centre, spread)


def _predict(model: Any, centre: float, spread: float, codes: Array) -> Array:
    """Return the predictions of a network in the units of the labels."""
    return np.asarray(model.predict(codes.astype(np.float32)) * spread + centre)


def _parameters(widths: Sequence[int], labels: Labels, d: int) -> Float[np.ndarray, " t"]:
    """Return the mean number of parameters of the networks of all factors, for each width."""
    outputs = [1 if column.continuous else len(np.unique(column.values)) for column in labels.columns()]
    counts = np.array([np.mean([network_parameters(d, width, k) for k in outputs]) for width in widths])
    if (np.diff(counts) <= 0).any():
        raise UserError(
            f"Networks with more units must have more parameters than those with fewer units, also than the linear "
            f"probe (0 units). Got {[round(float(count)) for count in counts]} for the widths {list(widths)} instead. "
            "Choose larger widths."
        )
    return counts


def network_parameters(d: int, width: int, outputs: int) -> int:
    """Return the number of weights and biases of a network with d inputs and two hidden layers of `width` units.

    With `width` 0 there are no hidden layers. A discrete factor has one output per value.

    >>> network_parameters(2, 0, 3), network_parameters(2, 4, 3)
    (9, 47)
    """
    sizes = [d, width, width, outputs] if width else [d, outputs]
    return sum((inputs + 1) * units for inputs, units in itertools.pairwise(sizes))


def fit_on_random_features(
    codes: Float[np.ndarray, "n d"], column: Column, counts: Sequence[int], seed: int
) -> list[Predict]:
    """Fit one linear probe per number of features. Fewer features are the first of more features."""
    frequencies = draw_frequencies(codes.shape[1], max(counts), seed)
    features = fourier_features(codes, frequencies)
    models = [_fit_linear(np.ascontiguousarray(features[:, :count]), column, 1.0, 1.0) for count in counts]
    return [
        partial(_predict_from_features, model, frequencies, count) for model, count in zip(models, counts, strict=True)
    ]


def _predict_from_features(model: Predict, frequencies: Array, count: int, codes: Array) -> Array:
    """Return the predictions of a linear probe from the first `count` features."""
    return model(np.ascontiguousarray(fourier_features(codes, frequencies[:, : -(-count // 2)])[:, :count]))


def draw_frequencies(d: int, count: int, seed: int) -> Float[np.ndarray, "d f"]:
    """Return random frequencies for `count` features, in radians, one column per pair of a cosine and a sine."""
    frequencies = np.random.default_rng(seed).normal(size=(-(-count // 2), d))
    return 2 * np.pi * FREQUENCY_SCALE * frequencies.T


def fourier_features(codes: Real[np.ndarray, "n d"], frequencies: Float[np.ndarray, "d f"]) -> Float[np.ndarray, "n e"]:
    """Return the cosine and the sine of the product of codes and frequencies: two neighbouring columns per frequency.

    >>> fourier_features(np.array([[0.0], [1.0]]), np.array([[np.pi / 2]])).round(6).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    angles = codes @ frequencies
    return np.stack([np.cos(angles), np.sin(angles)], axis=2).reshape(len(codes), -1)


def permutation_importances(
    predict: Predict, codes: Real[np.ndarray, "m d"], column: Column, seed: int
) -> Float[np.ndarray, " d"]:
    """Return each latent's share of the rises of the error that follow if the values of one latent are permuted.

    If no permutation raises the error, all shares are 0.
    """
    order = np.random.default_rng(seed).permutation(len(codes))
    before, rises = _error(predict, codes, column), np.zeros(codes.shape[1])
    for i in range(codes.shape[1]):
        permuted = codes.copy()
        permuted[:, i] = codes[order, i]
        rises[i] = max(0.0, _error(predict, permuted, column) - before)
    return rises / (rises.sum() or 1.0)


def _error(predict: Predict, codes: Array, column: Column) -> float:
    """Return the test error of a probe: 1 minus the accuracy or the coefficient of determination."""
    return 1 - prediction_score(predict(codes), column)
