"""DEFT: its stages by hand, the gradients of its groups, and the order of groups in training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from support.training import quick_train
from unbraid.accel.adam import Adam, adam_step
from unbraid.data.dataset import FactorData
from unbraid.methods import DEFT, Batch, BetaVAE
from unbraid.methods.deft import PartitionedEncoder, scale_gradient
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

SMALL = DEFT(beta=8.0, beta_last=2.0, gamma=0.25, iteration_threshold=20.0, group_size=2)


@pytest.mark.parametrize("stage", range(5))
@pytest.mark.parametrize("position", [0, 14_999])
def test_default_stages_by_hand(stage: int, position: int) -> None:
    """With 10 latents there are five groups of two, and stages of 15,000 steps."""
    beta, factors = DEFT().schedule(10, torch.tensor(15_000 * stage + position))
    assert float(beta) == pytest.approx(70 * (4 / 70) ** (stage / 4), rel=1e-5)
    assert factors.tolist() == pytest.approx([0.1] * (2 * stage) + [1.0] * 2 + [0.0] * (8 - 2 * stage))


def test_the_last_stage_lasts_until_the_end() -> None:
    assert SMALL.schedule_end(100) == 20
    for step in (20, 500):
        beta, factors = SMALL.schedule(5, torch.tensor(step))
        assert float(beta) == 2
        assert factors.tolist() == [0.25, 0.25, 0.25, 0.25, 1]


def test_the_last_group_has_the_remaining_latents() -> None:
    net = SMALL.build(mlp, (16,), 5, "gaussian")
    assert isinstance(net.encoder, PartitionedEncoder)
    sizes = [encoder(torch.zeros(1, 16)).shape[1] // 2 for encoder in net.encoder.encoders]
    assert sizes == [2, 2, 1]
    assert SMALL.groups(5) == 3


def test_one_group_needs_no_further_encoder() -> None:
    net = SMALL.build(mlp, (16,), 2, "gaussian")
    assert isinstance(net.encoder, nn.Sequential)
    for step in (0, 30):
        beta, factors = SMALL.schedule(2, torch.tensor(step))
        assert float(beta) == 8
        assert factors.tolist() == [1, 1]


def test_latents_of_a_group_come_from_its_encoder() -> None:
    net, x = SMALL.build(mlp, (16,), 5, "gaussian"), torch.randn(3, 16)
    q = net.encode(x)
    assert isinstance(net.encoder, PartitionedEncoder)
    for latents, encoder in zip((slice(0, 2), slice(2, 4), slice(4, 5)), net.encoder.encoders, strict=True):
        mean, logvar = encoder(x).chunk(2, dim=1)
        assert torch.equal(q.mean[:, latents], mean)
        assert torch.equal(q.logvar[:, latents], logvar)


def test_scaling_a_gradient_keeps_the_value() -> None:
    x = torch.tensor([[0.1, 1e8, -3e-8], [7.0, -0.3, 0.0]], requires_grad=True)
    y = scale_gradient(x, torch.tensor([0.1, 0.0, 1.0]))
    assert torch.equal(y, x)
    (gradient,) = torch.autograd.grad((torch.tensor([[2.0], [3.0]]) * y).sum(), x)
    assert torch.equal(gradient, torch.tensor([[0.2, 0.0, 2.0], [0.3, 0.0, 3.0]]))


def gradients(method: DEFT | BetaVAE, net: VAENet, batch: Batch, step: int) -> tuple[float, dict[str, Tensor]]:
    loss, _ = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(step))
    names, parameters = zip(*net.named_parameters(), strict=True)
    return loss.item(), dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


@pytest.mark.parametrize(
    ("step", "beta", "factors"), [(0, 8.0, (1, 0, 0)), (10, 4.0, (0.25, 1, 0)), (20, 2.0, (0.25, 0.25, 1))]
)
def test_gradients_of_groups_are_those_of_a_beta_vae_times_a_factor(
    step: int, beta: float, factors: tuple[float, ...], toy: FactorData
) -> None:
    """The loss and the gradients of the decoder are those of a beta-VAE with the same networks."""
    torch.manual_seed(0)
    net, batch = SMALL.build(mlp, (16,), 5, "gaussian"), Batch(toy.batch(torch.arange(6)), len(toy))
    loss, found = gradients(SMALL, net, batch, step)
    reference, expected = gradients(BetaVAE(beta=beta), net, batch, step)
    assert loss == pytest.approx(reference, rel=1e-5)
    for name, gradient in found.items():
        group = int(name.split(".")[2]) if name.startswith("encoder.") else None
        factor = 1 if group is None else factors[group]
        torch.testing.assert_close(gradient, factor * expected[name], rtol=1e-4, atol=1e-5)
        assert expected[name].abs().sum() > 0


def test_groups_become_informative_one_after_another(toy: FactorData) -> None:
    """In stage s, exactly the latents of groups 0 to s encode more than 0.3 nats."""
    method = DEFT(beta=1.0, beta_last=0.1, group_size=1, iteration_threshold=400.0)
    for steps, informative in ((200, 1), (400, 2), (600, 3)):
        (run,) = quick_train(None, method, steps=steps, learning_rate=3e-3, batch=32)
        nats = run.posterior(toy.batch(torch.arange(len(toy)))).kl().mean(0)
        assert (nats > 0.3).tolist() == [i < informative for i in range(3)]


def encoders(steps: int, method: DEFT) -> list[Tensor]:
    """The weights of the encoder of each group after some steps."""
    (run,) = quick_train(None, method, steps=steps, latents=4)
    assert isinstance(run.net.encoder, PartitionedEncoder)
    return [nn.utils.parameters_to_vector(encoder.parameters()).detach() for encoder in run.net.encoder.encoders]


def test_encoders_of_other_groups_do_not_change() -> None:
    """Those of later groups stay as initialised. With gamma = 0, those of earlier groups stop when moments decay."""
    method = DEFT(beta=1.0, beta_last=0.1, gamma=0.0, group_size=2, iteration_threshold=5.0)
    start, first, late, end = (encoders(steps, method) for steps in (0, 5, 205, 215))
    assert torch.equal(start[1], first[1])
    assert not torch.equal(start[0], first[0])
    torch.testing.assert_close(late[0], end[0], rtol=0, atol=1e-7)
    assert (late[1] - end[1]).abs().max() > 1e-3


def test_adam_undoes_the_factor_within_5000_steps() -> None:
    """The claim of the docstring: updates for gradients that are suddenly ten times smaller."""
    row, first, second = torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 1)
    rate, updates = torch.tensor([[1.0]]), []
    for t in range(1, 20_001):
        adam_step(row.zero_(), torch.full((1, 1), 1.0 if t <= 15_000 else 0.1), first, second, rate, t, Adam(1.0))
        updates.append(-row.item())
    assert updates[14_999] == pytest.approx(1.0, rel=1e-3)
    assert updates[15_099] < 0.12
    assert 0.7 < updates[-1] < 0.9
