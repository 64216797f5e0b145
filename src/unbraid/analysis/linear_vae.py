"""The linear beta-VAE: its optimum in closed form, the exact loss and its minimiser, and what a trained run reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from unbraid.analysis.results_table import Array, refuse

if TYPE_CHECKING:
    from unbraid.data.dataset import FactorData
    from unbraid.runs.run import Run


class Linear(NamedTuple):
    """A linear VAE with data of mean zero: z ~ N(E x, diag S), x ~ N(W z, s^2 I)."""

    encoder: Array
    decoder: Array
    variances: Array


class Optimum(NamedTuple):
    """Of each latent: its column's squared length, posterior variance, variance of the mean, and whether it is unused.

    Latents come with the eigenvalues they stand for, largest first; one without an eigenvalue of its own is unused.
    """

    norms: Array
    posterior: Array
    means: Array
    collapsed: np.ndarray[Any, np.dtype[np.bool_]]

    @property
    def active(self) -> int:
        """How many latents are used."""
        return int((~self.collapsed).sum())


class Measured(NamedTuple):
    """A linear VAE beside the optimum: the same numbers, largest column first, and how far its columns are turned.

    `angle` is the angle in degrees between a column and its principal axis, and `crossing` the largest entry of
    W^T W off the diagonal.
    """

    norms: Array
    posterior: Array
    means: Array
    angle: Array
    crossing: float


def optimum(eigenvalues: Any, beta_s2: float, latents: int | None = None) -> Optimum:
    r"""What a linear beta-VAE has learned at its best, for data whose covariance has these eigenvalues.

    .. math:: |w_i|^2 = \max(\lambda_i - \beta s^2, 0), \quad
        \sigma_i^2 = \min(\beta s^2 / \lambda_i, 1), \quad \mathrm{Var}(\mu_i) = 1 - \sigma_i^2

    with decoder columns w_i along the principal axes, largest eigenvalues first. Where
    :math:`\lambda_i \le \beta s^2` the latent collapses onto the prior. s^2 is the variance of the likelihood, which
    is 1 for "gaussian". A smaller product lets latents carry more; none at all leaves the rotation open.

    Limit: equal eigenvalues leave the axes among themselves open.
    Reference: Lucas et al. (2019), arXiv:1911.02469, for beta = 1; Rolinek et al. (2019), arXiv:1812.06775.

    >>> found = optimum([9, 6, 4, 2.5], beta_s2=1.0)
    >>> found.norms.tolist(), found.posterior.round(4).tolist()
    ([8.0, 5.0, 3.0, 1.5], [0.1111, 0.1667, 0.25, 0.4])
    >>> optimum([9, 6, 4, 2.5], beta_s2=5.0).active
    2
    """
    values = np.sort(np.asarray(eigenvalues, float))[::-1]
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or values[-1] < 0:
        refuse("Eigenvalues must be a list of finite numbers >= 0.", f"{eigenvalues}", "Take those of a covariance.")
    check_noise(beta_s2)
    count = len(values) if latents is None else latents
    if count < 1:
        refuse("There must be at least one latent.", f"{latents}", "Ask for one.")
    kept = np.zeros(count)
    kept[: len(values)] = values[:count]
    norms = np.maximum(kept - beta_s2, 0.0)
    posterior = beta_s2 / np.maximum(kept, beta_s2)
    return Optimum(norms, posterior, 1 - posterior, norms == 0)


def best_model(covariance: Any, beta_s2: float, latents: int) -> Linear:
    r"""A linear VAE at `optimum`, for data of mean zero: its columns are scaled principal axes.

    .. math:: w_i = \sqrt{\lambda_i - \beta s^2}\, u_i, \quad e_i = w_i / \lambda_i
    """
    values, axes = np.linalg.eigh(np.asarray(covariance, float))
    best = optimum(np.maximum(values, 0.0), beta_s2, latents)
    count = min(latents, len(values))
    decoder = np.zeros((len(values), latents))
    decoder[:, :count] = axes[:, ::-1][:, :count] * np.sqrt(best.norms[:count])
    encoder = decoder.T / np.maximum(best.norms + beta_s2, beta_s2)[:, None]
    return Linear(encoder, decoder, best.posterior)


def check_noise(beta_s2: float) -> None:
    """Refuse a product of strength and variance at which the optimum is not one."""
    if not (np.isfinite(beta_s2) and beta_s2 > 0):
        do = "Without noise every rotation of the latents is as good; take a small number."
        refuse("The 'beta_s2' parameter must be finite and > 0.", f"{beta_s2}", do)


def expected_loss(model: Linear, covariance: Any, beta_s2: float) -> float:
    r"""The objective of a linear beta-VAE times s^2, in expectation over data and noise, less constants.

    .. math:: \tfrac12 \mathrm{tr}\big((I - WE) C (I - WE)^T\big) + \tfrac12 \sum_j S_j |w_j|^2
        + \tfrac{\beta s^2}{2} \sum_j \big((E C E^T)_{jj} + S_j - \log S_j - 1\big)

    The second term is the stochastic loss: what the noise of the posterior costs.
    """
    c = np.asarray(covariance, float)
    encoder, decoder, variances = model
    rest = np.eye(len(c)) - decoder @ encoder
    kl = np.diag(encoder @ c @ encoder.T) + variances - np.log(variances) - 1
    noise = variances @ np.square(decoder).sum(axis=0)
    return float(np.trace(rest @ c @ rest.T) + noise + beta_s2 * kl.sum()) / 2


def gradient(model: Linear, covariance: Any, beta_s2: float) -> Linear:
    """The derivatives of `expected_loss` by encoder, decoder and the logarithms of the posterior variances."""
    c = np.asarray(covariance, float)
    encoder, decoder, variances = model
    rest = np.eye(len(c)) - decoder @ encoder
    by_encoder = -decoder.T @ rest @ c + beta_s2 * encoder @ c
    by_decoder = -rest @ c @ encoder.T + decoder * variances
    by_logs = 0.5 * (variances * np.square(decoder).sum(axis=0) + beta_s2 * (variances - 1))
    return Linear(by_encoder, by_decoder, by_logs)


def minimise(covariance: Any, beta_s2: float, latents: int, seed: int = 0) -> Linear:
    """A linear beta-VAE from a random start to a minimum of `expected_loss`, by L-BFGS in float64.

    Nothing of the closed form goes in, so that the two check each other.
    """
    c = np.asarray(covariance, float)
    check_noise(beta_s2)
    width = len(c)
    parts = np.cumsum([latents * width, width * latents])

    def model(flat: Array) -> Linear:
        encoder, decoder, logs = np.split(flat, parts)
        return Linear(encoder.reshape(latents, width), decoder.reshape(width, latents), np.exp(logs))

    def value(flat: Array) -> tuple[float, Array]:
        found = model(flat)
        slopes = gradient(found, c, beta_s2)
        return expected_loss(found, c, beta_s2), np.concatenate([part.ravel() for part in slopes])

    rng = np.random.default_rng(seed)
    start = np.concatenate([rng.normal(scale=0.3, size=parts[-1]), np.zeros(latents)])
    limits = {"maxiter": 5_000, "maxfun": 20_000, "ftol": 0.0, "gtol": 1e-10, "maxcor": 40}
    return model(minimize(value, start, jac=True, method="L-BFGS-B", options=limits).x)


def measured(model: Linear, covariance: Any) -> Measured:
    """The numbers of `optimum` for a linear VAE, and the angles between its columns and the principal axes.

    Latents are matched by the length of their columns: the longest stands for the largest eigenvalue. The angle of a
    column without length is NaN.
    """
    c = np.asarray(covariance, float)
    squares = np.square(model.decoder).sum(axis=0)
    order = np.argsort(-squares, kind="stable")
    decoder = model.decoder[:, order]
    means = np.diag(model.encoder @ c @ model.encoder.T)[order]
    axes = np.linalg.eigh(c)[1][:, ::-1]
    count = min(decoder.shape)
    along = np.abs((decoder[:, :count] * axes[:, :count]).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = np.where(squares[order][:count] > 1e-12, along / np.sqrt(squares[order][:count]), np.nan)
    angle = np.full(len(order), np.nan)
    angle[:count] = np.degrees(np.arccos(np.clip(cosines, 0, 1)))
    products = decoder.T @ decoder
    crossing = np.abs(products - np.diag(np.diag(products))).max() if len(order) > 1 else 0.0
    return Measured(squares[order], model.variances[order], means, angle, float(crossing))


def planted_linear(eigenvalues: Any, n: int = 4096, seed: int = 0) -> FactorData:
    """Vectors of mean zero whose covariance over the dataset has exactly these eigenvalues, on turned axes."""
    from unbraid.data.own.arrays import from_arrays

    values = np.asarray(eigenvalues, float)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, len(values)))
    x -= x.mean(axis=0)
    white = np.linalg.qr(x)[0] * np.sqrt(n)
    axes = np.linalg.qr(rng.normal(size=(len(values), len(values))))[0]
    return from_arrays((white * np.sqrt(values) @ axes.T).astype(np.float32), name="linear")


def linear_of(run: Run, data: FactorData) -> tuple[Linear, Array]:
    """The matrices of a trained run with a linear encoder and decoder, and the covariance of its data.

    They are the least-squares fit of its posterior means and of what it decodes, so that any pair of modules will do;
    one that is not linear is refused. A posterior variance is the average over the data.
    """
    import torch

    x = data.batch(torch.arange(len(data), device=data.device))
    centred = x.double().cpu().flatten(1).numpy()
    centred = centred - centred.mean(axis=0)
    q = run.posterior(x)
    means = q.mean.double().cpu().numpy()
    rebuilt = run.decode(q.mean).double().cpu().flatten(1).numpy()
    encoder, decoder = slope(centred, means, "encoder"), slope(means, rebuilt, "decoder")
    variances = q.logvar.double().exp().mean(0).cpu().numpy()
    return Linear(encoder, decoder, variances), np.asarray(centred.T @ centred / len(centred))


def slope(inputs: Array, outputs: Array, what: str) -> Array:
    """The matrix of a linear map from its inputs and outputs; a map with more to it is refused."""
    x, y = (part - part.mean(axis=0) for part in (inputs, outputs))
    found = np.linalg.lstsq(x, y, rcond=None)[0]
    off = np.sqrt(np.square(y - x @ found).mean() / max(np.square(y).mean(), 1e-30))
    if off > 1e-2:
        must, do = f"The {what} must be linear.", "Train with net=(nn.Linear(width, 2 * latents), nn.Linear(...))."
        refuse(must, f"one that is off by {100 * off:.0f} % of its spread", do)
    return np.asarray(found.T)
