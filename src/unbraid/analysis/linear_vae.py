"""The linear beta-VAE: its optimum in closed form, its exact loss, a numerical minimiser, and trained runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from unbraid.analysis.results_table import Array, reject

if TYPE_CHECKING:
    from unbraid.data.dataset import FactorData
    from unbraid.runs.run import Run


class LinearModel(NamedTuple):
    """A linear VAE for data with mean zero: z ~ N(E x, diag S), x ~ N(W z, s^2 I).

    Attributes:
        encoder: E, (latents, width).
        decoder: W, (width, latents).
        variances: S, (latents,).
    """

    encoder: Array
    decoder: Array
    variances: Array


class Optimum(NamedTuple):
    """The optimum of a linear beta-VAE, with one entry per latent.

    Latents are in the order of their eigenvalues, largest first. If there are more latents than eigenvalues, the
    remaining latents have collapsed.

    Attributes:
        norms: Squared length of the decoder column of each latent.
        posterior: Posterior variance.
        means: Variance of the posterior mean over the data.
        collapsed: Whether the latent has collapsed onto the prior.
    """

    norms: Array
    posterior: Array
    means: Array
    collapsed: np.ndarray[Any, np.dtype[np.bool_]]

    @property
    def active(self) -> int:
        """The number of latents that have not collapsed."""
        return int((~self.collapsed).sum())


class MeasuredModel(NamedTuple):
    """The quantities of `Optimum`, measured for a linear VAE. Latents with longer decoder columns come first.

    Attributes:
        norms: Squared length of the decoder column of each latent.
        posterior: Posterior variance.
        means: Variance of the posterior mean over the data.
        angle: Angle in degrees between the decoder column and the principal axis that `measure` matches with it.
        crossing: The largest absolute off-diagonal entry of W^T W. It is 0 if the decoder columns are orthogonal.
    """

    norms: Array
    posterior: Array
    means: Array
    angle: Array
    crossing: float


def optimum(eigenvalues: Any, beta_s2: float, latents: int | None = None) -> Optimum:
    r"""Return the optimum of a linear beta-VAE for data whose covariance has the given eigenvalues.

    .. math:: |w_i|^2 = \max(\lambda_i - \beta s^2, 0), \quad
        \sigma_i^2 = \min(\beta s^2 / \lambda_i, 1), \quad \mathrm{Var}(\mu_i) = 1 - \sigma_i^2

    Here :math:`\lambda_i` is the i-th largest eigenvalue, :math:`w_i` the decoder column of latent i,
    :math:`\sigma_i^2` its posterior variance and :math:`\mu_i` its posterior mean. The decoder columns point along the
    principal axes, largest eigenvalue first. If :math:`\lambda_i \le \beta s^2`, the latent collapses onto the prior.
    With a smaller :math:`\beta s^2`, latents carry more information. At :math:`\beta s^2 = 0`, every rotation of the
    latents is optimal. The axes of equal eigenvalues are not uniquely determined.

    Reference: Lucas et al. (2019), arXiv:1911.02469, for beta = 1; Rolinek et al. (2019), arXiv:1812.06775.

    Args:
        eigenvalues: Eigenvalues of the covariance of the data, >= 0.
        beta_s2: The product of beta and the variance s^2 of the likelihood. The likelihood "gaussian" has s^2 = 1.
        latents: Number of latents. By default one per eigenvalue.

    Returns:
        The optimum, with one entry per latent.

    Raises:
        UserError: If an argument is out of range.

    >>> best = optimum([9, 6, 4, 2.5], beta_s2=1.0)
    >>> best.norms.tolist(), best.posterior.round(4).tolist()
    ([8.0, 5.0, 3.0, 1.5], [0.1111, 0.1667, 0.25, 0.4])
    >>> optimum([9, 6, 4, 2.5], beta_s2=5.0).active
    2
    """
    values = np.sort(np.asarray(eigenvalues, float))[::-1]
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or values[-1] < 0:
        remedy = "Use the eigenvalues of a covariance matrix."
        reject("Eigenvalues must be a list of finite numbers >= 0.", f"{eigenvalues}", remedy)
    check_beta_s2(beta_s2)
    count = len(values) if latents is None else latents
    if count < 1:
        reject("There must be at least one latent.", f"{latents}", "Use a larger number.")
    largest = np.zeros(count)
    largest[: len(values)] = values[:count]
    norms = np.maximum(largest - beta_s2, 0.0)
    posterior = beta_s2 / np.maximum(largest, beta_s2)
    return Optimum(norms, posterior, 1 - posterior, norms == 0)


def best_model(covariance: Any, beta_s2: float, latents: int) -> LinearModel:
    r"""Return an optimal linear VAE for data with mean zero. Its decoder columns are scaled principal axes.

    .. math:: w_i = \sqrt{\lambda_i - \beta s^2}\, u_i, \quad e_i = w_i / \lambda_i

    :math:`u_i` is the principal axis with eigenvalue :math:`\lambda_i`, :math:`w_i` is column i of the decoder, and
    :math:`e_i` is row i of the encoder. Both are zero if :math:`\lambda_i \le \beta s^2`.
    """
    values, axes = np.linalg.eigh(np.asarray(covariance, float))
    best = optimum(np.maximum(values, 0.0), beta_s2, latents)
    count = min(latents, len(values))
    decoder = np.zeros((len(values), latents))
    decoder[:, :count] = axes[:, ::-1][:, :count] * np.sqrt(best.norms[:count])
    encoder = decoder.T / np.maximum(best.norms + beta_s2, beta_s2)[:, None]
    return LinearModel(encoder, decoder, best.posterior)


def check_beta_s2(beta_s2: float) -> None:
    """Raise a UserError if the optimum is not determined for this value of beta s^2."""
    if not (np.isfinite(beta_s2) and beta_s2 > 0):
        remedy = "At 0, every rotation of the latents is optimal. Use a small positive number."
        reject("The 'beta_s2' parameter must be finite and > 0.", f"{beta_s2}", remedy)


def expected_loss(model: LinearModel, covariance: Any, beta_s2: float) -> float:
    r"""Compute s^2 times the objective of a linear beta-VAE, averaged over data and noise, without constant terms.

    .. math:: \tfrac12 \mathrm{tr}\big((I - WE) C (I - WE)^T\big) + \tfrac12 \sum_j S_j |w_j|^2
        + \tfrac{\beta s^2}{2} \sum_j \big((E C E^T)_{jj} + S_j - \log S_j - 1\big)

    C is the covariance of the data. E, W and S are the encoder, the decoder and the variances of the model. The second
    term is the stochastic loss, that is, the reconstruction error due to the noise of the posterior.
    """
    c = np.asarray(covariance, float)
    encoder, decoder, variances = model
    rest = np.eye(len(c)) - decoder @ encoder
    kl = np.diag(encoder @ c @ encoder.T) + variances - np.log(variances) - 1
    noise = variances @ np.square(decoder).sum(axis=0)
    return float(np.trace(rest @ c @ rest.T) + noise + beta_s2 * kl.sum()) / 2


def gradient(model: LinearModel, covariance: Any, beta_s2: float) -> LinearModel:
    """Compute the derivatives of `expected_loss` with respect to encoder, decoder and log posterior variances.

    They are returned as the fields of a `LinearModel`.
    """
    c = np.asarray(covariance, float)
    encoder, decoder, variances = model
    rest = np.eye(len(c)) - decoder @ encoder
    by_encoder = -decoder.T @ rest @ c + beta_s2 * encoder @ c
    by_decoder = -rest @ c @ encoder.T + decoder * variances
    by_logs = 0.5 * (variances * np.square(decoder).sum(axis=0) + beta_s2 * (variances - 1))
    return LinearModel(by_encoder, by_decoder, by_logs)


def minimise(covariance: Any, beta_s2: float, latents: int, seed: int = 0) -> LinearModel:
    """Minimise `expected_loss` with L-BFGS in float64, starting at random parameters.

    The closed form is not used, so the result can be checked against it.
    """
    c = np.asarray(covariance, float)
    check_beta_s2(beta_s2)
    width = len(c)
    parts = np.cumsum([latents * width, width * latents])

    def model(flat: Array) -> LinearModel:
        encoder, decoder, logs = np.split(flat, parts)
        return LinearModel(encoder.reshape(latents, width), decoder.reshape(width, latents), np.exp(logs))

    def value(flat: Array) -> tuple[float, Array]:
        current = model(flat)
        slopes = gradient(current, c, beta_s2)
        return expected_loss(current, c, beta_s2), np.concatenate([part.ravel() for part in slopes])

    rng = np.random.default_rng(seed)
    start = np.concatenate([rng.normal(scale=0.3, size=parts[-1]), np.zeros(latents)])
    limits = {"maxiter": 5_000, "maxfun": 20_000, "ftol": 0.0, "gtol": 1e-10, "maxcor": 40}
    return model(minimize(value, start, jac=True, method="L-BFGS-B", options=limits).x)


def measure(model: LinearModel, covariance: Any) -> MeasuredModel:
    """Measure the quantities of `optimum` for a linear VAE, and how well its decoder follows the principal axes.

    The decoder columns, longest first, are matched to the principal axes, largest eigenvalue first. The angle of a
    column of length 0 is NaN.
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
    return MeasuredModel(squares[order], model.variances[order], means, angle, float(crossing))


