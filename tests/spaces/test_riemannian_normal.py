"""The Riemannian normal distribution: its constant, its samples and their gradients against integrals."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import Tensor

from support.known_codes import Array
from unbraid.noise import Noise
from unbraid.spaces import poincare
from unbraid.spaces import riemannian_normal as rn

CASES = [(0.05, 2, 1.0), (1.0, 1, 1.0), (1.0, 2, 0.1), (1.0, 3, 1.0), (0.5, 10, 2.0), (2.0, 10, 1.0), (6.0, 20, 1.0)]


def log_radial(r: Array, scale: float, d: int, c: float) -> Array:
    """The logarithm of the density of the radius, up to a constant."""
    x = math.sqrt(c) * r
    return -0.5 * (r / scale) ** 2 + (d - 1) * (x + np.log(-np.expm1(-2 * x)) - math.log(2 * math.sqrt(c)))


def radial_integral(scale: float, d: int, c: float, power: int = 0) -> tuple[float, float]:
    """The integral of `r**power` times the density of the radius, divided by exp(peak), and the peak."""
    r = np.linspace(1e-9, 20 * scale + 2 * (d - 1) * math.sqrt(c) * scale**2, 20_001)
    values = log_radial(r, scale, d, c)
    mode, peak = float(r[values.argmax()]), float(values.max())

    def density(r: float) -> float:
        return float(r**power * np.exp(log_radial(np.array(r), scale, d, c) - peak))

    ends = [max(1e-12, mode - 12 * scale), mode, mode + 12 * scale]
    options = {"epsabs": 0, "epsrel": 1e-11, "limit": 400}
    return sum(integrate.quad(density, *pair, **options)[0] for pair in itertools.pairwise(ends)), peak


def log_constant(scale: float, d: int, c: float) -> float:
    total, peak = radial_integral(scale, d, c)
    return math.log(2) + d / 2 * math.log(math.pi) - math.lgamma(d / 2) + math.log(total) + peak


@pytest.mark.parametrize(("scale", "d", "c"), CASES)
def test_the_constant_equals_numerical_integration(scale: float, d: int, c: float) -> None:
    found = float(rn.log_normaliser(torch.tensor([scale], dtype=torch.float64), d, c))
    assert found == pytest.approx(log_constant(scale, d, c), abs=1e-8)
    second, mean = radial_integral(scale, d, c, 2)[0], radial_integral(scale, d, c)[0]
    spread = float(rn.mean_squared_radius(torch.tensor([scale], dtype=torch.float64), d, c))
    assert spread == pytest.approx(second / mean, rel=1e-8)


@pytest.mark.parametrize(("scale", "d", "c"), [(1.0, 2, 1.0), (0.7, 3, 2.0), (1.5, 4, 1.0), (1.0, 8, 0.5)])
def test_the_constant_equals_its_alternating_sum(scale: float, d: int, c: float) -> None:
    """The closed form of the paper (appendix B), with each term computed by scipy and summed exactly."""
    with localcontext() as context:
        context.prec = 40
        total = Decimal(0)
        for k in range(d):
            x = (d - 1 - 2 * k) * math.sqrt(c) * scale
            term = math.exp(x * x / 2) * special.erfc(-x / math.sqrt(2))
            total += (-1) ** k * math.comb(d - 1, k) * Decimal(term)
        area = 2 * math.pi ** (d / 2) / math.gamma(d / 2)
        constant = area * math.sqrt(math.pi / 2) * scale * float(total) / (2 * math.sqrt(c)) ** (d - 1)
    assert float(rn.log_normaliser(torch.tensor([scale], dtype=torch.float64), d, c)) == pytest.approx(
        math.log(constant), abs=1e-6
    )


def grid(n: int, end: float) -> tuple[Tensor, float]:
    """The points of a square grid around the origin, and the area of a cell."""
    side = (torch.arange(n, dtype=torch.float64) + 0.5) / n * 2 * end - end
    return torch.stack(torch.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2), (2 * end / n) ** 2


@pytest.mark.parametrize("c", [0.0, 0.5, 2.0])
def test_density_around_any_point_integrates_to_one(c: float) -> None:
    """The sum over a grid of normal coordinates at the origin, with the volume of each cell."""
    w, cell = grid(140, 7.0)
    m = torch.tensor([0.7, -0.4], dtype=torch.float64)
    v = poincare.translate(-m.expand_as(w), w, c)  # the vector from the mean to each point
    density = rn.log_density(v, torch.tensor([0.6], dtype=torch.float64), c)
    assert float((density + poincare.log_volume(w, c)).exp().sum() * cell) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("scale", "d", "c"), CASES)
def test_samples_follow_the_density(scale: float, d: int, c: float) -> None:
    n = 20_000
    v = rn.sample(torch.full((n,), scale), d, c, Noise(torch.tensor(3))).double()
    r, (_, peak) = v.norm(dim=1).numpy(), radial_integral(scale, d, c)
    spread = float(rn.mean_squared_radius(torch.tensor([scale], dtype=torch.float64), d, c))
    end = math.sqrt(spread) + 9 * scale
    nodes = np.linspace(1e-9, end, 40_001)
    density = np.exp(log_radial(nodes, scale, d, c) - peak)
    distribution = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    assert stats.kstest(r, lambda x: np.interp(x, nodes, distribution / distribution[-1])).pvalue > 1e-3
    directions = (v / v.norm(dim=1, keepdim=True)).mean(0)
    assert float(directions.norm()) < 4 / math.sqrt(n)  # the mean square of this length is 1 / n


@pytest.mark.parametrize("d", [1, 2, 7])
def test_without_curvature_it_is_a_normal_distribution(d: int) -> None:
    scale = torch.full((20_000,), 1.7)
    v = rn.sample(scale, d, 0.0, Noise(torch.tensor(1)))
    assert stats.kstest(v.norm(dim=1).numpy() / 1.7, stats.chi(d).cdf).pvalue > 1e-3
    assert stats.kstest(v[:, 0].numpy() / 1.7, stats.norm.cdf).pvalue > 1e-3
    expected = torch.distributions.Normal(0.0, 1.7).log_prob(v.double()).sum(1)
    torch.testing.assert_close(rn.log_density(v, scale.double(), 0.0), expected, rtol=0, atol=1e-5)


def test_small_curvatures_approach_the_normal_distribution() -> None:
    scale, flat = torch.tensor([1.3]).double(), 2.5 * math.log(2 * math.pi * 1.3**2)
    errors = [abs(float(rn.log_normaliser(scale, 5, c)) - flat) for c in (1.0, 0.1, 0.01, 1e-6)]
    assert errors[0] > 5 * errors[1] > 25 * errors[2] > 0
    assert errors[3] < 1e-4


@pytest.mark.parametrize(("d", "c"), [(2, 1.0), (10, 0.5)])
def test_gradients_of_samples_are_those_of_their_mean(d: int, c: float) -> None:
    """The mean over samples of d r^2 / d scale is the derivative of the mean of r^2."""
    scale = torch.full((40_000,), 0.8, dtype=torch.float64, requires_grad=True)
    uniform = (torch.arange(40_000, dtype=torch.float64) + 0.5) / 40_000
    rn.sample_radii(scale, d, c, uniform).square().sum().backward()
    assert scale.grad is not None
    means = [radial_integral(s, d, c, 2)[0] / radial_integral(s, d, c)[0] for s in (0.799, 0.801)]
    assert float(scale.grad.mean()) == pytest.approx((means[1] - means[0]) / 0.002, rel=2e-3)


def test_extreme_scales_are_finite() -> None:
    scale = torch.tensor([1e-6, 1e-3, 30.0], requires_grad=True)
    v = rn.sample(scale, 10, 1.0, Noise(torch.tensor(0)))
    (v.square().sum() + rn.log_normaliser(scale, 10, 1.0).sum()).backward()
    assert v.isfinite().all()
    assert scale.grad is not None
    assert scale.grad.isfinite().all()


def test_vmap_equals_a_loop() -> None:
    scales, curvatures = torch.rand(3, 8) + 0.2, torch.tensor([0.0, 0.5, 2.0])
    keys = torch.tensor([5, 6, 7])

    def one(scale: Tensor, c: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return rn.sample(scale, 3, c, Noise(key)), rn.log_normaliser(scale, 3, c)

    together = torch.vmap(one)(scales, curvatures, keys)
    for i in range(3):
        for x, y in zip(together, one(scales[i], curvatures[i], keys[i]), strict=True):
            torch.testing.assert_close(x[i], y, rtol=1e-6, atol=1e-6)
