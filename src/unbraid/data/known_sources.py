"""Small datasets with known sources, which methods recover in minutes on a CPU, and measures for circular codes."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.own.arrays import OwnData, from_arrays
from unbraid.data.rendered.toy import nonlinearity

MAX_CONDITION_NUMBER = 5.0  # of a mixing matrix


def mixed_time_series(points: int, sources: int = 5, rho: float = 0.7) -> tuple[OwnData, Float[Tensor, "n k"]]:
    r"""Return a time series that is mixed linearly from independent sources, and the sources.

    .. math:: s_t = \rho s_{t-1} + e_t, \quad x_t = A s_t

    The innovations e have a Laplace distribution such that the sources have unit variance, and A is well-conditioned.
    This is the setting of Hyvarinen & Morioka (2017), AISTATS, with one linear layer of mixing.

    Args:
        points: Number n of points in time.
        sources: Number k of sources.
        rho: Correlation of successive values of a source.

    Returns:
        The data, with rows of shape (k,) in the order of time, and the sources (n, k).
    """
    rng = np.random.default_rng(0)
    innovations = rng.laplace(scale=math.sqrt((1 - rho**2) / 2), size=(points, sources))
    s = np.zeros_like(innovations)
    for t in range(1, points):
        s[t] = rho * s[t - 1] + innovations[t]
    mixing = next(a for a in rng.normal(size=(1000, sources, sources)) if np.linalg.cond(a) < MAX_CONDITION_NUMBER)
    return from_arrays((s @ mixing.T).astype(np.float32), name="series"), torch.from_numpy(s)


def curved_product() -> tuple[OwnData, Float[Tensor, "n k"]]:
    """Return 512 vectors, a smooth curved embedding of three factors of equal strength, and the factors.

    The embedding is an orthonormal mixing, the increasing function `nonlinearity`, and another orthonormal mixing, so
    it is injective. The vectors are scaled to the spread of pixels.

    Returns:
        The data, with rows of shape (12,), and the factors (512, 3).
    """
    g = torch.Generator().manual_seed(4)
    steps = torch.cartesian_prod(*[torch.arange(8)] * 3)
    factors = torch.linspace(-1, 1, 8)[steps]
    p, r = (torch.linalg.qr(torch.randn(12, width, generator=g))[0] for width in (3, 12))
    x = nonlinearity(2 * factors @ p.T) @ r.T
    x = x - x.mean(0)
    return from_arrays(0.25 * x / x.square().mean().sqrt(), steps, names=["a", "b", "c"], name="product"), factors


def rotating_half_disc(n: int = 96, side: int = 32) -> tuple[OwnData, Float[Tensor, " n"]]:
    """Return images of a half disc that is rotated by a full turn in n steps, and the angles.

    Args:
        n: Number of images.
        side: Height and width of an image. Edges are softened over one pixel.

    Returns:
        The data, with images of shape (1, side, side), and the angles (n,) in radians.
    """
    grid = (torch.arange(side, dtype=torch.float64) + 0.5) / side * 2 - 1
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    angles = torch.arange(n) * 2 * math.pi / n
    inside = (side / 2 * (0.8 - (x * x + y * y).sqrt()) + 0.5).clamp(0, 1)
    images = []
    for angle in angles.tolist():
        front = (side / 2 * (x * math.cos(angle) + y * math.sin(angle)) + 0.5).clamp(0, 1)
        images.append((255 * inside * front).byte())
    return from_arrays(torch.stack(images), torch.arange(n)[:, None], names=["angle"], name="turning"), angles


def circular_correlation(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> float:
    """Return the correlation of two sets of angles: 1 for a rotation, -1 for a reflection (Fisher & Lee 1983)."""
    da, db = ((v[:, None] - v).sin().double() for v in (a, b))
    return float((da * db).sum() / (da.square().sum() * db.square().sum()).sqrt())


def step_unevenness(code: Float[Tensor, "n d"]) -> float:
    """Return the longest step between the codes of successive angles of a full circle, divided by the mean step."""
    step = (code.roll(-1, 0) - code).norm(dim=1)
    return float(step.max() / step.mean())


def largest_neighbour_angle(code: Float[Tensor, "n d"]) -> float:
    """Return the largest difference between the angles of a code and of its nearest other code, in radians."""
    n = len(code)
    gap = torch.cdist(code, code).fill_diagonal_(math.inf)
    apart = (gap.argmin(1) - torch.arange(n)).abs()
    return float(torch.minimum(apart, n - apart).max() * 2 * math.pi / n)
