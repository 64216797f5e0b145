"""The terms of Tripod: densities by loops, decoders with known shares of mixed derivatives, and invariances."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.methods import FSQ, Batch, Tripod
from unbraid.methods.quantised import nearest_values
from unbraid.methods.tripod import multi_information, normalised_hessian_penalty
from unbraid.nets.mlp import mlp
from unbraid.noise import Noise


def density(x: float, centre: float, bandwidth: float) -> float:
    return math.exp(-0.5 * ((x - centre) / bandwidth) ** 2) / (bandwidth * math.sqrt(2 * math.pi))


def information_by_loops(z: Tensor, std: Tensor) -> float:
    rows, (b, d) = z.tolist(), z.shape
    h = [s * (4 / (d + 2)) ** (1 / (d + 4)) * b ** (-1 / (d + 4)) for s in std.tolist()]
    total = 0.0
    for own in rows:
        joint = sum(math.prod(density(own[j], row[j], h[j]) for j in range(d)) for row in rows) / b
        marginals = math.prod(sum(density(own[j], row[j], h[j]) for row in rows) / b for j in range(d))
        total += math.log(joint / marginals) / b
    return total


def sample(b: int, d: int) -> Tensor:
    return torch.randn(b, d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)


@pytest.mark.parametrize("latents", [1, 2, 4])
def test_multi_information_equals_its_loops(latents: int) -> None:
    z = sample(7, latents)
    found = float(multi_information(z, z.std(0)))
    assert found == pytest.approx(information_by_loops(z, z.std(0)), rel=1e-10, abs=1e-12)
    assert latents > 1 or found == pytest.approx(0, abs=1e-12)


def test_multi_information_does_not_depend_on_the_scale() -> None:
    z, scale = sample(9, 3), torch.tensor([0.01, 1.0, 50.0])
    torch.testing.assert_close(multi_information(z * scale, (z * scale).std(0)), multi_information(z, z.std(0)))


def test_dependent_latents_have_more_information() -> None:
    """A full grid has none. Equal latents have much."""
    grid = torch.tensor(list(itertools.product(range(8), repeat=2))).double()
    equal = torch.arange(64).double()[:, None].repeat(1, 2) / 8
    assert float(multi_information(grid, grid.std(0))) == pytest.approx(0, abs=1e-10)
    assert float(multi_information(equal, equal.std(0))) > 0.5


def test_latents_that_do_not_vary_have_finite_gradients(toy: FactorData) -> None:
    method = Tripod()
    net = method.build(mlp, (16,), 3, "gaussian")
    last = list(net.encoder.modules())[-1]
    assert isinstance(last, torch.nn.Linear)
    with torch.no_grad():
        last.weight[0] = 0.0
    loss, _ = method.objective(
        net, Batch(toy.batch(torch.arange(6)), len(toy)), Noise(torch.tensor(0)), torch.tensor(0.0)
    )
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in net.parameters())


def hessian_share(matrices: Tensor, std: Tensor, b: int = 6000) -> float:
    """The penalty of a decoder whose outputs are quadratic forms with these Hessians, (outputs, d, d)."""

    def decode(z: Tensor) -> Tensor:
        return 0.5 * torch.einsum("bi,xij,bj->bx", z, matrices, z)

    return float(
        normalised_hessian_penalty(decode, 0.1 * torch.randn(b, len(std)).double(), std, Noise(torch.tensor(2)))
    )


def test_share_of_mixed_derivatives_is_known() -> None:
    """It is 0 for squares of single latents, 1 for products, and 2 / 3 for the Hessian [[1, 1], [1, 0]]."""
    squares, product = torch.diag_embed(torch.tensor([[1.0, 3.0], [2.0, -1.0]])), torch.tensor([[[0.0, 1.0], [1.0, 0]]])
    mixed = torch.tensor([[[1.0, 1.0], [1.0, 0.0]]])
    ones = torch.ones(2).double()
    assert hessian_share(squares.double(), ones) == pytest.approx(0, abs=1e-8)
    assert hessian_share(product.double(), ones) == pytest.approx(1, rel=0.15)
    assert hessian_share(mixed.double(), ones) == pytest.approx(2 / 3, rel=0.15)


def test_share_does_not_depend_on_the_scale_of_latents() -> None:
    mixed = torch.tensor([[[1.0, 1.0], [1.0, 2.0]]]).double()
    scale = torch.tensor([0.2, 5.0]).double()
    other = mixed / scale[:, None] / scale
    assert hessian_share(other, scale) == pytest.approx(hessian_share(mixed, torch.ones(2).double()), rel=1e-6)


def test_weights_of_the_terms(toy: FactorData) -> None:
    """Each weight is multiplied by the 16 values of an example, and all terms are those of FSQ at its latents."""
    method = Tripod(multi_information=2.0, hessian=3.0)
    net = method.build(mlp, (16,), 3, "gaussian")
    batch = Batch(toy.batch(torch.arange(6)), len(toy))
    loss, terms = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))
    plain, _ = FSQ().objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))
    torch.testing.assert_close(loss, plain + 16 * (2 * terms["multi_information"] + 3 * terms["interaction"]))
    z = net.encode(batch.x).mean.tanh()
    wanted = multi_information(nearest_values(z, method.values(net, z)), z.std(0, correction=0))
    torch.testing.assert_close(terms["multi_information"], wanted, rtol=1e-3, atol=1e-4)


def test_training_lowers_both_terms() -> None:
    """Means over six seeds are compared, because single runs differ between processors."""
    means = []
    for weight in (0.0, 0.1):
        method = Tripod(multi_information=weight, hessian=weight)
        last = [run.log[-1] for run in quick_train(None, method, steps=100, batch=16, seeds=range(6))]
        means.append({name: sum(terms[name] for terms in last) / 6 for name in ("multi_information", "interaction")})
    assert means[1]["multi_information"] < 0.8 * means[0]["multi_information"]
    assert means[1]["interaction"] < 0.5 * means[0]["interaction"]


def test_settings_of_the_paper() -> None:
    assert (Tripod().levels, Tripod().multi_information, Tripod().hessian) == (12, 1e-4, 1e-2)
    assert (Tripod.default_learning_rate, Tripod.swept_field()) == (2e-4, "hessian")
