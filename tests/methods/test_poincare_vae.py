"""The Poincare VAE: geodesics against the Poincare ball, densities against integrals, and the Euclidean limit.

`tests/spaces` has the tests of the Riemannian normal distribution and of distances to hyperplanes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.engine_laws import (
    assert_divergence_affects_one_run,
    assert_every_parameter_learns,
    assert_resume_equals_uninterrupted,
    assert_stack_equals_single_runs,
    assert_vmap_equals_one_by_one,
    make_stack,
    terms_before_and_after,
    vary_hyperparameters,
)
from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods import VAE, Batch, PoincareVAE
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.runs.spec import RunSpec
from unbraid.spaces import poincare, riemannian_normal

DISTRIBUTIONS = ["wrapped", "riemannian"]
BOTH_OPTIONS = PoincareVAE(distribution="riemannian", first_layer="gyroplanes")


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


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_control_variate_does_not_change_the_mean(distribution: Any) -> None:
    """The KL of the objective agrees with the mean of log q - log p, and has a smaller variance."""
    net = VAENet(FixedPosterior(), torch.nn.Linear(2, 3), likelihood="gaussian").requires_grad_(False)
    x, method = torch.zeros(30_000, 3), PoincareVAE(curvature=1.0, distribution=distribution)
    _, terms = method.objective(net, Batch(x, 10), Noise(torch.tensor(1)), torch.tensor(0.0))
    _, ratio = method.posterior_sample(net, x, Noise(torch.tensor(2)))
    assert float(terms["kl"]) == pytest.approx(float(ratio.mean()), abs=0.02)
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


def kl_by_integration(m: Tensor, scale: float, c: float) -> float:
    """The sum of q log(q / p) over a square grid of normal coordinates at the origin."""
    side = (torch.arange(120, dtype=torch.float64) + 0.5) / 120 * 14 - 7
    w = torch.stack(torch.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    v = poincare.translate(-m.expand_as(w), w, c)
    own, prior = (
        riemannian_normal.log_density(x, torch.tensor([s], dtype=torch.float64), c) for x, s in ((v, scale), (w, 1.0))
    )
    mass = (own + poincare.log_volume(w, c)).exp() * (14 / 120) ** 2
    return float((mass * (own - prior)).sum())


@pytest.mark.parametrize("c", [0.3, 1.0])
def test_riemannian_kl_equals_numerical_integration(c: float) -> None:
    """The log variances of the posterior are -0.7 and -1.2, and their average is -0.95."""
    net = VAENet(FixedPosterior(), torch.nn.Linear(2, 3), likelihood="gaussian").requires_grad_(False)
    method = PoincareVAE(curvature=c, distribution="riemannian")
    _, terms = method.objective(net, Batch(torch.zeros(20_000, 3), 10), Noise(torch.tensor(1)), torch.tensor(0.0))
    m = torch.tensor([0.8, -0.5], dtype=torch.float64)
    assert float(terms["kl"]) == pytest.approx(kl_by_integration(m, math.exp(-0.475), c), abs=0.01)


def test_riemannian_kl_without_curvature_is_that_of_normal_distributions() -> None:
    q = Gaussian(torch.randn(20, 5), torch.randn(20, 5))
    equal = Gaussian(q.mean, q.logvar.mean(1, keepdim=True).expand(20, 5))
    found = PoincareVAE(curvature=0.0, distribution="riemannian").expected_kl(q)
    torch.testing.assert_close(found, equal.kl().sum(1), rtol=1e-5, atol=1e-5)


def test_samples_of_the_riemannian_prior_have_its_mean_squared_radius() -> None:
    method = PoincareVAE(curvature=2.0, distribution="riemannian")
    found = method.prior_sample(20_000, 4, Noise(torch.tensor(0))).square().sum(1)
    expected = riemannian_normal.mean_squared_radius(torch.ones(1), 4, 2.0)
    assert float(found.mean()) == pytest.approx(float(expected), abs=4 * float(found.std()) / math.sqrt(20_000))
    wrapped = PoincareVAE(curvature=2.0).prior_sample(9, 4, Noise(torch.tensor(0)))
    assert torch.equal(wrapped, Noise(torch.tensor(0)).normal(9, 4))


def test_riemannian_posteriors_have_one_variance() -> None:
    q = Gaussian(torch.randn(6, 3), torch.randn(6, 3))
    outputs = PoincareVAE(distribution="riemannian").encoder_outputs(3)
    torch.testing.assert_close(outputs["log_variance"].compute(q), q.logvar.mean(1))
    assert set(PoincareVAE().encoder_outputs(3)) == {"logvar"}


@pytest.mark.parametrize("c", [0.0, 1.0])
def test_gyroplanes_replace_the_first_layer_of_the_decoder(c: float) -> None:
    """They have the parameters of this layer. Their output differs from it unless the space is Euclidean."""
    nets = []
    for first_layer in ("linear", "gyroplanes"):
        torch.manual_seed(3)
        nets.append(PoincareVAE(curvature=c, first_layer=first_layer).build(mlp, (6,), 3, "gaussian"))  # type: ignore[arg-type]
    shapes = [{name: p.shape for name, p in net.named_parameters()} for net in nets]
    assert shapes[0] == shapes[1]
    z = torch.randn(5, 3)
    difference = float((nets[0].decode(z) - nets[1].decode(z)).abs().max().detach())
    assert difference < 1e-5 if c == 0 else difference > 1e-3


@pytest.mark.parametrize(
    "decoder", [nn.Linear(3, 6), nn.Sequential(nn.Tanh(), nn.Linear(3, 6))], ids=["Linear", "Tanh"]
)
def test_gyroplanes_need_a_sequence_that_starts_with_a_linear_layer(decoder: nn.Module) -> None:
    def builder(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
        return nn.Linear(6, 6), decoder

    with pytest.raises(UserError, match=r"must be an nn.Sequential that starts with nn.Linear .* Choose a network"):
        PoincareVAE(first_layer="gyroplanes").build(builder, (6,), 3, "gaussian")


def test_defaults_are_not_part_of_the_spec() -> None:
    """The ids of runs without the options stay the same."""
    plain, other = (RunSpec(method, "toy", latents=3).to_json() for method in (PoincareVAE(), BOTH_OPTIONS))
    assert "distribution" not in plain
    assert "first_layer" not in plain
    assert "riemannian" in other
    assert "gyroplanes" in other


def test_laws_of_stacks_hold_with_both_options(toy: FactorData, sprites: FactorData) -> None:
    """The runs of a stack have different curvatures, also in the first layers of their decoders."""
    methods = vary_hyperparameters(BOTH_OPTIONS)
    stack = make_stack(methods, toy, [0, 1, 2], [1e-3] * 3)
    curvatures = [tensor for name, tensor in stack.buffers.items() if name.endswith("curvature")]
    assert [c.tolist() for c in curvatures] == [[1.0, 1.5, 2.0]]
    assert_stack_equals_single_runs(methods, sprites)
    assert_vmap_equals_one_by_one(methods, toy)
    assert_every_parameter_learns(BOTH_OPTIONS, toy)
    for vmapped in (False, True):
        assert_divergence_affects_one_run(BOTH_OPTIONS, toy, vmapped)


def test_a_run_with_both_options_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: FactorData) -> None:
    assert_resume_equals_uninterrupted(BOTH_OPTIONS, tmp_path, monkeypatch, data=toy, net="mlp")


def test_loss_falls_with_both_options(toy: FactorData) -> None:
    method = PoincareVAE(beta=0.1, distribution="riemannian", first_layer="gyroplanes")
    before, after = terms_before_and_after(method, toy)
    assert after["rec"] < 0.8 * before["rec"]


def test_wide_riemannian_posteriors_have_finite_samples() -> None:
    """At sigma = 7.4 the distances are about 110, where the squared hyperbolic sine overflows in float32."""
    q = Gaussian(torch.zeros(64, 3, requires_grad=True), torch.full((64, 3), 4.0, requires_grad=True))
    method = PoincareVAE(distribution="riemannian")
    w, v = method.sample(q, Noise(torch.tensor(0)))
    assert bool((v.norm(dim=1) > 50).all())
    torch.testing.assert_close(w, v)  # the geodesics start at the origin
    (w.square().sum() + method.expected_kl(q).sum()).backward()
    assert all(bool(one.grad.isfinite().all()) for one in (q.mean, q.logvar) if one.grad is not None)
