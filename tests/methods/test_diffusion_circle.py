"""A latent circle recovers the angle of a rotating shape, and a latent line cannot."""

from __future__ import annotations

import math

import pytest
import torch

import unbraid as ub
from unbraid.data.known_sources import (
    circular_correlation,
    largest_neighbour_angle,
    rotating_half_disc,
    step_unevenness,
)
from unbraid.methods import BetaVAE
from unbraid.methods.diffusion_vae import DiffusionVAE


@pytest.mark.parametrize(("factor", "expected"), [(1.0, 1.0), (-1.0, -1.0), (2.0, 0.0)])
def test_circular_correlation(factor: float, expected: float) -> None:
    angle = torch.arange(60) * 2 * math.pi / 60
    assert circular_correlation(angle, factor * angle + 0.7) == pytest.approx(expected, abs=1e-6)


def test_measures_distinguish_circles_from_torn_and_folded_curves() -> None:
    angle = torch.arange(60) * 2 * math.pi / 60
    circle, torn, folded = torch.stack([angle.cos(), angle.sin()], 1), angle[:, None], (angle + 0.03).cos()[:, None]
    assert (step_unevenness(circle), largest_neighbour_angle(circle)) == pytest.approx(
        (1.0, 2 * math.pi / 60), rel=1e-3
    )
    assert step_unevenness(torn) == pytest.approx(30, rel=0.01)
    assert largest_neighbour_angle(torn) < 0.2
    assert step_unevenness(folded) < 2
    assert largest_neighbour_angle(folded) > 3


@pytest.mark.slow
def test_circle_recovers_an_angle_that_a_line_cannot() -> None:
    """Codes on a line must either jump between neighbouring angles or be close for distant angles."""
    data, angle = rotating_half_disc()
    images = data.images(slice(None))
    settings = {"steps": 800, "batch": 32, "learning_rate": 1e-3, "net": "mlp", "precision": "fp32", "quiet": True}
    circles = ub.train(DiffusionVAE(walk_steps=5), data, latents=2, seeds=range(3), **settings)
    lines = ub.train(BetaVAE(beta=1.0), data, latents=1, seeds=range(3), **settings)
    for circle, line in zip(circles, lines, strict=True):
        z, code = circle.encode(images), line.encode(images)
        correlation = circular_correlation(angle, circle.encode(images, "angles")[:, 0])
        measures = [
            (step_unevenness(c), largest_neighbour_angle(c), run.log[-1]["rec"])
            for c, run in ((z, circle), (code, line))
        ]
        print(f"correlation {correlation:.4f}")
        print(f"unevenness, folding, reconstruction: circle {measures[0]}, line {measures[1]}")
        assert abs(correlation) > 0.95
        assert step_unevenness(z) < 3
        assert largest_neighbour_angle(z) < 0.3
        assert step_unevenness(code) > 5 or largest_neighbour_angle(code) > 1
