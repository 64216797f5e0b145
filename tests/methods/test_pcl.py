"""Permutation contrastive learning: its loss from the definition, the laws of methods, and sources it must recover."""

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
    assert_stack_equals_solo,
    assert_vmap_equals_turns,
    before_and_after,
    stack,
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


def noise(seed: int = 1) -> Noise:
    return Noise.of(torch.tensor(seed), torch.tensor(0), 1)


class Given(nn.Module):
    """An encoder whose means are its input; its log variances are none of the method's business."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, torch.full_like(x, math.nan)], 1)


def given(method: PCL, latents: int) -> VAENet:
    return method.extend(VAENet(Given(), nn.Identity(), "gaussian"), latents)


def evaluate(method: PCL, net: VAENet, x: Tensor) -> tuple[float, float]:
    """The loss and the accuracy of a batch of codes."""
    loss, terms = method.objective(net, Batch(x, 100), noise(), torch.tensor(0.0))
    assert set(terms) == {"accuracy"}
    return loss.item(), terms["accuracy"].item()


def shuffled(rows: list[list[float]]) -> list[list[float]]:
    """The same permutation that the objective draws."""
    return [rows[i] for i in noise().uniform(len(rows)).argsort().tolist()]


@pytest.mark.parametrize("a", ["learned", "fixed"])
@pytest.mark.parametrize("normalise", ["batch", "none"])
def test_loss_equals_its_loops(a: Any, normalise: Any) -> None:
    method = PCL(a=a, normalise=normalise)
    net, x = given(method, 3), 2 * torch.randn(12, 3) + 1
    regression = net.regression
    assert isinstance(regression, LaplaceRegression)
    with torch.no_grad():
        for parameter in regression.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    wanted = oracle.Regression(
        *(getattr(regression, name).tolist() for name in ("w1", "w2", "b")),
        a=1.0 if regression.a is None else abs(regression.a.item()),
        m=regression.m.item(),
    )
    h = oracle.standardised(x.tolist(), 1e-5) if normalise == "batch" else x.tolist()
    before, now = h[:6], h[6:]
    positive = [oracle.odds(y, z, wanted) for y, z in zip(now, before, strict=True)]
    negative = [oracle.odds(y, z, wanted) for y, z in zip(now, shuffled(before), strict=True)]
    loss, accuracy = evaluate(method, net, x)
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
    wanted = [0.25 + oracle.component_odds(y, z, *layers) for y, z in zip(now.tolist(), before.tolist(), strict=True)]
    assert len(regression.weights) == 6
    assert regression(now, before).tolist() == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_components_do_not_mix() -> None:
    """A component's network sees that component alone, so r is a sum over components."""
    regression, now, before = ComponentRegression(2, 4), torch.randn(3, 2), torch.randn(3, 2)
    first, second = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    both = regression(now, before) + regression(0 * now, 0 * before)
    apart = regression(first * now, first * before) + regression(second * now, second * before)
    torch.testing.assert_close(both, apart)


def test_start_of_the_regression() -> None:
    regression = LaplaceRegression(3, learned=True)
    values = {name: value.tolist() for name, value in regression.named_parameters()}
    assert values == {"w1": [1.0] * 3, "w2": [-1.0] * 3, "b": [0.0] * 3, "m": [0.0], "a": [1.0]}
    assert "a" not in dict(LaplaceRegression(3, learned=False).named_parameters())
    now, before = torch.tensor([[1.0, -2.0, 0.5]]), torch.tensor([[0.5, -1.0, 1.0]])
    assert regression(now, before).item() == pytest.approx(-(0.5 + 1.0 + 0.5) + 1 + 4 + 0.25)


def test_chance_is_log_two() -> None:
    """Log-odds of 0 whatever comes in: the loss .693 that means nothing was learned."""
    method = PCL()
    net = given(method, 3)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    loss, accuracy = evaluate(method, net, torch.randn(16, 3))
    assert loss == pytest.approx(math.log(2), rel=1e-6)
    assert round(loss, 3) == 0.693
    assert accuracy == 0.5


class Scripted(nn.Module):
    """Log-odds from a script, with what was asked kept."""

    def __init__(self, *answers: list[float]) -> None:
        super().__init__()
        self.answers, self.asked = list(answers), list[tuple[Tensor, Tensor]]()

    def forward(self, now: Tensor, before: Tensor) -> Tensor:
        self.asked.append((now, before))
        return torch.tensor(self.answers[len(self.asked) - 1])


