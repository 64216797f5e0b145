"""The loss and the regressions of PCL compared with plain loops, and the shared tests of methods for all variants."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import unbraid as ub
from oracles import contrast as oracle
from support.engine_laws import (
    assert_every_parameter_learns,
    assert_stack_equals_single_runs,
    assert_vmap_equals_one_by_one,
    make_stack,
    terms_before_and_after,
)
from unbraid.data.dataset import FactorData
from unbraid.methods.method import Batch
from unbraid.methods.pcl import PCL, ComponentRegression, LaplaceRegression, standardise
from unbraid.nets.registry import resolve_net
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec

VARIANTS = [
    PCL(),
    PCL(a="fixed"),
    PCL(normalise="none"),
    PCL(regression="mlp", width=8),
    PCL(pairs="uniform"),
    PCL(pairs="walk"),
    PCL(pairs="consecutive"),
]
NAMES = ["default", "fixed", "unscaled", "mlp", "uniform", "walk", "consecutive"]
each_variant = pytest.mark.parametrize("method", VARIANTS, ids=NAMES)


def make_noise(seed: int = 1) -> Noise:
    return Noise.from_seed(torch.tensor(seed), torch.tensor(0), 1)


class IdentityEncoder(nn.Module):
    """An encoder that returns its input as means. The log variances are NaN, because PCL must not use them."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, torch.full_like(x, math.nan)], 1)


def identity_net(method: PCL, latents: int) -> VAENet:
    """Return a network whose codes are equal to the examples."""
    return method.extend(VAENet(IdentityEncoder(), nn.Identity(), "gaussian"), latents)


def compute_loss_and_accuracy(method: PCL, net: VAENet, x: Tensor) -> tuple[float, float]:
    """Return the loss and the accuracy of one batch x."""
    loss, terms = method.objective(net, Batch(x, 100), make_noise(), torch.tensor(0.0))
    assert set(terms) == {"accuracy"}
    return loss.item(), terms["accuracy"].item()


def shuffle_rows(rows: list[list[float]]) -> list[list[float]]:
    """Return the rows in the random order that the objective uses."""
    return [rows[i] for i in make_noise().uniform(len(rows)).argsort().tolist()]


@pytest.mark.parametrize("a", ["learned", "fixed"])
@pytest.mark.parametrize("normalise", ["batch", "none"])
def test_loss_equals_its_loops(a: Any, normalise: Any) -> None:
    method = PCL(a=a, normalise=normalise)
    net, x = identity_net(method, 3), 2 * torch.randn(12, 3) + 1
    regression = net.regression
    assert isinstance(regression, LaplaceRegression)
    with torch.no_grad():
        for parameter in regression.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    expected = oracle.Regression(
        *(getattr(regression, name).tolist() for name in ("w1", "w2", "b")),
        a=1.0 if regression.a is None else abs(regression.a.item()),
        m=regression.m.item(),
    )
    h = oracle.standardised(x.tolist(), 1e-5) if normalise == "batch" else x.tolist()
    before, now = h[:6], h[6:]
    positive = [oracle.log_odds(y, z, expected) for y, z in zip(now, before, strict=True)]
    negative = [oracle.log_odds(y, z, expected) for y, z in zip(now, shuffle_rows(before), strict=True)]
    loss, accuracy = compute_loss_and_accuracy(method, net, x)
    assert loss == pytest.approx(oracle.logistic_loss(positive, negative), rel=1e-4)
    assert accuracy == pytest.approx(oracle.accuracy(positive, negative))


def test_component_networks_equal_their_loops() -> None:
    regression = ComponentRegression(3, 4)
    with torch.no_grad():
        for bias in regression.biases:
            bias.normal_()
        regression.m.fill_(0.25)
    now, before = torch.randn(5, 3), torch.randn(5, 3)
    layers = [[p.detach() for p in group] for group in (regression.weights, regression.biases)]
    expected = [
        0.25 + oracle.component_log_odds(y, z, *layers) for y, z in zip(now.tolist(), before.tolist(), strict=True)
    ]
    assert len(regression.weights) == 6
    assert regression(now, before).tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_components_do_not_interact() -> None:
    """The network of each component depends only on that component, so r is a sum over components."""
    regression, now, before = ComponentRegression(2, 4), torch.randn(3, 2), torch.randn(3, 2)
    first, second = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    both = regression(now, before) + regression(0 * now, 0 * before)
    separate = regression(first * now, first * before) + regression(second * now, second * before)
    torch.testing.assert_close(both, separate)