def linear_data(eigenvalues: Any, n: int = 4096, seed: int = 0) -> FactorData:
    """Return n vectors with mean zero. Their covariance has exactly the given eigenvalues and random principal axes."""
    from unbraid.data.own.arrays import from_arrays

    values = np.asarray(eigenvalues, float)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, len(values)))
    x -= x.mean(axis=0)
    white = np.linalg.qr(x)[0] * np.sqrt(n)
    axes = np.linalg.qr(rng.normal(size=(len(values), len(values))))[0]
    return from_arrays((white * np.sqrt(values) @ axes.T).astype(np.float32), name="linear")


def fit_linear_model(run: Run, data: FactorData) -> tuple[LinearModel, Array]:
    """Return the matrices of a trained run with a linear encoder and decoder, and the covariance of its data.

    The matrices are fitted by least squares to the posterior means and to the decoded examples. The encoder and decoder
    may therefore be any modules that compute linear maps. The posterior variances are means over the data. Raise a
    UserError if a module is not linear.
    """
    import torch

    x = data.batch(torch.arange(len(data), device=data.device))
    centred = x.double().cpu().flatten(1).numpy()
    centred = centred - centred.mean(axis=0)
    q = run.posterior(x)
    means = q.mean.double().cpu().numpy()
    decoded = run.decode(q.mean).double().cpu().flatten(1).numpy()
    encoder, decoder = fit_linear_map(centred, means, "encoder"), fit_linear_map(means, decoded, "decoder")
    variances = q.logvar.double().exp().mean(0).cpu().numpy()
    return LinearModel(encoder, decoder, variances), np.asarray(centred.T @ centred / len(centred))


def fit_linear_map(inputs: Array, outputs: Array, what: str) -> Array:
    """Fit the matrix of a linear map to its inputs and outputs. Raise a UserError if the map is not linear."""
    x, y = (part - part.mean(axis=0) for part in (inputs, outputs))
    matrix = np.linalg.lstsq(x, y, rcond=None)[0]
    error = np.sqrt(np.square(y - x @ matrix).mean() / max(np.square(y).mean(), 1e-30))
    if error > 1e-2:
        remedy = "Train with net=(nn.Linear(width, 2 * latents), nn.Linear(...))."
        reject(f"The {what} must be linear.", f"one with a relative error of {100 * error:.0f} %", remedy)
    return np.asarray(matrix.T)
