"""Permutation contrastive learning: its loss from the definition, the laws of methods, and sources it must recover."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import unbraid as ub
from families.contrast import KNOWN
from oracles import contrast as oracle
from training import Killed, assert_same, die_at, flat, quick
from unbraid.data.base import FactorData
from unbraid.engine.stack import Stack
from unbraid.methods.base import Batch
from unbraid.methods.pcl import PCL, ComponentRegression, LaplaceRegression, standardised
from unbraid.nets.build import build_net, name_net
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.spec import RunSpec

VARIANTS = [
    PCL(),
    PCL(a="fixed"),
    PCL(normalise="none"),
    PCL(regression="mlp", width=8),
    PCL(pairs="uniform"),
    PCL(pairs="walk"),
]
NAMES = ["default", "fixed", "unscaled", "mlp", "uniform", "walk"]
each_variant = pytest.mark.parametrize("method", VARIANTS, ids=NAMES)


def stack(
    method: PCL, data: FactorData, seeds: list[int], rates: list[float], vmapped: bool = False, batch: int = 16
) -> Stack:
    net, builder = name_net("locatello" if len(data.shape) == 3 else "mlp")
    specs = [RunSpec(method, data.name, s, 100, batch, r, 4, net) for s, r in zip(seeds, rates, strict=True)]
    return Stack(specs, data, builder, vmapped=vmapped)


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
    torch.testing.assert_close(standardised(x), nn.BatchNorm1d(4, affine=False)(x))
    torch.testing.assert_close(standardised(torch.ones(5, 2)), torch.zeros(5, 2))


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
        assert drawn.changed is None
    else:
        assert drawn.changed is not None
        assert torch.equal(drawn.changed, before != now)


def test_stack_equals_solo(sprites: FactorData) -> None:
    for method in (PCL(), PCL(regression="mlp", width=8)):
        seeds, rates = [3, 1, 4], [1e-3, 3e-3, 1e-4]
        together = stack(method, sprites, seeds, rates)
        for _ in range(4):
            together.advance()
        for i in range(3):
            alone = stack(method, sprites, seeds[i : i + 1], rates[i : i + 1])
            for _ in range(4):
                alone.advance()
            torch.testing.assert_close(together.rows[i], alone.rows[0], rtol=0, atol=0)


@each_variant
def test_vmap_equals_turns(method: PCL, toy: FactorData) -> None:
    a, b = (stack(method, toy, [3, 1, 4], [1e-3, 3e-3, 1e-4], vmapped) for vmapped in (False, True))
    step = torch.tensor(0)
    values, grads = b._gradients(step)
    for x, y in zip(a._gradients_in_turn(step), (values, flat(grads)), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4)
    for _ in range(5):
        a.advance()
        b.advance()
    torch.testing.assert_close(a.last, b.last, rtol=2e-4, atol=1e-3)


def test_vmap_equals_turns_on_images(sprites: FactorData) -> None:
    a, b = (stack(PCL(), sprites, [3, 1], [1e-3, 1e-4], vmapped) for vmapped in (False, True))
    for _ in range(3):
        a.advance()
        b.advance()
    torch.testing.assert_close(a.last, b.last, rtol=2e-4, atol=1e-3)


@pytest.mark.usefixtures("large_tiles", "poisoned")
@pytest.mark.parametrize("normalise", ["batch", "none"])
def test_fused_encoder_has_the_same_gradients(normalise: Any) -> None:
    """The encoder goes through kernels, the regression stays as it is, and no decoder is looked for."""
    pytest.importorskip("triton", reason="Triton is not installed here")
    from fused_stacks import CLOSE, both, gradients, images, tiny

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
def test_every_parameter_learns(method: PCL, toy: FactorData) -> None:
    s = stack(method, toy, [0], [1e-3])
    _, grad = s._gradients_in_turn(torch.tensor(1))
    found = s.layout.unflatten(grad[0])
    assert not any(name.startswith("decoder") for name in found)
    for parameter, g in found.items():
        assert g.abs().sum() > 0, parameter


def losses(method: PCL, data: FactorData, batch: int) -> tuple[float, dict[str, float]]:
    """The mean loss of the first ten steps, and the terms of ten steps after 150 more."""
    s = stack(method, data, [0], [3e-3], batch=batch)
    found = []
    for steps in (10, 150, 10):
        for _ in range(steps):
            s.advance()
        found.append(s.means()[0])
    return found[0]["loss"], found[2]


@each_variant
def test_loss_falls_below_chance(method: PCL, toy: FactorData) -> None:
    before, after = losses(method, toy, 128)
    assert after["loss"] < before
    assert after["loss"] < 0.66 < math.log(2)
    assert after["accuracy"] > 0.6


def test_the_family_says_what_falls(toy: FactorData) -> None:
    known = KNOWN["pcl"]
    assert isinstance(known.gentle, PCL)
    before, after = losses(known.gentle, toy, 16)
    assert after[known.falls] < 0.8 * before


@pytest.mark.parametrize("vmapped", [False, True])
def test_divergence_stays_home(vmapped: bool, toy: FactorData) -> None:
    sick, well = (stack(PCL(), toy, [0, 1, 2], [1e-3] * 3, vmapped) for _ in range(2))
    sick.advance()
    well.advance()
    sick.rows[1, 0] = math.nan
    for _ in range(3):
        sick.advance()
        well.advance()
    torch.testing.assert_close(sick.rows[[0, 2]], well.rows[[0, 2]], rtol=0, atol=0)
    (found,) = sick.divergences()
    assert (found.member, found.step, found.term) == (1, 1, "loss")


def test_resume_gives_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = quick(tmp_path / "a", PCL(), seeds=[0, 1])
    with monkeypatch.context() as patch:
        die_at(patch, 7)
        with pytest.raises(Killed):
            quick(tmp_path / "b", PCL(), seeds=[0, 1], checkpoint_seconds=0)
    for a, b in zip(whole, quick(tmp_path / "b", PCL(), seeds=[0, 1]), strict=True):
        assert_same(a, b)


def test_encoder_begins_as_a_vaes(toy: FactorData) -> None:
    """The same seed gives the same encoder with and without a decoder."""
    pcl, vae = (
        build_net(RunSpec(m, "toy", net="mlp", latents=4), toy.shape, name_net("mlp")[1])
        for m in (PCL(), ub.methods.VAE())
    )
    for name, value in pcl.encoder.state_dict().items():
        assert torch.equal(value, vae.encoder.state_dict()[name])
