"""Measure how close the columns of a decoder's Jacobian are to orthogonal, and whether a VAE is polarised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from unbraid.analysis.results_table import Array, reject

if TYPE_CHECKING:
    from torch import Tensor

    from unbraid.data.dataset import FactorData
    from unbraid.distributions import Gaussian
    from unbraid.runs.run import Run

ACTIVE_DEVIATION = 0.5  # a latent is active if the standard deviation of its posterior mean exceeds this
CHUNK = 64  # number of examples whose Jacobians are in memory at the same time
DRAWS = 4000  # number of random rotations from which the chance level is estimated


class RandomDistance(NamedTuple):
    """The mean distance of random rotations from the nearest signed permutation, and its standard error."""

    mean: float
    error: float


class PolarisedRegime(NamedTuple):
    """The result of `polarised_regime`.

    Attributes:
        active: Indices of the active latents.
        kl: Mean KL from the prior in nats.
        approximation: An approximation of the KL that uses only the active latents.
        delta: The relative difference between the KL and its approximation.
    """

    active: list[int]
    kl: float
    approximation: float
    delta: float


def distance_to_orthogonality(jacobians: Any) -> Array:
    r"""Measure how far the columns of each Jacobian are from being orthogonal.

    .. math:: J = U \Sigma V^T, \quad \min_P \|V - P\|_F

    The minimum is over signed permutations P. It is 0 if the columns are orthogonal, that is, if each latent moves the
    output along a local principal axis. Let d be the number of columns of J. The nearest P assigns a column P(j) of V
    to each row j such that :math:`\sum_j |V_{jP(j)}|` is largest. The squared distance is then
    :math:`2d - 2 \sum_j |V_{jP(j)}|`. The distance in the paper is the mean over examples. Compare it with
    `random_distance(d)`, which grows with d. V is not unique if singular values are equal.

    Reference: Rolinek et al. (2019), arXiv:1812.06775, eq. (29).

    Args:
        jacobians: Jacobians of n examples, (n, pixels, d).

    Returns:
        The distance of each Jacobian, (n,).

    Raises:
        UserError: If the array does not have three axes, or if it is empty.

    >>> distance_to_orthogonality([[[3.0, 0.0], [0.0, 1.0]]]).tolist()
    [0.0]
    """
    j = np.asarray(jacobians, float)
    if j.ndim != 3 or not j.size:
        reject("Jacobians must be an array (n, pixels, d).", f"shape {j.shape}", "Add an axis for a single Jacobian.")
    return permutation_distances(np.linalg.eigh(j.swapaxes(1, 2) @ j)[1])


def permutation_distances(axes: Array) -> Array:
    """Return the distance of each orthogonal matrix, (n, d, d), from the nearest signed permutation, (n,)."""
    d = axes.shape[-1]
    squares = []
    for sizes in np.abs(axes):
        rows, columns = linear_sum_assignment(sizes, maximize=True)
        squares.append(2 * d - 2 * sizes[rows, columns].sum())
    return np.sqrt(np.maximum(squares, 0.0))


def random_distance(d: int, draws: int = DRAWS, seed: int = 0) -> RandomDistance:
    r"""Estimate the expected distance to orthogonality of a decoder with random axes.

    The axes V are uniformly distributed rotations. For d = 2, the expected distance is
    :math:`\frac{16 \sqrt 2}{\pi} (1 - \cos \frac\pi8) = 0.548`.

    Args:
        d: Number of latents.
        draws: Number of random rotations. The standard error of the mean is 0.31 / sqrt(draws) for d = 2 and
            0.17 / sqrt(draws) for d = 6.
        seed: Random seed for the rotations.

    Returns:
        The `mean` over the rotations and its standard `error`.

    Raises:
        UserError: If d is less than 1.
    """
    if d < 1:
        reject("There must be at least one latent.", f"{d}", "Use a larger number.")
    normal = np.random.default_rng([seed, d]).normal(size=(draws, d, d))
    distances = permutation_distances(np.linalg.qr(normal)[0])
    return RandomDistance(float(distances.mean()), float(distances.std() / np.sqrt(draws)))


def polarised_regime(mean: Any, logvar: Any, threshold: float = ACTIVE_DEVIATION) -> PolarisedRegime:
    r"""Measure whether a VAE is in the polarised regime: each latent is active, or its posterior equals the prior.

    .. math:: KL_\approx = \tfrac12 \sum_{j\ \text{active}} (\mu_j^2 - \log \sigma_j^2 - 1), \quad
        \Delta_{KL} = |KL - KL_\approx| / KL

    Here :math:`\mu_j` and :math:`\sigma_j^2` are the posterior mean and variance of latent j. The KL and its
    approximation are means over examples. The approximation omits :math:`\sigma_j^2` of active latents and all terms of
    the other latents. A VAE is considered polarised if :math:`\Delta_{KL}` is at most 0.03.

    Reference: Rolinek et al. (2019), arXiv:1812.06775, section 3.

    Args:
        mean: Posterior means, (n, d).
        logvar: Log posterior variances, (n, d).
        threshold: A latent is active if the standard deviation of its posterior mean over examples exceeds this value.

    Returns:
        The active latents, the KL, its approximation and Delta_KL.

    Raises:
        UserError: If the arrays do not have the same shape (n, d), or if n is less than 2.
    """
    mu, log = np.asarray(mean, float), np.asarray(logvar, float)
    if mu.ndim != 2 or mu.shape != log.shape or len(mu) < 2:
        reject("Means and log variances must be arrays (n, d) with n at least 2.", f"shape {mu.shape}", "Add rows.")
    active = np.flatnonzero(mu.std(axis=0) > threshold)
    kl = float(0.5 * (mu**2 + np.exp(log) - log - 1).sum(axis=1).mean())
    used = 0.5 * (mu**2 - log - 1)[:, active]
    approximation = float(used.sum(axis=1).mean())
    delta = abs(kl - approximation) / kl if kl > 0 else float("nan")
    return PolarisedRegime(active.tolist(), kl, approximation, delta)


def orthogonality(
    run: Run, data: FactorData, examples: int = 256, *, seed: int = 0, draws: int = DRAWS
) -> dict[str, Any]:
    """Compute the distance to orthogonality of the decoder of a trained run, at the posterior means of examples.

    The Jacobian is the derivative of the decoded mean with respect to the active latents, in float32.

    Args:
        run: A run with a decoder and a normal posterior.
        data: The dataset.
        examples: Maximum number of random examples.
        seed: Random seed for the examples and the rotations.
        draws: Number of random rotations from which the chance level is estimated.

    Returns:
        A dictionary with these keys. The distances are NaN if there are fewer than two active latents.

        - `distance`, the mean distance over the examples, and its standard error `error`
        - `random`, the mean distance of random axes, and its standard error `random_error`
        - `active`, the indices of the active latents
        - `kl`, `kl_approx` and `delta_kl`, the results of `polarised_regime`
        - `examples`, the number of examples

    Raises:
        UserError: If the run has no decoder or no normal posterior, or if `examples` is less than 2.
    """
    q = draw_posteriors(run, data, examples, seed)
    regime = polarised_regime(q.mean.double().cpu().numpy(), q.logvar.double().cpu().numpy())
    count = len(regime.active)
    distances = dict.fromkeys(("distance", "error", "random", "random_error"), float("nan"))
    if count > 1:
        each = permutation_distances(np.linalg.eigh(decoder_grams(run, q.mean, regime.active))[1])
        chance = random_distance(count, draws, seed)
        distances = {"distance": float(each.mean()), "error": float(each.std() / np.sqrt(len(each)))}
        distances |= {"random": chance.mean, "random_error": chance.error}
    kl = {"kl": regime.kl, "kl_approx": regime.approximation, "delta_kl": regime.delta}
    return {**distances, "active": regime.active, **kl, "examples": len(q.mean)}


def draw_posteriors(run: Run, data: FactorData, examples: int, seed: int) -> Gaussian:
    """Return the posteriors of random examples, drawn without repetition.

    Raise a UserError if the run has no decoder or no normal posterior.
    """
    import torch

    from unbraid.distributions import Gaussian

    zeros = torch.zeros(1, run.spec.latents, device=run.device)
    if run.net.decoder is None or run.spec.method.information(Gaussian(zeros, zeros)) is None:
        requirement = "The distance to orthogonality needs a decoder and a normal posterior."
        reject(requirement, f"{run.label}, which does not have both,", "Choose a run of a VAE.")
    if examples < 2:
        reject("There must be at least 2 examples.", f"{examples}", "Use a few hundred.")
    chosen = np.random.default_rng(seed).choice(len(data), min(examples, len(data)), replace=False)
    index = torch.as_tensor(chosen, device=data.device)
    return run.posterior(data.batch(index).to(run.device))


def decoder_grams(run: Run, codes: Tensor, columns: list[int]) -> Array:
    """Return J^T J of the decoder at each row of `codes`, for the given columns of J, as float64 (n, d, d)."""
    parts = []
    for part in codes.split(CHUNK):
        j = decoder_jacobians(run, part, columns).double()
        parts.append((j.transpose(1, 2) @ j).cpu().numpy())
    return np.concatenate(parts)


def decoder_jacobians(run: Run, codes: Tensor, columns: list[int] | None = None) -> Tensor:
    r"""Return the Jacobians of the decoder of a run at the rows of `codes`, (n, pixels, d).

    If `columns` is given, only these columns of the Jacobians are computed. The first backward pass computes
    :math:`J^T g` for an auxiliary vector g. The derivative of entry j of this product with respect to g is column j of
    J. This takes one pass per latent instead of one pass per pixel.
    """
    import copy

    import torch

    from unbraid.accel.layers import Conv, ConvTranspose

    net = copy.deepcopy(run.net).requires_grad_(False)
    for layer in net.modules():
        if isinstance(layer, Conv | ConvTranspose):
            layer.reduced = False  # because derivatives in bfloat16 are too inaccurate
    with torch.enable_grad():
        z = codes.detach().clone().requires_grad_(True)
        x = net.decode(z).flatten(1)
        g = torch.zeros_like(x, requires_grad=True)
        (back,) = torch.autograd.grad(x, z, g, create_graph=True)
        wanted = range(codes.shape[1]) if columns is None else columns
        columns_of_j = [torch.autograd.grad(back[:, j].sum(), g, retain_graph=True)[0] for j in wanted]
    return torch.stack(columns_of_j, dim=2)
