"""ICE-BeeM: the score matching loss by hand, its minimum for normal data, and the recovery of nonstationary sources."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import unbraid as ub
from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.data.known_sources import MAX_CONDITION_NUMBER
from unbraid.data.own.arrays import OwnData
from unbraid.errors import UserError
from unbraid.methods import Batch, ICEBeeM
from unbraid.methods.ice_beem import make_differentiable_twice, score_of_energy
from unbraid.metrics.mcc import absolute_correlations, best_assignment_mean
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

Array = np.ndarray[Any, np.dtype[Any]]
FEATURES = ("augmented", "positive", "linear")


def build_linear_net(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    return nn.Linear(shape[0], 2 * latents), nn.Linear(latents, shape[0])


def linear_case(method: ICEBeeM) -> tuple[VAENet, Batch, Tensor]:
    """A linear encoder of three entries to two features, with random features of y, a batch, and its noise."""
    torch.manual_seed(0)
    net = method.build(build_linear_net, (3,), 2, "gaussian")
    for parameter in cast(nn.Module, net.auxiliary).parameters():
        parameter.data.normal_()
    batch = Batch(torch.randn(4, 3), 4, labels=torch.tensor([0, 2, 1, 2]))
    return net, batch, Noise(torch.tensor(5)).normal(4, 3)


def score_by_hand(net: VAENet, features: str, x: Array, y: int) -> Array:
    r"""The score :math:`-W^T (df/dm) (a + 2 b f)` of an encoder with means m = W x + c."""
    named = {name: value.detach().double().numpy() for name, value in net.named_parameters()}
    weight, mean = named["encoder.weight"][:2], named["encoder.weight"][:2] @ x + named["encoder.bias"][:2]
    slope = named["auxiliary.linear"][y]
    if features == "augmented":
        slope = slope + 2 * np.exp(named["auxiliary.log_square"][y]) * mean
    if features == "positive":
        slope = slope / (1 + np.exp(-mean))
    found: Array = -weight.T @ slope
    return found


@pytest.mark.parametrize("features", FEATURES)
def test_loss_and_denoising_by_hand(features: Any) -> None:
    """The loss is that of denoising score matching, minus the part that does not depend on the score."""
    method = ICEBeeM(sigma=0.4, features=features, values=3)
    net, batch, noise = linear_case(method)
    labels, losses, errors = cast(Tensor, batch.labels).tolist(), [], []
    for x, y, epsilon in zip(batch.x.double().numpy(), labels, noise.double().numpy(), strict=True):
        score = score_by_hand(net, features, x + 0.4 * epsilon, y)
        losses.append(0.5 * ((score + epsilon / 0.4) ** 2).sum() - 0.5 * ((epsilon / 0.4) ** 2).sum())
        errors.append(((0.4 * score + epsilon) ** 2).mean())
    loss, terms = method.objective(net, batch, Noise(torch.tensor(5)), torch.tensor(0.0))
    assert loss.item() == pytest.approx(np.mean(losses), rel=1e-5)
    assert terms["denoising"].item() == pytest.approx(np.mean(errors), rel=1e-5)


def test_an_energy_that_does_not_depend_on_x_has_the_loss_zero() -> None:
    method = ICEBeeM(values=3)
    net, batch, noise = linear_case(method)
    encoder: Any = net.encoder
    encoder.weight.data.zero_()
    loss, terms = method.objective(net, batch, Noise(torch.tensor(5)), torch.tensor(0.0))
    assert loss.item() == 0
    assert terms["denoising"].item() == pytest.approx(float(noise.square().mean()))


def test_score_equals_differences_of_the_energy(toy: FactorData) -> None:
    method = ICEBeeM(values=8)
    net = method.build(mlp, (16,), 3, "gaussian").double().requires_grad_(False)
    x, y, size = toy.batch(torch.arange(3)).double(), torch.tensor([1, 0, 7]), 1e-5
    score = score_of_energy(lambda points: method.energy(net, points, y), x)
    for i, step in enumerate(size * torch.eye(16, dtype=torch.float64)):
        change = method.energy(net, x + step, y) - method.energy(net, x - step, y)
        torch.testing.assert_close(score[:, i], -change / (2 * size), rtol=1e-6, atol=1e-8)


def test_the_true_score_of_normal_data_is_the_minimum() -> None:
    """If f(x) = x and p(x|y) is normal, the noisy data have precision 1 / (v + sigma^2), which determines a and b."""
    method, n = ICEBeeM(sigma=0.5, values=2), 200_000
    g = torch.Generator().manual_seed(0)
    y = torch.randint(2, (n,), generator=g)
    mean, variance = torch.tensor([-1.0, 2.0]), torch.tensor([0.5, 3.0])
    x = (mean[y] + variance[y].sqrt() * torch.randn(n, generator=g))[:, None]
    net = method.build(build_linear_net, (1,), 1, "gaussian")
    encoder, table = cast(Any, net.encoder), cast(Any, net.auxiliary)
    encoder.weight.data[0], encoder.bias.data[0] = 1.0, 0.0
    norms = []
    for precision in (1 / (variance + 0.25), 1 / variance):
        table.linear.data[:, 0], table.log_square.data[:, 0] = -mean * precision, (precision / 2).log()
        loss, _ = method.objective(net, Batch(x, n, labels=y), Noise(torch.tensor(1)), torch.tensor(0.0))
        norms.append(torch.cat(torch.autograd.grad(loss, [table.linear, table.log_square])).norm())
    assert norms[0] < 0.02 < 0.2 < norms[1]


def nonstationary_mixture(points: int = 8192, sources: int = 5, segments: int = 20) -> tuple[OwnData, Array, Array]:
    """Mixtures of normal sources whose variances differ between segments, the sources, and the segment of each row."""
    rng = np.random.default_rng(0)
    segment = rng.integers(0, segments, points)
    s = rng.uniform(0.2, 2.0, (segments, sources))[segment] * rng.normal(size=(points, sources))
    mixing = next(a for a in rng.normal(size=(1000, sources, sources)) if np.linalg.cond(a) < MAX_CONDITION_NUMBER)
    x = s @ mixing.T
    return ub.data.from_arrays((x / x.std()).astype(np.float32), segment[:, None]), s, segment


def mcc_after(data: OwnData, s: Array, steps: int) -> float:
    (run,) = ub.train(
        ICEBeeM(sigma=0.3, values=20), data, steps=steps, batch=256, learning_rate=1e-2, latents=5,
        net=build_linear_net, quiet=True,
    )  # fmt: skip
    return float(best_assignment_mean(absolute_correlations(run.encode(data.table).double().numpy(), s)))


def test_recovers_nonstationary_sources_of_linear_mixtures() -> None:
    """Each code becomes one source. If the labels are permuted, only the covariance of the data can be learned."""
    data, s, segment = nonstationary_mixture()
    permuted = ub.data.from_arrays(data.table, np.random.default_rng(1).permutation(segment)[:, None])
    assert mcc_after(data, s, 600) > 0.99
    assert mcc_after(data, s, 0) < 0.8
    assert mcc_after(permuted, s, 600) < 0.9


@pytest.mark.parametrize("activation", ["silu", "given"])
def test_piecewise_linear_units_are_replaced_because_their_biases_do_not_learn(
    activation: Any, toy: FactorData
) -> None:
    method = ICEBeeM(features="linear", activation=activation)
    net = method.build(mlp, (16,), 3, "gaussian")
    batch = Batch(toy.batch(torch.arange(8)), 8, labels=torch.zeros(8, dtype=torch.long))
    loss, _ = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))
    loss.backward()
    units = {type(module) for module in net.encoder.modules()} & {nn.SiLU, nn.ReLU}
    assert units == {nn.SiLU if activation == "silu" else nn.ReLU}
    biases = [p.grad for name, p in net.encoder.named_parameters() if name in ("1.bias", "3.bias")]
    assert len(biases) == 2
    assert all(grad is not None and bool(grad.any()) == (activation == "silu") for grad in biases)


def test_a_unit_that_occurs_several_times_is_replaced_everywhere() -> None:
    unit = nn.ReLU()
    encoder = nn.Sequential(nn.Linear(4, 4), unit, nn.Linear(4, 4), unit)
    make_differentiable_twice(encoder, smooth=True)
    assert [type(module) for module in encoder] == [nn.Linear, nn.SiLU, nn.Linear, nn.SiLU]


def test_labels_are_those_of_the_drawn_examples(toy: FactorData) -> None:
    drawn = ICEBeeM(factor=2).draw(toy, Noise(torch.tensor(0)), 50)
    assert drawn.labels is not None
    assert torch.equal(drawn.labels, toy.factors(drawn.examples)[:, 2])


@pytest.mark.parametrize("features", FEATURES)
def test_runs_have_no_decoder_and_codes_are_the_features(features: Any, toy: FactorData) -> None:
    (run,) = quick_train(None, ICEBeeM(features=features))
    codes, mean = run.encode(toy.images(slice(0, 9))), run.net.encode(toy.batch(torch.arange(9))).mean.detach()
    torch.testing.assert_close(codes, nn.functional.softplus(mean) if features == "positive" else mean)
    with pytest.raises(UserError, match="This network has no decoder"):
        run.decode(codes)


def build_normalised_net(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    encoder = nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2 * latents))
    return encoder, nn.Linear(latents, shape[0])


def test_unknown_factors_many_values_and_running_statistics_raise(toy: FactorData) -> None:
    with pytest.raises(UserError, match=r"auxiliary factor of ICE-BeeM.*one of the 4 factors of toy.*Got 4 instead"):
        ICEBeeM(factor=4).check(toy, 8, 3)
    with pytest.raises(UserError, match=r"has 8 values, and ICE-BeeM has features for 7\. Use values=8"):
        ICEBeeM(values=7).check(toy, 8, 3)
    with pytest.raises(UserError, match=r"must not store running statistics.*Got BatchNorm1d"):
        quick_train(None, ICEBeeM(), net=build_normalised_net)
