"""A turning shape: the circle recovers its angle, the line tears it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import unbraid as ub
from unbraid.data.tables import ByteImages
from unbraid.methods import BetaVAE
from unbraid.methods.diffusion_vae import DiffusionVAE


def turning(n: int = 96, side: int = 32) -> ByteImages:
    """A half disc turned through a full circle in n steps, its edge softened over a pixel."""
    grid = (torch.arange(side, dtype=torch.float64) + 0.5) / side * 2 - 1
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    images = []
    for angle in (torch.arange(n) * 2 * math.pi / n).tolist():
        inside = (side / 2 * (0.8 - (x * x + y * y).sqrt()) + 0.5).clamp(0, 1)
        ahead = (side / 2 * (x * math.cos(angle) + y * math.sin(angle)) + 0.5).clamp(0, 1)
        images.append(inside * ahead)
    return ByteImages("turning", ("angle",), (n,), (1, side, side), (255 * torch.stack(images)[:, None]).byte())


def circular_correlation(a: Tensor, b: Tensor) -> float:
    """Of all pairs' differences, as angles: 1 for a rotation, -1 for a reflection (Fisher & Lee 1983)."""
    da, db = ((v[:, None] - v).sin().double() for v in (a, b))
    return float((da * db).sum() / (da.square().sum() * db.square().sum()).sqrt())


def unevenness(code: Tensor) -> float:
    """The longest step between the codes of neighbouring angles, full circle, over the average step."""
    step = (code.roll(-1, 0) - code).norm(dim=1)
    return float(step.max() / step.mean())


def folding(code: Tensor) -> float:
    """The farthest two angles are apart whose codes are next to each other, in radians."""
    n = len(code)
    gap = torch.cdist(code, code).fill_diagonal_(math.inf)
    apart = (gap.argmin(1) - torch.arange(n)).abs()
    return float(torch.minimum(apart, n - apart).max() * 2 * math.pi / n)


@pytest.mark.parametrize(("turned", "expected"), [(1.0, 1.0), (-1.0, -1.0), (2.0, 0.0)])
def test_circular_correlation(turned: float, expected: float) -> None:
    angle = torch.arange(60) * 2 * math.pi / 60
    assert circular_correlation(angle, turned * angle + 0.7) == pytest.approx(expected, abs=1e-6)


def test_tears_and_folds_are_told_from_circles() -> None:
    angle = torch.arange(60) * 2 * math.pi / 60
    circle, torn, folded = torch.stack([angle.cos(), angle.sin()], 1), angle[:, None], (angle + 0.03).cos()[:, None]
    assert (unevenness(circle), folding(circle)) == pytest.approx((1.0, 2 * math.pi / 60), rel=1e-3)
    assert unevenness(torn) == pytest.approx(30, rel=0.01)
    assert folding(torn) < 0.2
    assert unevenness(folded) < 2
    assert folding(folded) > 3


@pytest.mark.slow
def test_circle_recovers_a_turn_that_a_line_tears() -> None:
    """A continuous code on a line cannot have every angle once: it jumps, or it has distant angles side by side."""
    data = turning()
    angle, images = torch.arange(len(data)) * 2 * math.pi / len(data), data.images(slice(None))
    settings = {"steps": 800, "batch": 32, "learning_rate": 1e-3, "net": "mlp", "precision": "fp32", "quiet": True}
    circles = ub.train(DiffusionVAE(walk_steps=5), data, latents=2, seeds=range(3), **settings)
    lines = ub.train(BetaVAE(beta=1.0), data, latents=1, seeds=range(3), **settings)
    for circle, line in zip(circles, lines, strict=True):
        z, code = circle.encode(images), line.encode(images)
        found = circular_correlation(angle, circle.encode(images, "angles")[:, 0])
        told = [(unevenness(c), folding(c), run.log[-1]["rec"]) for c, run in ((z, circle), (code, line))]
        print(f"correlation {found:.4f}; unevenness, folding, reconstruction: circle {told[0]}, line {told[1]}")
        assert abs(found) > 0.95
        assert unevenness(z) < 3
        assert folding(z) < 0.3
        assert unevenness(code) > 5 or folding(code) > 1
