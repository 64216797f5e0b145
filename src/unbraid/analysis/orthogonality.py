"""How near a decoder's Jacobian is to orthogonal columns, and whether latents are used fully or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from unbraid.analysis.results_table import Array, refuse

if TYPE_CHECKING:
    from torch import Tensor

    from unbraid.data.dataset import FactorData
    from unbraid.distributions import Gaussian
    from unbraid.runs.run import Run

ACTIVE = 0.5  # standard deviation of a latent's mean from which it counts as used
CHUNK = 64  # examples whose Jacobians are held at once
DRAWS = 4000


class Baseline(NamedTuple):
    """A mean over random draws with its standard error."""

    mean: float
    error: float


class Polarised(NamedTuple):
    """Which latents are used, the KL in nats, its approximation by used latents, and the relative difference."""

    active: list[int]
    kl: float
    approximation: float
    delta: float


def distance_to_orthogonality(jacobians: Any) -> Array:
    r"""How far each Jacobian (n, pixels, d) is from columns that are orthogonal.

    .. math:: J = U \Sigma V^T, \quad \min_P \|V - P\|_F

    over signed permutations P: 0 where columns are orthogonal, so that each latent moves along a local principal axis.
    The nearest P is the assignment with the largest sum of absolute values, and the squared distance is
    :math:`2d - 2 \sum_j |V_{jP(j)}|`. The published distance is the mean over examples. Compare it with
    `random_distance(d)`, which grows with d.

    Limit: equal singular values leave V open among themselves.
    Reference: Rolinek et al. (2019), arXiv:1812.06775, eq. (29).

    >>> distance_to_orthogonality([[[3.0, 0.0], [0.0, 1.0]]]).tolist()
    [0.0]
    """
    j = np.asarray(jacobians, float)
    if j.ndim != 3 or not j.size:
        refuse("Jacobians must be an array (n, pixels, d).", f"shape {j.shape}", "Add an axis for a single one.")
    return distances(np.linalg.eigh(j.swapaxes(1, 2) @ j)[1])


def distances(axes: Array) -> Array:
    """The distance of each orthogonal matrix (n, d, d) from the nearest signed permutation."""
    d = axes.shape[-1]
    found = []
    for sizes in np.abs(axes):
        rows, columns = linear_sum_assignment(sizes, maximize=True)
        found.append(2 * d - 2 * sizes[rows, columns].sum())
    return np.sqrt(np.maximum(found, 0.0))


def random_distance(d: int, draws: int = DRAWS, seed: int = 0) -> Baseline:
    r"""The distance to orthogonality of a decoder whose axes have any direction: uniformly drawn rotations V.

    For d = 2 it is :math:`\frac{16 \sqrt 2}{\pi} (1 - \cos \frac\pi8) = .548`. The mean of `draws` is given with its
    standard error, which is .31 / sqrt(draws) for d = 2 and .17 / sqrt(draws) for d = 6.
    """
    if d < 1:
        refuse("There must be at least one latent.", f"{d}", "Ask for one.")
    normal = np.random.default_rng([seed, d]).normal(size=(draws, d, d))
    found = distances(np.linalg.qr(normal)[0])
    return Baseline(float(found.mean()), float(found.std() / np.sqrt(draws)))


def polarised(mean: Any, logvar: Any, threshold: float = ACTIVE) -> Polarised:
    r"""Whether latents are used fully or not at all: the polarised regime.

    .. math:: KL_\approx = \tfrac12 \sum_{j\ \text{active}} (\mu_j^2 - \log \sigma_j^2 - 1), \quad
        \Delta_{KL} = |KL - KL_\approx| / KL

    A latent is active where the standard deviation of its mean over examples exceeds `threshold`. The approximation
    leaves out sigma^2 of active latents and all of the others; Delta_KL up to .03 counts as polarised.

    Reference: Rolinek et al. (2019), arXiv:1812.06775, section 3.
    """
    mu, log = np.asarray(mean, float), np.asarray(logvar, float)
    if mu.ndim != 2 or mu.shape != log.shape or len(mu) < 2:
        refuse("Means and log variances must be tables (n, d) of two rows or more.", f"shape {mu.shape}", "Add rows.")
    active = np.flatnonzero(mu.std(axis=0) > threshold)
    kl = float(0.5 * (mu**2 + np.exp(log) - log - 1).sum(axis=1).mean())
    used = 0.5 * (mu**2 - log - 1)[:, active]
    approximation = float(used.sum(axis=1).mean())
    delta = abs(kl - approximation) / kl if kl > 0 else float("nan")
    return Polarised(active.tolist(), kl, approximation, delta)


def orthogonality(
    run: Run, data: FactorData, examples: int = 256, *, seed: int = 0, draws: int = DRAWS
) -> dict[str, Any]:
    """Distance to orthogonality of a trained run's decoder at posterior means, with its chance level and regime.

    `distance` is the mean over `examples` drawn by `seed`, of the Jacobian's columns of active latents, with its
    standard error `error`; `random` is that of axes in any direction and `random_error` its standard error. `active`
    lists the active latents; `kl`, `kl_approx` and `delta_kl` are `polarised`'s. With fewer than two active latents
    there is nothing to turn, and distances are NaN.

    Limits: for runs with a decoder and a normal posterior. The Jacobian is that of the decoded mean, in float32.
    """
    q = posterior_of(run, data, examples, seed)
    regime = polarised(q.mean.double().cpu().numpy(), q.logvar.double().cpu().numpy())
    count = len(regime.active)
    found = {"distance": float("nan"), "error": float("nan"), "random": float("nan"), "random_error": float("nan")}
    if count > 1:
        each = distances(np.linalg.eigh(grams(run, q.mean, regime.active))[1])
        chance = random_distance(count, draws, seed)
        error = float(each.std() / np.sqrt(len(each)))
        found = {"distance": float(each.mean()), "error": error, "random": chance.mean, "random_error": chance.error}
    told = {"kl": regime.kl, "kl_approx": regime.approximation, "delta_kl": regime.delta}
    return {**found, "active": regime.active, **told, "examples": len(q.mean)}


def posterior_of(run: Run, data: FactorData, examples: int, seed: int) -> Gaussian:
    """Posteriors of examples drawn without repetition; a run without a decoder or a normal posterior is refused."""
    import torch

    from unbraid.distributions import Gaussian

    nowhere = torch.zeros(1, run.spec.latents, device=run.device)
    if run.net.decoder is None or run.spec.method.information(Gaussian(nowhere, nowhere)) is None:
        must = "Distance to orthogonality needs a decoder and a normal posterior."
        refuse(must, f"{run.label}, which has not both", "Choose a run of a VAE.")
    if examples < 2:
        refuse("There must be at least 2 examples.", f"{examples}", "Ask for some hundreds.")
    picked = np.random.default_rng(seed).choice(len(data), min(examples, len(data)), replace=False)
    index = torch.as_tensor(picked, device=data.device)
    return run.posterior(data.batch(index).to(run.device))


def grams(run: Run, codes: Tensor, columns: list[int]) -> Array:
    """J^T J of the decoder at each code, for some of its columns: float64 (n, d, d)."""
    parts = []
    for part in codes.split(CHUNK):
        j = decoder_jacobians(run, part, columns).double()
        parts.append((j.transpose(1, 2) @ j).cpu().numpy())
    return np.concatenate(parts)


def decoder_jacobians(run: Run, codes: Tensor, columns: list[int] | None = None) -> Tensor:
    r"""The derivatives of what a run decodes by its codes, (n, pixels, d), or by some of the codes only.

    Differentiated twice backwards: :math:`J^T g` is linear in g, and its slope by g is J. So there is a pass a latent,
    not one a pixel.
    """
    import copy

    import torch

    from unbraid.accel.layers import Conv, ConvTranspose

    net = copy.deepcopy(run.net).requires_grad_(False)
    for layer in net.modules():
        if isinstance(layer, Conv | ConvTranspose):
            layer.reduced = False  # bfloat16 is too coarse to be differentiated
    with torch.enable_grad():
        z = codes.detach().clone().requires_grad_(True)
        x = net.decode(z).flatten(1)
        g = torch.zeros_like(x, requires_grad=True)
        (back,) = torch.autograd.grad(x, z, g, create_graph=True)
        wanted = range(codes.shape[1]) if columns is None else columns
        found = [torch.autograd.grad(back[:, j].sum(), g, retain_graph=True)[0] for j in wanted]
    return torch.stack(found, dim=2)
