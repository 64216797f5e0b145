"""The adaptive triplet loss by loops, its schedule, and the number of latents that separate examples after training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import AdaTVAE, Batch
from unbraid.methods.ada_tvae import adaptive_triplet_loss, mark_small_differences
from unbraid.methods.triplet_vae import triplet_loss
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def random_means(triplets: int = 6, latents: int = 5) -> Tensor:
    return torch.randn(3 * triplets, latents, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def loss_by_loops(mean: Tensor, margin: float, share: float, ratio: float, power: int) -> float:
    """The mean loss over triplets, one latent at a time."""
    rows, n = mean.tolist(), len(mean) // 3
    total = 0.0
    for a, p, f in zip(rows[:n], rows[n : 2 * n], rows[2 * n :], strict=True):
        differences = [abs(x - y) for x, y in zip(a, f, strict=True)]
        threshold = min(differences) + ratio * (max(differences) - min(differences))
        far = sum(((share if d < threshold else 1.0) * d) ** power for d in differences)
        near = sum(abs(x - y) ** power for x, y in zip(a, p, strict=True))
        total += max(near - far + margin, 0.0) / n
    return total


@pytest.mark.parametrize(("form", "power"), [("l1", 1), ("squared", 2)])
@pytest.mark.parametrize(("share", "ratio"), [(0.5, 0.5), (0.0, 0.9), (1.0, 0.5), (0.3, 0.0)])
def test_loss_equals_its_loops(share: float, ratio: float, form: str, power: int) -> None:
    mean = random_means()
    found = float(adaptive_triplet_loss(mean, 2.0, share, ratio, form))
    assert found == pytest.approx(loss_by_loops(mean, 2.0, share, ratio, power), rel=1e-12)
    if form == "squared" and (share == 1 or ratio == 0):
        assert found == pytest.approx(float(triplet_loss(mean, 2.0)), rel=1e-12)


def test_small_differences_by_hand() -> None:
    """The threshold of the first row is 2, which is not below itself."""
    difference = torch.tensor([[1.0, -3.0, 2.0, -1.5], [4.0, 4.0, 4.0, 4.0]])
    assert mark_small_differences(difference, 0.5).tolist() == [[True, False, False, True], [False] * 4]
    assert not mark_small_differences(difference, 0.0).any()


def test_no_gradient_passes_through_the_choice() -> None:
    """The gradient is that of the loss with fixed factors."""
    mean = random_means().requires_grad_()
    found = torch.autograd.grad(adaptive_triplet_loss(mean, 9.0, 0.5, 0.5, "squared"), mean)[0]
    anchor, near, far = mean.chunk(3)
    scale = 1 - 0.5 * mark_small_differences(anchor - far, 0.5).double()
    fixed = ((anchor - near).square().sum(1) - (scale * (anchor - far)).square().sum(1) + 9).relu().mean()
    torch.testing.assert_close(found, torch.autograd.grad(fixed, mean)[0])


@pytest.mark.parametrize(("step", "share", "ratio"), [(0, 1.0, 0.0), (25, 0.8, 0.2), (50, 0.6, 0.4), (99, 0.6, 0.4)])
def test_schedule_ends_at_the_values_of_the_fields(step: int, share: float, ratio: float, toy: FactorData) -> None:
    net = VAENet(*mlp((16,), 4), likelihood="gaussian")
    batch = Batch(toy.batch(torch.arange(12)), len(toy), steps=100)
    method = AdaTVAE(gamma=2.0, beta=3.0, share=0.6, ratio=0.4, ramp=0.5)
    assert method.schedule_end(100) == 50
    loss, terms = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(float(step)))
    wanted = adaptive_triplet_loss(net.encode(batch.x).mean, 1.0, share, ratio, "l1")
    torch.testing.assert_close(terms["triplet"], wanted)
    torch.testing.assert_close(loss, terms["rec"] + 3 * terms["kl"] + 2 * wanted)


def test_training_concentrates_the_differences(toy: FactorData) -> None:
    """The share of the largest difference between random examples is larger than with an ordinary triplet VAE."""
    a, b = toy.draw(Noise(torch.tensor(9)), 1000).chunk(2)
    largest = []
    for share in (1.0, 0.0):
        method = AdaTVAE(gamma=10.0, beta=0.01, share=share, ratio=0.7, ramp=0.5)
        (run,) = quick_train(None, method, steps=200, learning_rate=3e-3, batch=30, latents=6)
        difference = (run.encode(toy.images(a)) - run.encode(toy.images(b))).abs()
        largest.append(float(difference.amax(1).sum() / difference.sum()))
    assert largest[1] > largest[0] + 0.2


def test_small_batches_raise_with_the_name_of_the_method(toy: FactorData) -> None:
    with pytest.raises(UserError, match="batch of AdaTVAE must hold a triplet"):
        AdaTVAE().check(toy, 2, 3)
