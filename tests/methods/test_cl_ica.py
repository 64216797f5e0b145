"""cl-ica: the loss by loops, and the recovery of sources."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import unbraid as ub
from support.training import quick_train
from unbraid.data import known_sources
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import Batch, ClICA
from unbraid.metrics.mcc import absolute_correlations, best_assignment_mean
from unbraid.nets.mlp import mlp
from unbraid.noise import Noise


def loss_by_loops(h: list[list[float]], partner: list[list[float]], measure: str, temperature: float) -> float:
    def similarity(a: list[float], b: list[float]) -> float:
        pairs = list(zip(a, b, strict=True))
        if measure == "dot":
            norms = math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
            return sum(x * y for x, y in pairs) / norms / temperature
        return -sum(abs(x - y) ** (1 if measure == "l1" else 2) for x, y in pairs) / temperature

    losses = []
    for i, own in enumerate(h):
        exponents = [math.exp(similarity(own, other)) for other in partner]
        losses.append(-math.log(exponents[i] / sum(exponents)))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("measure", ["l1", "l2", "dot"])
def test_loss_equals_its_loops(measure: str, toy: FactorData) -> None:
    method = ClICA(similarity=measure, temperature=0.5)  # type: ignore[arg-type]
    net = method.build(mlp, (16,), 3, "gaussian").requires_grad_(False)
    batch = Batch(toy.batch(torch.arange(10) * 7), len(toy))
    h = net.encode(batch.x).mean.double().tolist()
    loss, terms = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))
    assert float(loss) == pytest.approx(loss_by_loops(h[:5], h[5:], measure, 0.5), rel=1e-5)
    assert 0 <= float(terms["accuracy"]) <= 1


def test_equal_codes_have_the_loss_of_guessing() -> None:
    method = ClICA()
    net = method.build(mlp, (16,), 3, "gaussian").requires_grad_(False)
    loss, _ = method.objective(net, Batch(torch.ones(12, 16), 12), Noise(torch.tensor(0)), torch.tensor(0.0))
    assert float(loss) == pytest.approx(math.log(6), rel=1e-6)


def build_linear_net(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    return nn.Linear(shape[0], 2 * latents), nn.Linear(latents, shape[0])


def test_recovers_the_sources_of_linear_mixtures() -> None:
    """Five sources with Laplace innovations are mixed linearly. Each code becomes one source."""
    data, s = known_sources.mixed_time_series(2**12)
    correlations = []
    for steps in (0, 500):
        (run,) = ub.train(
            ClICA(pairs="consecutive", temperature=0.5), data, steps=steps, batch=256, learning_rate=1e-2, latents=5,
            net=build_linear_net, quiet=True,
        )  # fmt: skip
        codes = run.encode(data.table).double().numpy()
        correlations.append(best_assignment_mean(absolute_correlations(codes, s.numpy())))
    assert correlations[1] > max(0.9, correlations[0] + 0.1)


def test_runs_have_no_decoder_and_codes_of_dot_lie_on_the_sphere(toy: FactorData) -> None:
    (run,) = quick_train(None, ClICA(similarity="dot"))
    assert run.net.decoder is None
    torch.testing.assert_close(run.encode(toy.images(slice(0, 9))).norm(dim=1), torch.ones(9))
    with pytest.raises(UserError, match="must be even"):
        quick_train(None, ClICA(), batch=7)


def test_a_single_pair_is_rejected(toy: FactorData) -> None:
    """The loss of a single pair is always 0, because there is no other partner."""
    with pytest.raises(UserError, match=r"must hold at least two pairs.* Got 2 instead"):
        ClICA().check(toy, 2, 3)
    ClICA().check(toy, 4, 3)
