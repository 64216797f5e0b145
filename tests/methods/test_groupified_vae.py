"""The Groupified VAE: its loss by loops over all actions, encoders with known losses, and active latents."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import Batch, BetaVAE, GroupifiedVAE
from unbraid.methods.groupified_vae import CircleDecoder, isomorphism_loss, random_pairs, squared_distance
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

ORDER = 7


def sample(b: int, d: int) -> Tensor:
    return torch.randn(b, d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)


def warp(z: Tensor) -> Tensor:
    """A function that decodes and encodes latents with an error that depends on all of them."""
    return z + 0.3 * (z.roll(1, 1) * 1.7).sin() + 0.1 * z.sum(1, keepdim=True).cos()


def circle(z: Tensor, latent: int) -> tuple[float, float]:
    angle = 2 * math.pi * float(z[latent]) / ORDER
    return math.sin(angle), math.cos(angle)


def mean_square(u: Tensor, v: Tensor, latents: list[int]) -> float:
    """The mean squared difference of sines and cosines over some latents."""
    pairs = [(circle(u, i), circle(v, i)) for i in latents]
    return sum((a - b) ** 2 for x, y in pairs for a, b in zip(x, y, strict=True)) / (2 * len(latents))


def loss_by_loops(reencode: Callable[[Tensor], Tensor], rows: Tensor, latents: list[int]) -> float:
    """All actions of all active latents, one example at a time, without the simplifications of the implementation."""

    def act(z: Tensor, latent: int, sign: int) -> Tensor:
        moved = z.clone()
        moved[latent] += sign
        return moved

    def again(z: Tensor) -> Tensor:
        return reencode(z[None])[0]

    total = 0.0
    for z in rows:
        for a, b in itertools.combinations(latents, 2):
            first, second = again(act(z, a, 1)), again(act(z, b, 1))
            total += mean_square(act(first, b, 1), act(second, a, 1), latents)
            total += mean_square(act(z, a, 1), first, latents) + mean_square(act(z, b, 1), second, latents)
        for a in latents:
            ahead, behind = again(act(z, a, 1)), again(act(z, a, -1))
            total += mean_square(act(ahead, a, -1), z, latents) + mean_square(act(behind, a, 1), z, latents)
            total += mean_square(act(z, a, 1), ahead, latents) + mean_square(act(z, a, -1), behind, latents)
    return total / len(rows)


@pytest.mark.parametrize("latents", [[0, 1], [1, 3], [0, 1, 2, 3]])
def test_loss_equals_its_loops_over_all_pairs(latents: list[int]) -> None:
    """The mean of the estimates over all pairs of active latents is the loss over all actions."""
    z, active = sample(3, 4), torch.zeros(4, dtype=torch.bool)
    active[latents] = True
    estimates = [
        float(isomorphism_loss(warp, z, active, torch.tensor(pair)[:, None].expand(2, 3), ORDER))
        for pair in itertools.combinations(latents, 2)
    ]
    assert sum(estimates) / len(estimates) == pytest.approx(loss_by_loops(warp, z, latents), rel=1e-10)


def estimate(reencode: Callable[[Tensor], Tensor], d: int = 3, active: Tensor | None = None) -> float:
    kept = torch.ones(d, dtype=torch.bool) if active is None else active
    return float(isomorphism_loss(reencode, sample(5, d), kept, random_pairs(Noise(torch.tensor(0)), kept, 5), ORDER))


def test_loss_of_known_encoders() -> None:
    """It is 0 if latents return up to whole turns. A constant shift by c has the same residual for all actions."""
    assert estimate(lambda z: z) == pytest.approx(0, abs=1e-20)
    assert estimate(lambda z: z.remainder(ORDER)) == pytest.approx(0, abs=1e-20)
    distance = 2 * math.sin(math.pi * 0.5 / ORDER) ** 2
    assert estimate(lambda z: z + 0.5) == pytest.approx((3 * 2 + 3 * 4) * distance, rel=1e-10)


def test_fewer_than_two_active_latents_have_no_loss() -> None:
    for active in (torch.tensor([False, False, False]), torch.tensor([False, True, False])):
        assert estimate(warp, active=active) == 0
    assert estimate(warp, active=torch.tensor([True, True, False])) > 0


def test_pairs_are_active_different_and_equally_likely() -> None:
    active = torch.tensor([True, False, True, True])
    pairs = random_pairs(Noise(torch.tensor(3)), active, 6000)
    counts = {
        pair: int(((pairs == torch.tensor(pair)[:, None]).all(0)).sum())
        for pair in itertools.permutations((0, 2, 3), 2)
    }
    assert sum(counts.values()) == 6000
    assert all(count == pytest.approx(1000, abs=120) for count in counts.values())  # 4 standard deviations


def test_distance_is_that_of_points_on_circles() -> None:
    u, v, active = sample(4, 3), sample(5, 3)[:4], torch.tensor([True, False, True])
    wanted = sum(mean_square(a, b, [0, 2]) for a, b in zip(u, v, strict=True)) / 4
    assert float(squared_distance(u - v, active, ORDER)) == pytest.approx(wanted, rel=1e-12)


def test_decoder_repeats_after_the_order() -> None:
    decoder, z = CircleDecoder(mlp((5,), 6)[1].double(), ORDER), sample(4, 3)
    torch.testing.assert_close(decoder(z + ORDER), decoder(z))
    assert not torch.allclose(decoder(z + ORDER / 2), decoder(z))


def network(method: GroupifiedVAE) -> VAENet:
    torch.manual_seed(0)
    return method.build(mlp, (16,), 3, "gaussian")


def test_terms_by_hand(toy: FactorData) -> None:
    """The loss is that of a beta-VAE plus the isomorphism loss of the latents with a large enough KL, after `start`."""
    settings = {"beta": 3.0, "isomorphism": 5.0, "order": ORDER, "start": 10}
    batch, net = Batch(toy.batch(torch.arange(6)), len(toy)), network(GroupifiedVAE(**settings)).requires_grad_(False)
    q = net.encode(batch.x)
    kl = q.kl().mean(0)
    method = GroupifiedVAE(**settings, min_kl=float(kl.min() + 1e-4))
    chosen = (kl > kl.min()).nonzero().flatten().tolist()
    assert len(chosen) == 2  # so there is only one pair, and the estimate is exact
    plain, _ = BetaVAE(beta=3.0).objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))
    wanted = loss_by_loops(lambda z: net.encode(net.decode(z)).mean, q.mean, chosen)
    for step, isomorphism in ((9.0, 0.0), (10.0, wanted)):
        loss, terms = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(step))
        assert float(terms["active"]) == 2
        assert float(terms["isomorphism"]) == pytest.approx(isomorphism, rel=1e-4)
        assert float(loss - plain) == pytest.approx(5 * isomorphism, rel=1e-3, abs=1e-4)


def test_training_lowers_the_isomorphism_loss() -> None:
    logs = []
    for weight in (0.0, 20.0):
        method = GroupifiedVAE(beta=0.01, isomorphism=weight, start=0, min_kl=0.1)
        (run,) = quick_train(None, method, steps=200, batch=16)
        logs.append(run.log[-1])
    assert logs[0]["active"] == logs[1]["active"] == 3
    assert logs[1]["isomorphism"] < 0.5 * logs[0]["isomorphism"]


def test_settings_of_the_paper() -> None:
    method = GroupifiedVAE()
    assert (method.beta, method.isomorphism, method.order, method.start) == (10.0, 1.0, 15, 2000)
    assert method.min_kl * 32 == 30
    assert GroupifiedVAE.swept_field() == "beta"
    assert method.schedule_end(50_000) == 2000


class OwnLikelihood(nn.Linear):
    """A decoder that computes its own likelihood."""

    def nll(self, x: Tensor, z: Tensor) -> Tensor:
        return (self(z) - x).square().sum(1)


def test_settings_that_cannot_be_trained(toy: FactorData) -> None:
    with pytest.raises(UserError, match=r"needs at least 2. Got 1 instead"):
        quick_train(None, GroupifiedVAE(start=0), latents=1)
    with pytest.raises(UserError, match=r"takes two numbers per latent.*Got OwnLikelihood instead"):
        GroupifiedVAE().build(lambda shape, d: (nn.Linear(16, 2 * d), OwnLikelihood(d, 16)), (16,), 3, "gaussian")
