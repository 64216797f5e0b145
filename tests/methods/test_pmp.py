"""The losses and schedules of product manifold projection, compared with hand calculations and plain loops."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from oracles import pmp as loops
from support.pmp_examples import make_noise, random_codes
from unbraid.methods import pmp_losses as losses
from unbraid.methods.pmp import PMP

SPARSITY_CASES = [
    ([[1.0, 0.0, 0.0], [0.0, -2.0, 0.0], [0.0, 0.0, 3.0]], 0.0),  # each coordinate is nonzero in one subspace
    ([[1.0], [-1.0], [0.0]], 2.0),  # the sum is 0, but the coordinate is nonzero in two subspaces
    ([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]], 2.0),  # the loss is averaged over coordinates
    ([[0.0], [0.0], [0.0]], 0.0),
    ([[1.0, 5.0], [2.0, 0.0], [0.0, 0.0]], 2.0),  # (2 + 2) / 2
]


@pytest.mark.parametrize(("vectors", "expected"), SPARSITY_CASES)
def test_sparsity_by_hand(vectors: list[list[float]], expected: float) -> None:
    assert float(losses.sparsity(torch.tensor([vectors, vectors]))) == expected


def test_distance_of_identical_pairs() -> None:
    """All subspaces tie, so the margin term is exactly 10 * 0.05."""
    s = random_codes(6, 10, 4)
    delta = losses.subspace_distances(s, s)
    chosen = losses.changed_subspace(delta, losses.mean_distances(torch.cat([s, s])))
    torch.testing.assert_close(chosen, torch.full_like(chosen, 0.1))
    assert float(losses.distance(delta, chosen)) == pytest.approx(0.5, abs=1e-12)


def test_distance_has_a_constant_without_gradient() -> None:
    """For pairs that are far apart in one of ten subspaces and equal in the others, the distance term is 0.45."""
    first = random_codes(5, 10, 4)
    second = first.clone()
    second[:, 3] += 1.0
    second.requires_grad_()
    delta = losses.subspace_distances(first, second)
    actual = losses.distance(delta, losses.changed_subspace(delta, losses.mean_distances(torch.cat([first, second]))))
    assert float(actual.detach()) == pytest.approx(10 * 0.05 * 9 / 10, abs=1e-12)
    assert round(10 * 0.05 * 9 / 10, 2) == 0.45
    actual.backward()
    assert second.grad is not None
    assert not second.grad.any()


def test_regularisation_is_zero_for_equal_use() -> None:
    """If all pairs differ in the same subspace, the loss is 100 ((1 - 1/k)^2 + (k - 1) / k^2) / k."""
    k = 5
    assert float(losses.regularisation(torch.eye(k, dtype=torch.float64))) == pytest.approx(0, abs=1e-20)
    assert float(losses.regularisation(torch.zeros(3, k, dtype=torch.float64))) == pytest.approx(0, abs=1e-20)
    same = torch.zeros(7, k, dtype=torch.float64)
    same[:, 2] = 1.0
    expected = 100 * ((1 - 1 / k) ** 2 + (k - 1) / k**2) / k
    assert float(losses.regularisation(same)) == pytest.approx(expected)


def test_changed_subspace_uses_normalised_distances() -> None:
    """Subspace 0 has the largest distance, but subspace 1 has the largest distance relative to its scale."""
    delta, scale = torch.tensor([[4.0, 1.0, 0.1]]), torch.tensor([10.0, 1.0, 1.0])
    assert losses.changed_subspace(delta, scale).tolist() == [[0.0, 1.0, 0.0]]


def test_only_regularisation_has_a_gradient_through_the_choice() -> None:
    s = random_codes(6, 3, 4, scale=0.03).requires_grad_()
    delta = losses.subspace_distances(*s.chunk(2))
    assert not losses.changed_subspace(delta, losses.mean_distances(s)).requires_grad
    (grad,) = torch.autograd.grad(losses.regularisation(delta), s)
    assert grad.abs().sum() > 0


@pytest.mark.parametrize("scale", [1.0, 0.02])
@pytest.mark.parametrize(("n", "k", "d"), [(1, 2, 1), (4, 3, 2), (5, 10, 10)])
def test_losses_equal_their_loops(n: int, k: int, d: int, scale: float) -> None:
    s = random_codes(2 * n, k, d, seed=n, scale=scale)
    first, second = s.chunk(2)
    a, b = first.tolist(), second.tolist()
    delta = losses.subspace_distances(first, second)
    torch.testing.assert_close(delta, torch.tensor(loops.subspace_distances(a, b), dtype=torch.float64))
    torch.testing.assert_close(losses.mean_distances(s), torch.tensor(loops.mean_distances(a + b), dtype=torch.float64))
    chosen = losses.changed_subspace(delta, losses.mean_distances(s))
    torch.testing.assert_close(
        chosen, torch.tensor(loops.changed_subspace(a, b), dtype=torch.float64), rtol=1e-6, atol=1e-9
    )
    assert float(losses.sparsity(s)) == pytest.approx(loops.sparsity(a + b))
    assert float(losses.distance(delta, chosen)) == pytest.approx(loops.distance(a, b))
    assert float(losses.regularisation(delta)) == pytest.approx(loops.regularisation(a, b), abs=1e-12)


def test_mixtures_take_one_subspace_from_the_first_example() -> None:
    """2n different mixtures are drawn from the k n possible ones with equal probability. For k = 2, all are drawn."""
    n, k = 4, 3
    first, second = random_codes(n, k, 2, seed=1), random_codes(n, k, 2, seed=2)
    every = {
        (i, b): torch.tensor(loops.mixture(first[b].tolist(), second[b].tolist(), i), dtype=torch.float64)
        for i, b in itertools.product(range(k), range(n))
    }
    counts = dict.fromkeys(every, 0)
    for seed in range(300):
        actual = losses.mix_subspaces(first, second, make_noise(seed))
        assert actual.shape == (2 * n, k, 2)
        names = [name for row in actual for name, mixture in every.items() if torch.equal(row, mixture)]
        assert len(set(names)) == 2 * n
        for name in names:
            counts[name] += 1
    assert all(abs(count - 300 * 2 / k) < 5 * math.sqrt(300 * 2 / k * (1 - 2 / k)) for count in counts.values())
    whole = losses.mix_subspaces(first[:, :2], second[:, :2], make_noise())
    assert len({tuple(row.flatten().tolist()) for row in whole}) == 2 * n


WEIGHTS_BY_EPOCH = [
    (7.5, (0.0, 0.0, 0.0)),
    (8, (0.0357, 0.0029, 0.9643)),
    (10, (0.189, 0.0155, 0.811)),
    (12, (1.0, 0.082, 0.0)),
    (15, (1.0, 1.0, 0.0)),
    (30, (1.0, 1.0, 0.0)),
]


@pytest.mark.parametrize(("epoch", "expected"), WEIGHTS_BY_EPOCH)
def test_schedule_of_the_authors_code(epoch: float, expected: tuple[float, float, float]) -> None:
    actual = losses.schedule(torch.tensor(epoch / 30), "code")
    assert [float(b) for b in actual] == pytest.approx(expected, abs=5e-4)
    assert [float(b) for b in actual] == pytest.approx(loops.weights(epoch, 30, "code"), abs=1e-5)


@pytest.mark.parametrize("preset", ["paper", "code"])
def test_schedules_equal_their_definition(preset: losses.Preset) -> None:
    for tenth in range(301):
        actual = losses.schedule(torch.tensor(tenth / 300, dtype=torch.float64), preset)
        assert [float(b) for b in actual] == pytest.approx(loops.weights(tenth / 10, 30, preset), abs=1e-12)


def test_presets_differ_as_paper_and_code_do() -> None:
    paper, code = (losses.schedule(torch.tensor(7 / 30), preset) for preset in ("paper", "code"))
    assert [float(b) for b in code] == [0, 0, 0]
    assert float(paper.b1) == pytest.approx(math.exp(-25 / 6), rel=1e-4)
    late = losses.schedule(torch.tensor(13 / 30), "paper")
    assert float(late.b3) == pytest.approx(1 - math.exp(-25 / 15), rel=1e-4)  # 1 - b1 would be 0 at this time
    constants = [PMP(preset=p).adam("encoder.0.weight", 5e-4) for p in ("paper", "code")]
    assert [(a.beta1, a.beta2, a.epsilon) for a in constants] == [(0.9, 0.99, 1e-8), (0.9, 0.999, 1e-8)]
