"""Small synthetic datasets with known sources, and measures for circular codes.

The functions that generate data also return the sources, which are the true factors. On a CPU, methods can recover the
sources within minutes.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.own.arrays import OwnData, from_arrays
from unbraid.data.rendered.toy import nonlinearity

MAX_CONDITION_NUMBER = 5.0  # maximum condition number of a mixing matrix


def mixed_time_series(points: int, sources: int = 5, rho: float = 0.7) -> tuple[OwnData, Float[Tensor, "n k"]]:
    r"""Generate a time series that is a linear mixture of independent sources.

    .. math:: s_t = \rho s_{t-1} + e_t, \quad x_t = A s_t

    Here :math:`s_t` are the sources and :math:`x_t` is the example at time t. The innovations e have a Laplace
    distribution, whose scale is chosen such that the sources have unit variance. The mixing matrix A is
    well-conditioned. This is the setting of Hyvarinen & Morioka (2017), AISTATS, with one linear mixing layer.

    Args:
        points: Number n of points in time.
        sources: Number k of sources.
        rho: Correlation of successive values of a source.

    Returns:
        The dataset, with examples of shape (k,) in the order of time, and the sources (n, k).
    """
    rng = np.random.default_rng(0)
    innovations = rng.laplace(scale=math.sqrt((1 - rho**2) / 2), size=(points, sources))
    s = np.zeros_like(innovations)
    for t in range(1, points):
        s[t] = rho * s[t - 1] + innovations[t]
    mixing = next(a for a in rng.normal(size=(1000, sources, sources)) if np.linalg.cond(a) < MAX_CONDITION_NUMBER)
    return from_arrays((s @ mixing.T).astype(np.float32), name="series"), torch.from_numpy(s)


def curved_product() -> tuple[OwnData, Float[Tensor, "n k"]]:
    """Generate 512 vectors that are a smooth nonlinear embedding of three factors with equal variances.

    The embedding has three steps: a matrix with orthonormal columns, the increasing function `nonlinearity`, and an
    orthogonal matrix. It is injective because each step is injective. The vectors are centred and scaled to a root mean
    square of 0.25, which is similar to that of pixels.

    Returns:
        The dataset, with examples of shape (12,), and the factors (512, 3).
    """
    g = torch.Generator().manual_seed(4)
    steps = torch.cartesian_prod(*[torch.arange(8)] * 3)
    factors = torch.linspace(-1, 1, 8)[steps]
    p, r = (torch.linalg.qr(torch.randn(12, width, generator=g))[0] for width in (3, 12))
    x = nonlinearity(2 * factors @ p.T) @ r.T
    x = x - x.mean(0)
    return from_arrays(0.25 * x / x.square().mean().sqrt(), steps, names=["a", "b", "c"], name="product"), factors


def rotating_half_disc(n: int = 96, side: int = 32) -> tuple[OwnData, Float[Tensor, " n"]]:
    """Generate images of a half disc that is rotated by a full turn in n steps.

    Args:
        n: Number of images.
        side: Height and width of an image in pixels. The edges of the half disc are blurred over one pixel.

    Returns:
        The dataset, with images of shape (1, side, side), and the angles (n,) in radians.
    """
    grid = (torch.arange(side, dtype=torch.float64) + 0.5) / side * 2 - 1
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    angles = torch.arange(n) * 2 * math.pi / n
    inside = (side / 2 * (0.8 - (x * x + y * y).sqrt()) + 0.5).clamp(0, 1)
    images = []
    for angle in angles.tolist():
        front = (side / 2 * (x * math.cos(angle) + y * math.sin(angle)) + 0.5).clamp(0, 1)
        images.append((255 * inside * front).byte())
    return from_arrays(
        torch.stack(images), torch.arange(n)[:, None], names=["angle"], name="turning", discrete="angle"
    ), angles


def circular_correlation(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> float:
    """Return the correlation of two sets of angles, as defined by Fisher & Lee (1983).

    It is 1 if the sets differ by a rotation, and -1 if they differ by a reflection.
    """
    da, db = ((v[:, None] - v).sin().double() for v in (a, b))
    return float((da * db).sum() / (da.square().sum() * db.square().sum()).sqrt())


def step_unevenness(codes: Float[Tensor, "n d"]) -> float:
    """Return the maximum distance between the codes of successive angles, divided by the mean distance.

    `codes` contains the codes of n equally spaced angles of a full circle, in order.
    """
    steps = (codes.roll(-1, 0) - codes).norm(dim=1)
    return float(steps.max() / steps.mean())


def largest_neighbour_angle(codes: Float[Tensor, "n d"]) -> float:
    """Return the largest angle in radians between an example and the example whose code is nearest to its own.

    `codes` contains the codes of n equally spaced angles of a full circle, in order. If the codes form a circle without
    folds, the result is 2 pi / n.
    """
    n = len(codes)
    distances = torch.cdist(codes, codes).fill_diagonal_(math.inf)
    steps = (distances.argmin(1) - torch.arange(n)).abs()
    return float(torch.minimum(steps, n - steps).max() * 2 * math.pi / n)
