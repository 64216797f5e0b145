"""The Poincare VAE: geodesics against the Poincare ball, densities against integrals, and the Euclidean limit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.methods import VAE, Batch, PoincareVAE
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.spaces import poincare


def moebius_sum(x: Tensor, y: Tensor, c: float) -> Tensor:
    """The sum of two points of the Poincare ball (Ungar 2008)."""
    xx, yy, xy = (x * x).sum(-1, True), (y * y).sum(-1, True), (x * y).sum(-1, True)
    return ((1 + 2 * c * xy + c * yy) * x + (1 - c * xx) * y) / (1 + 2 * c * xy + c**2 * xx * yy)


def ball_distance(x: Tensor, y: Tensor, c: float) -> Tensor:
    """The distance of two points of the Poincare ball."""
    return 2 / math.sqrt(c) * torch.atanh(math.sqrt(c) * moebius_sum(-x, y, c).norm(dim=-1))


def vectors(n: int, d: int = 3, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(n, d, dtype=torch.float64)


@pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
def test_translation_is_moebius_addition(c: float) -> None:
    m, v = vectors(200), vectors(200)
    found = poincare.to_ball(poincare.translate(m, v, c), c)
    expected = moebius_sum(poincare.to_ball(m, c), poincare.to_ball(v, c), c)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
def test_lengths_are_distances(c: float) -> None:
    """The coordinates of a point have the length of its distance from the origin, and a geodesic that of its vector."""
    m, v = vectors(200), vectors(200)
    start, end = (poincare.to_ball(w, c) for w in (m, poincare.translate(m, v, c)))
    torch.testing.assert_close(ball_distance(start, end, c), v.norm(dim=1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ball_distance(0 * start, start, c), m.norm(dim=1), rtol=1e-5, atol=1e-6)


def test_functions_and_their_gradients_are_continuous() -> None:
    """The series meet the functions at the end of their range, and gradients at 0 are finite."""
    functions = [poincare.sinhc, poincare.asinhc, poincare.tanhc, poincare.cosh, poincare.coshc, poincare.log_sinhc]
    for function in functions:
        below, above = (torch.tensor(poincare.SMALL * f, dtype=torch.float64) for f in (1 - 1e-9, 1 + 1e-9))
        assert float(function(below) - function(above)) == pytest.approx(0, abs=1e-8)
        zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
        function(zero).backward()
        assert zero.grad is not None
        assert zero.grad.isfinite()
    assert float(poincare.log_sinhc(torch.tensor(1e4))) == pytest.approx(100 - math.log(200), rel=1e-6)


def test_points_far_from_the_origin_are_accurate_in_single_precision() -> None:
    """In coordinates of the ball, all of these points would be rounded to its boundary."""
    m = torch.tensor([[30.0, 0.0]])
    torch.testing.assert_close(poincare.translate(m, torch.tensor([[-2.0, 0.0]]), 1.0), torch.tensor([[28.0, 0.0]]))
    torch.testing.assert_close(poincare.translate(m, torch.tensor([[5.0, 0.0]]), 1.0), torch.tensor([[35.0, 0.0]]))


@pytest.mark.parametrize("c", [0.5, 2.0])
def test_density_integrates_to_one(c: float) -> None:
    """The ratio of posterior and prior, averaged over samples of the prior, is 1."""
    n = 400_000
    torch.manual_seed(1)
    m, logvar = torch.tensor([0.4, -0.3], dtype=torch.float64), torch.tensor([-0.5, -1.0], dtype=torch.float64)
    w = vectors(n, 2)
    v = poincare.translate(-m.expand_as(w), w, c)  # the inverse of the translation by m
    torch.testing.assert_close(poincare.translate(m.expand_as(w), v, c), w, rtol=1e-5, atol=1e-5)
    own = Gaussian(torch.zeros(2).double(), logvar).log_prob(v).sum(1) - poincare.log_volume(v, c)
    prior = Gaussian(torch.zeros(2).double(), torch.zeros(2).double()).log_prob(w).sum(1) - poincare.log_volume(w, c)
    assert float((own - prior).exp().mean()) == pytest.approx(1, abs=0.01)


class FixedPosterior(torch.nn.Module):
    """An encoder that returns the same means and log variances for all examples."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tensor([[0.8, -0.5, -0.7, -1.2]]).expand(len(x), 4)


def test_the_control_variate_does_not_change_the_mean() -> None:
    """The KL of the objective agrees with the mean of log q - log p, and has a smaller variance."""
    net = VAENet(FixedPosterior(), torch.nn.Linear(2, 3), likelihood="gaussian").requires_grad_(False)
    x, method = torch.zeros(200_000, 3), PoincareVAE(curvature=1.0)
    _, terms = method.objective(net, Batch(x, 10), Noise(torch.tensor(1)), torch.tensor(0.0))
    _, ratio = method.posterior_sample(net, x, Noise(torch.tensor(2)))
    assert float(terms["kl"]) == pytest.approx(float(ratio.mean()), abs=0.01)
    euclidean = float(net.encode(x[:1]).kl().sum())
    assert abs(float(terms["kl"]) - euclidean) > 0.1


def test_small_curvatures_approach_the_vae(toy: FactorData) -> None:
    net = VAENet(*mlp((16,), 3), likelihood="gaussian").requires_grad_(False)
    batch = Batch(toy.batch(torch.arange(20)), len(toy))
    noise = [Noise(torch.tensor(5)) for _ in range(4)]
    expected = float(VAE().objective(net, batch, noise[0], torch.tensor(0.0))[0])
    errors = [
        abs(float(PoincareVAE(curvature=c).objective(net, batch, n, torch.tensor(0.0))[0]) - expected)
        for c, n in zip((1.0, 0.1, 0.01), noise[1:], strict=True)
    ]
    assert errors[0] > 3 * errors[1] > 9 * errors[2] > 0


def test_codes_and_traversals() -> None:
    method, net = PoincareVAE(curvature=4.0), VAENet(*mlp((4,), 3))
    q = Gaussian(3 * torch.randn(9, 3), torch.zeros(9, 3))
    ball = method.code(net, q, "ball", Noise(torch.tensor(0)))
    assert (ball.norm(dim=1) <= 0.5).all()
    assert torch.equal(method.code(net, q, "mean", Noise(torch.tensor(0))), q.mean)
    one = Gaussian(q.mean[:1], q.logvar[:1])
    walks = method.traversal(net, one, q, torch.tensor([-1.0, 0.0, 1.0]))
    assert walks.z.shape == (3, 3, 3)
    torch.testing.assert_close(walks.z[:, 1], q.mean[:1].expand(3, 3), rtol=1e-3, atol=1e-3)
