"""Distances to hyperplanes, against distances to points of the hyperplanes and the formula of the Poincare ball."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from unbraid.spaces import poincare
from unbraid.spaces.gyroplanes import Gyroplanes


def layer(d: int, n: int, c: float, seed: int = 0) -> Gyroplanes:
    torch.manual_seed(seed)
    linear = nn.Linear(d, n)
    nn.init.normal_(linear.weight)
    nn.init.normal_(linear.bias)
    return Gyroplanes(linear, c).double().requires_grad_(False)


def moebius_sum(x: Tensor, y: Tensor, c: float) -> Tensor:
    """The sum of two points of the Poincare ball (Ungar 2008)."""
    xx, yy, xy = (x * x).sum(-1, True), (y * y).sum(-1, True), (x * y).sum(-1, True)
    return ((1 + 2 * c * xy + c * yy) * x + (1 - c * xx) * y) / (1 + 2 * c * xy + c**2 * xx * yy)


@pytest.mark.parametrize("c", [0.2, 1.0, 3.0])
def test_distances_are_those_of_the_formula_in_the_ball(c: float) -> None:
    """The distance of Ganea et al. (2018), theorem 5, from the hyperplane through p that is orthogonal to a."""
    gyroplanes, w = layer(3, 5, c), torch.randn(40, 3, dtype=torch.float64)
    length = gyroplanes.weight.norm(dim=1)
    a = gyroplanes.weight / length[:, None]
    p = poincare.to_ball(-(gyroplanes.bias / length)[:, None] * a, c)
    z = moebius_sum(-p[None].expand(40, 5, 3), poincare.to_ball(w, c)[:, None].expand(40, 5, 3), c)
    inner, rest = (z * a).sum(-1), 1 - c * z.square().sum(-1)
    expected = length / math.sqrt(c) * torch.asinh(2 * math.sqrt(c) * inner / rest)
    torch.testing.assert_close(gyroplanes(w), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("c", [0.5, 2.0])
def test_no_point_of_the_hyperplane_is_nearer_than_the_distance(c: float) -> None:
    """In two dimensions, the hyperplane is a geodesic. The nearest of many of its points has the distance."""
    gyroplanes = layer(2, 1, c)
    length = float(gyroplanes.weight.norm())
    normal = gyroplanes.weight[0] / length
    foot = -float(gyroplanes.bias) / length * normal
    steps = torch.linspace(-8, 8, 40_001, dtype=torch.float64)
    along = poincare.translate(foot.expand(40_001, 2), steps[:, None] * torch.stack([-normal[1], normal[0]]), c)
    torch.testing.assert_close(gyroplanes(along), torch.zeros(40_001, 1).double(), rtol=0, atol=1e-4)
    for w in torch.randn(5, 2, dtype=torch.float64):
        distances = poincare.translate(-w.expand(40_001, 2), along, c).norm(dim=1)
        assert abs(float(gyroplanes(w[None]))) / length == pytest.approx(float(distances.min()), abs=1e-4)


def test_without_curvature_it_is_the_linear_layer() -> None:
    linear, w = nn.Linear(4, 6), torch.randn(9, 4)
    torch.testing.assert_close(Gyroplanes(linear, 0.0)(w), linear(w))
    nearly = Gyroplanes(linear, 1e-5)(w)
    torch.testing.assert_close(nearly, linear(w), rtol=0, atol=1e-3)
    assert not torch.equal(nearly, linear(w))


def test_gradients_are_finite_at_the_origin() -> None:
    gyroplanes, w = Gyroplanes(nn.Linear(3, 4), 1.0), torch.zeros(2, 3, requires_grad=True)
    gyroplanes(w).square().sum().backward()
    for x in (w, gyroplanes.weight, gyroplanes.bias):
        assert x.grad is not None
        assert x.grad.isfinite().all()