def test_initial_values_of_the_regression() -> None:
    regression = LaplaceRegression(3, learned=True)
    values = {name: value.tolist() for name, value in regression.named_parameters()}
    assert values == {"w1": [1.0] * 3, "w2": [-1.0] * 3, "b": [0.0] * 3, "m": [0.0], "a": [1.0]}
    assert "a" not in dict(LaplaceRegression(3, learned=False).named_parameters())
    now, before = torch.tensor([[1.0, -2.0, 0.5]]), torch.tensor([[0.5, -1.0, 1.0]])
    assert regression(now, before).item() == pytest.approx(-(0.5 + 1.0 + 0.5) + 1 + 4 + 0.25)


def test_loss_at_chance_is_log_two() -> None:
    """If the log-odds are always 0, the loss is 0.693."""
    method = PCL()
    net = identity_net(method, 3)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    loss, accuracy = compute_loss_and_accuracy(method, net, torch.randn(16, 3))
    assert loss == pytest.approx(math.log(2), rel=1e-6)
    assert round(loss, 3) == 0.693
    assert accuracy == 0.5


class GivenLogOdds(nn.Module):
    """A regression that returns given log-odds and records its inputs."""

    def __init__(self, *answers: list[float]) -> None:
        super().__init__()
        self.answers, self.inputs = list(answers), list[tuple[Tensor, Tensor]]()

    def forward(self, now: Tensor, before: Tensor) -> Tensor:
        self.inputs.append((now, before))
        return torch.tensor(self.answers[len(self.inputs) - 1])


def test_accuracy_has_its_threshold_at_log_odds_of_zero() -> None:
    """Log-odds of 0.3 predict a true pair. With a threshold of 0.5, as for probabilities, they would not."""
    method = PCL()
    net = identity_net(method, 2)
    net.regression = GivenLogOdds([0.3, 0.2, -0.1, 4.0], [-0.3, 0.4, -2.0, 0.1])
    loss, accuracy = compute_loss_and_accuracy(method, net, torch.randn(8, 2))
    assert accuracy == pytest.approx((3 + 2) / 8)
    log_odds = [0.3, 0.2, -0.1, 4.0, 0.3, -0.4, 2.0, -0.1]
    assert loss == pytest.approx(sum(math.log(1 + math.exp(-r)) for r in log_odds) / 8, rel=1e-6)


def test_negatives_are_shuffled_rows() -> None:
    """The second examples of the pairs keep their order. The first examples are permuted as whole rows."""
    method = PCL(normalise="none")
    net, x = identity_net(method, 3), torch.randn(64, 3)
    net.regression = script = GivenLogOdds([0.0] * 32, [0.0] * 32)
    compute_loss_and_accuracy(method, net, x)
    (now, before), (again, other) = script.inputs
    assert torch.equal(before, x[:32])
    assert torch.equal(now, x[32:])
    assert torch.equal(again, now)
    assert sorted(other.tolist()) == sorted(before.tolist())
    assert (other != before).any(1).sum() > 24


def test_standardise_is_batch_normalisation() -> None:
    x = 3 * torch.randn(50, 4) + 2
    torch.testing.assert_close(standardise(x), nn.BatchNorm1d(4, affine=False)(x))
    torch.testing.assert_close(standardise(torch.ones(5, 2)), torch.zeros(5, 2))


def test_scale_matters_only_without_normalisation() -> None:
    """Codes times 30 plus 5 change nothing with batch normalisation; without it the squares become large."""
    x = torch.randn(32, 3)
    for normalise, same in (("batch", True), ("none", False)):
        method = PCL(normalise=normalise)  # type: ignore[arg-type]
        net = identity_net(method, 3)
        small, large = (compute_loss_and_accuracy(method, net, y)[0] for y in (x, 30 * x + 5))
        assert (abs(small - large) < 1e-3) == same
        assert same or large > 100