def test_accuracy_splits_at_even_odds() -> None:
    """Log-odds of .3 are a yes: a threshold of .5 on log-odds, as on probabilities, would call them a no."""
    method = PCL()
    net = given(method, 2)
    net.regression = Scripted([0.3, 0.2, -0.1, 4.0], [-0.3, 0.4, -2.0, 0.1])
    loss, accuracy = evaluate(method, net, torch.randn(8, 2))
    assert accuracy == pytest.approx((3 + 2) / 8)
    told = [0.3, 0.2, -0.1, 4.0, 0.3, -0.4, 2.0, -0.1]
    assert loss == pytest.approx(sum(math.log(1 + math.exp(-r)) for r in told) / 8, rel=1e-6)


def test_negatives_are_whole_rows_shuffled() -> None:
    """The later example stays; the earlier ones trade places as wholes, each used once."""
    method = PCL(normalise="none")
    net, x = given(method, 3), torch.randn(64, 3)
    net.regression = script = Scripted([0.0] * 32, [0.0] * 32)
    evaluate(method, net, x)
    (now, before), (again, other) = script.asked
    assert torch.equal(before, x[:32])
    assert torch.equal(now, x[32:])
    assert torch.equal(again, now)
    assert sorted(other.tolist()) == sorted(before.tolist())
    assert (other != before).any(1).sum() > 24


def test_standardised_is_batch_normalisation() -> None:
    x = 3 * torch.randn(50, 4) + 2
    torch.testing.assert_close(standardise(x), nn.BatchNorm1d(4, affine=False)(x))
    torch.testing.assert_close(standardise(torch.ones(5, 2)), torch.zeros(5, 2))


def test_scale_matters_only_without_normalisation() -> None:
    """Codes times 30 plus 5: nothing changes under batch statistics; without them the squares run away."""
    x = torch.randn(32, 3)
    for normalise, same in (("batch", True), ("none", False)):
        method = PCL(normalise=normalise)  # type: ignore[arg-type]
        net = given(method, 3)
        small, large = (evaluate(method, net, y)[0] for y in (x, 30 * x + 5))
        assert (abs(small - large) < 1e-3) == same
        assert same or large > 100


@pytest.mark.parametrize("up", [True, False])
def test_weight_of_squares_is_never_negative(up: bool) -> None:
    """Of equal codes only the squares count. Pushed down, their weight comes to 0 and stays there; up, it is free."""
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
    drawn = method.draw(toy, noise(), 64)
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
    """The encoder goes through kernels, the regression stays as it is, and no decoder is looked for."""
    pytest.importorskip("triton", reason="Triton is not installed here")
    from support.fused_stacks import CLOSE, both, gradients, images, tiny

    plain, fused = both(tiny, [PCL(normalise=normalise)] * 2, images(), batch=6)
    assert fused.storage.copied == ("encoder.row",)
    (values, wanted), (ours, found) = gradients(plain), gradients(fused)
    torch.testing.assert_close(ours, values, rtol=CLOSE, atol=CLOSE)
    for i in range(2):
        parts = fused.layout.unflatten(found[i])
        for name, part in plain.layout.unflatten(wanted[i]).items():
            cancels = normalise == "batch" and name == "encoder.5.bias"  # batch statistics take any offset away
            assert float((parts[name] - part).norm()) <= (1e-5 if cancels else CLOSE * float(part.norm())), name


@each_variant
def test_vmap_equals_turns(method: PCL, toy: FactorData) -> None:
    assert_vmap_equals_turns([method] * 3, toy)


@each_variant
def test_stack_equals_solo(method: PCL, toy: FactorData) -> None:
    assert_stack_equals_solo([method] * 3, toy)


@each_variant
def test_every_parameter_learns(method: PCL, toy: FactorData) -> None:
    assert not any(name.startswith("decoder") for name in stack([method], toy).layout.shapes)
    assert_every_parameter_learns(method, toy)


@each_variant
def test_loss_falls_below_chance(method: PCL, toy: FactorData) -> None:
    before, after = before_and_after(method, toy, batch=128)
    assert after["loss"] < before["loss"]
    assert after["loss"] < 0.66 < math.log(2)
    assert after["accuracy"] > 0.6


def test_encoder_begins_as_a_vaes(toy: FactorData) -> None:
    """The same seed gives the same encoder with and without a decoder."""
    pcl, vae = (
        build_net(RunSpec(m, "toy", net="mlp", latents=4), toy.shape, resolve_net("mlp")[1])
        for m in (PCL(), ub.methods.VAE())
    )
    for name, value in pcl.encoder.state_dict().items():
        assert torch.equal(value, vae.encoder.state_dict()[name])
