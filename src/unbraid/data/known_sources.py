"""Small data whose sources are known, and measures of a circle: what a method must recover, in minutes on a CPU."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unbraid.data.own.arrays import OwnData, from_arrays
from unbraid.data.rendered.toy import bend

WELL_CONDITIONED = 5.0  # largest over smallest singular value of a mixing


def mixed_time_series(points: int, sources: int = 5, rho: float = 0.7) -> tuple[OwnData, Float[Tensor, "n k"]]:
    r"""A time series mixed from independent sources, in the order of its rows, and the sources.

    .. math:: s_t = \rho s_{t-1} + e_t, \quad x_t = A s_t

    with innovations e of a Laplace distribution that give the sources unit variance, and a well-conditioned A.
    The setting of Hyvarinen & Morioka (2017), AISTATS, with one linear layer of mixing.
    """
    rng = np.random.default_rng(0)
    innovations = rng.laplace(scale=math.sqrt((1 - rho**2) / 2), size=(points, sources))
    s = np.zeros_like(innovations)
    for t in range(1, points):
        s[t] = rho * s[t - 1] + innovations[t]
    mixing = next(a for a in rng.normal(size=(1000, sources, sources)) if np.linalg.cond(a) < WELL_CONDITIONED)
    return from_arrays((s @ mixing.T).astype(np.float32), name="series"), torch.from_numpy(s)


def curved_product() -> tuple[OwnData, Float[Tensor, "n k"]]:
    """512 vectors, a smooth curved embedding of three factors of equal strength, as spread as pixels are; the factors.

    Orthonormal mixing, the increasing `bend`, orthonormal mixing: injective.
    """
    g = torch.Generator().manual_seed(4)
    steps = torch.cartesian_prod(*[torch.arange(8)] * 3)
    factors = torch.linspace(-1, 1, 8)[steps]
    p, r = (torch.linalg.qr(torch.randn(12, width, generator=g))[0] for width in (3, 12))
    x = bend(2 * factors @ p.T) @ r.T
    x = x - x.mean(0)
    return from_arrays(0.25 * x / x.square().mean().sqrt(), steps, names=["a", "b", "c"], name="product"), factors


def rotating_half_disc(n: int = 96, side: int = 32) -> tuple[OwnData, Float[Tensor, " n"]]:
    """A half disc turned through a full circle in n steps, its edge softened over a pixel; the angles in radians."""
    grid = (torch.arange(side, dtype=torch.float64) + 0.5) / side * 2 - 1
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    angles = torch.arange(n) * 2 * math.pi / n
    inside = (side / 2 * (0.8 - (x * x + y * y).sqrt()) + 0.5).clamp(0, 1)
    images = []
    for angle in angles.tolist():
        ahead = (side / 2 * (x * math.cos(angle) + y * math.sin(angle)) + 0.5).clamp(0, 1)
        images.append((255 * inside * ahead).byte())
    return from_arrays(torch.stack(images), torch.arange(n)[:, None], names=["angle"], name="turning"), angles


def circular_correlation(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> float:
    """Of all pairs' differences, as angles: 1 for a rotation, -1 for a reflection (Fisher & Lee 1983)."""
    da, db = ((v[:, None] - v).sin().double() for v in (a, b))
    return float((da * db).sum() / (da.square().sum() * db.square().sum()).sqrt())


def step_unevenness(code: Float[Tensor, "n d"]) -> float:
    """The longest step between the codes of neighbouring angles, full circle, over the average step."""
    step = (code.roll(-1, 0) - code).norm(dim=1)
    return float(step.max() / step.mean())


def largest_fold(code: Float[Tensor, "n d"]) -> float:
    """The farthest two angles are apart whose codes are next to each other, in radians."""
    n = len(code)
    gap = torch.cdist(code, code).fill_diagonal_(math.inf)
    apart = (gap.argmin(1) - torch.arange(n)).abs()
    return float(torch.minimum(apart, n - apart).max() * 2 * math.pi / n)