@pytest.mark.parametrize("up", [True, False])
def test_weight_of_squares_is_never_negative(up: bool) -> None:
    """For pairs with equal codes, r depends only on the squares. Their weight can grow, but not fall below 0."""
    regression = LaplaceRegression(2, learned=True)
    assert regression.a is not None
    codes = torch.full((4, 2), 3.0)
    optimiser = torch.optim.Adam([regression.a], 0.02)
    for _ in range(150):
        r = regression(codes, codes).mean()
        assert r.item() >= 0
        optimiser.zero_grad()
        (-r if up else r).backward()
        assert abs(regression.a.grad.item()) == 18.0  # type: ignore[union-attr]
        optimiser.step()
    assert regression.a.item() > 2 if up else abs(regression.a.item()) < 0.1


@each_variant
def test_draws_pairs_that_differ(method: PCL, toy: FactorData) -> None:
    drawn = method.draw(toy, make_noise(), 64)
    before, now = toy.factors(drawn.examples).chunk(2)
    assert len(before) == len(now) == 32
    assert ((before != now).sum(1) >= 1).all()
    if method.pairs == "walk":
        assert ((before - now).abs().sum(1) == 1).all()
    if method.pairs == "consecutive":
        first, second = drawn.examples.chunk(2)
        assert torch.equal(second, first + 1)
    assert drawn.changed is not None
    assert torch.equal(drawn.changed, before != now)


@pytest.mark.usefixtures("large_tiles", "poisoned")
@pytest.mark.parametrize("normalise", ["batch", "none"])
def test_fused_encoder_has_the_same_gradients(normalise: Any) -> None:
    """Fused kernels compute the encoder but not the regression. There is no decoder."""
    pytest.importorskip("triton", reason="Triton is not installed here")
    from support.fused_stacks import TOLERANCE, gradients_in_checkpoint_order, plain_and_fused, random_images, tiny_net

    plain, fused = plain_and_fused(tiny_net, [PCL(normalise=normalise)] * 2, random_images(), batch=6)
    assert fused.storage.copied == ("encoder.row",)
    (values, expected), (ours, actual) = gradients_in_checkpoint_order(plain), gradients_in_checkpoint_order(fused)
    torch.testing.assert_close(ours, values, rtol=TOLERANCE, atol=TOLERANCE)
    for i in range(2):
        parts = fused.layout.unflatten(actual[i])
        for name, part in plain.layout.unflatten(expected[i]).items():
            cancels = normalise == "batch" and name == "encoder.5.bias"  # batch normalisation removes any offset
            assert float((parts[name] - part).norm()) <= (1e-5 if cancels else TOLERANCE * float(part.norm())), name


@each_variant
def test_vmap_equals_one_by_one(method: PCL, toy: FactorData) -> None:
    assert_vmap_equals_one_by_one([method] * 3, toy)


@each_variant
def test_stack_equals_single_runs(method: PCL, toy: FactorData) -> None:
    assert_stack_equals_single_runs([method] * 3, toy)


@each_variant
def test_every_parameter_learns(method: PCL, toy: FactorData) -> None:
    assert not any(name.startswith("decoder") for name in make_stack([method], toy).layout.shapes)
    assert_every_parameter_learns(method, toy)


@each_variant
def test_loss_falls_below_chance(method: PCL, toy: FactorData) -> None:
    before, after = terms_before_and_after(method, toy, batch=128)
    assert after["loss"] < before["loss"]
    assert after["loss"] < 0.66 < math.log(2)
    assert after["accuracy"] > 0.6


def test_initial_encoder_equals_that_of_a_vae(toy: FactorData) -> None:
    """The same seed gives the same encoder with and without a decoder."""
    pcl, vae = (
        build_net(RunSpec(m, "toy", net="mlp", latents=4), toy.shape, resolve_net("mlp")[1])
        for m in (PCL(), ub.methods.VAE())
    )
    for name, value in pcl.encoder.state_dict().items():
        assert torch.equal(value, vae.encoder.state_dict()[name])
