"""CascadeVAE-C: its weights by hand and by the loops of the authors' schedule, and the order of latents in training."""

from __future__ import annotations

import pytest
import torch

from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.methods import Batch, BetaVAE, CascadeVAEC
from unbraid.methods.stages import begun_stages
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


@pytest.mark.parametrize(
    ("step", "begun"),
    [(0, 1), (29, 1), (30, 2), (59, 2), (60, 3), (89, 3), (90, 4), (1_000_000, 4)],
)
def test_stages_begin_at_equal_distances(step: int, begun: int) -> None:
    expected = [stage < begun for stage in range(4)]
    assert begun_stages(4, torch.tensor(step), 90.0).tolist() == expected
    assert begun_stages(4, torch.tensor(float(step)), torch.tensor(90.0)).tolist() == expected


def test_a_single_stage_begins_at_once() -> None:
    assert begun_stages(1, torch.tensor(0), 90.0).tolist() == [True]


@pytest.mark.parametrize("step", [0, 19_999, 20_000, 39_999, 100_000, 179_999, 180_000, 299_999])
def test_default_weights_are_those_of_the_authors(step: int) -> None:
    """With 10 latents, one more latent gets the weight 0.1 every 20,000 steps. The others have the weight 10."""
    low = min(step // 20_000, 9) + 1
    expected = [0.1] * low + [10.0] * (10 - low)
    assert CascadeVAEC().weights(10, torch.tensor(step)).tolist() == pytest.approx(expected)


def loss_at(method: CascadeVAEC | BetaVAE, net: VAENet, batch: Batch, step: int) -> tuple[float, dict[str, float]]:
    loss, terms = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(step))
    return loss.item(), {name: term.item() for name, term in terms.items()}


def test_loss_by_hand(toy: FactorData) -> None:
    """At step 5 of 10, two of three latents have the low weight."""
    torch.manual_seed(0)
    net, batch = VAENet(*mlp((16,), 3), likelihood="gaussian"), Batch(toy.batch(torch.arange(6)), len(toy))
    loss, terms = loss_at(CascadeVAEC(beta_high=7.0, beta_low=0.5, iteration_threshold=10.0), net, batch, 5)
    with torch.no_grad():
        q = net.encode(batch.x)
    first, second, third = (
        sum(0.5 * float(m**2 + v.exp() - v - 1) for m, v in zip(q.mean[:, i], q.logvar[:, i], strict=True)) / 6
        for i in range(3)
    )
    assert loss == pytest.approx(terms["rec"] + 0.5 * first + 0.5 * second + 7 * third, rel=1e-5)
    assert terms["kl"] == pytest.approx(first + second + third, rel=1e-5)
    assert terms["beta_mean"] == pytest.approx(8 / 3)


@pytest.mark.parametrize("step", [10, 11, 1000])
def test_the_loss_ends_as_that_of_a_beta_vae(step: int, toy: FactorData) -> None:
    torch.manual_seed(0)
    net, batch = VAENet(*mlp((16,), 3), likelihood="gaussian"), Batch(toy.batch(torch.arange(6)), len(toy))
    method = CascadeVAEC(beta_high=7.0, beta_low=0.5, iteration_threshold=10.0)
    assert method.schedule_end(1) == 10
    last, before = loss_at(method, net, batch, step)[0], loss_at(method, net, batch, 9)[0]
    assert last == pytest.approx(loss_at(BetaVAE(beta=0.5), net, batch, step)[0], rel=1e-6)
    assert before > last + 1e-3


def test_latents_become_informative_one_after_another(toy: FactorData) -> None:
    """In stage i, exactly the first i latents encode more than 0.5 nats."""
    method = CascadeVAEC(beta_high=5.0, beta_low=0.05, iteration_threshold=400.0)
    for steps, informative in ((200, 1), (400, 2), (600, 3)):
        (run,) = quick_train(None, method, steps=steps, learning_rate=3e-3, batch=32)
        nats = run.posterior(toy.batch(torch.arange(len(toy)))).kl().mean(0)
        assert (nats > 0.5).tolist() == [i < informative for i in range(3)]
