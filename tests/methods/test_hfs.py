"""The distance from a factorised support by loops, and codes for which it is known."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.methods import HFS, Batch
from unbraid.methods.hfs import low_deviations, support_distance
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def all_rows(b: int, d: int) -> Tensor:
    """All b^2 points of the product, for each pair of latents."""
    points = torch.cartesian_prod(torch.arange(b), torch.arange(b))
    return points[:, None].expand(-1, d * (d - 1) // 2, -1)


def distance_by_loops(z: Tensor) -> float:
    """The sum of Hausdorff distances over pairs of latents, with all points of the products."""
    values, total = z.tolist(), 0.0
    for i, j in itertools.combinations(range(z.shape[1]), 2):
        products = itertools.product([row[i] for row in values], [row[j] for row in values])
        total += max(min((x - row[i]) ** 2 + (y - row[j]) ** 2 for row in values) for x, y in products)
    return total


@pytest.mark.parametrize("latents", [1, 2, 4])
def test_distance_equals_its_loops(latents: int) -> None:
    z = torch.randn(7, latents, generator=torch.Generator().manual_seed(latents), dtype=torch.float64)
    assert float(support_distance(z, all_rows(7, latents))) == pytest.approx(distance_by_loops(z), rel=1e-12)


def test_a_grid_has_distance_zero_also_if_it_is_correlated() -> None:
    grid = torch.cartesian_prod(torch.arange(3.0), torch.arange(2.0))
    correlated = torch.cat([grid, torch.tensor([[0.0, 0.0], [2.0, 1.0]]).repeat(10, 1)])
    assert abs(float(torch.corrcoef(correlated.T)[0, 1])) > 0.5
    for codes in (grid, correlated):
        assert float(support_distance(codes, all_rows(len(codes), 2))) == 0


def test_a_diagonal_has_a_known_distance() -> None:
    """Of the points of the product, (0, 4) is farthest from the diagonal of 5 points: its nearest point is (2, 2)."""
    diagonal = torch.arange(5.0)[:, None].repeat(1, 2)
    assert float(support_distance(diagonal, all_rows(5, 2))) == 8


def test_low_deviations_by_hand() -> None:
    z = torch.tensor([[0.0, -2.0], [0.0, 2.0]])
    assert float(low_deviations(z)) == pytest.approx(1 - 1e-3)


def test_weights_of_the_terms(toy: FactorData) -> None:
    net = VAENet(*mlp((16,), 3), likelihood="gaussian")
    batch = Batch(toy.batch(torch.arange(6)), len(toy))
    method = HFS(gamma=2.0, beta=3.0, delta=5.0)
    loss, terms = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))
    torch.testing.assert_close(loss, terms["rec"] + 3 * terms["kl"] + 2 * terms["support"] + 5 * terms["scale"])
    assert 0 < float(terms["support"].detach()) <= distance_by_loops(net.encode(batch.x).mean) + 1e-6


def test_training_lowers_the_distance() -> None:
    """Compared with a beta-VAE that is trained equally, the normalised distance is smaller."""
    distances = []
    for gamma in (0.0, 30.0):
        (run,) = quick_train(None, HFS(gamma=gamma, beta=0.1), steps=300, batch=32)
        assert run.log
        distances.append(run.log[-1]["support"])
    assert distances[1] < 0.7 * distances[0]
