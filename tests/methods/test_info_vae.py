"""The maximum mean discrepancy by loops and by its known value for normal distributions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import Batch, InfoVAE
from unbraid.methods.info_vae import squared_mmd
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


def mmd_by_loops(x: Tensor, y: Tensor, kernel: str, bandwidth: float) -> float:
    """The estimate as sums over pairs of different samples."""
    n, d = x.shape
    scale = 2 * d * bandwidth**2

    def k(a: Tensor, b: Tensor) -> float:
        squares = float(((a - b) ** 2).sum())
        return math.exp(-squares / scale) if kernel == "rbf" else scale / (scale + squares)

    pairs = [(i, j) for i in range(n) for j in range(n)]
    within = sum(k(x[i], x[j]) + k(y[i], y[j]) for i, j in pairs if i != j) / (n * (n - 1))
    return within - 2 * sum(k(x[i], y[j]) for i, j in pairs) / n**2


@pytest.mark.parametrize("bandwidth", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("kernel", ["rbf", "imq"])
def test_mmd_equals_its_loops(kernel: str, bandwidth: float) -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 7, 3, generator=g, dtype=torch.float64)
    expected = mmd_by_loops(x, y + 0.5, kernel, bandwidth)
    assert float(squared_mmd(x, y + 0.5, kernel, bandwidth)) == pytest.approx(expected, rel=1e-9)


def test_mmd_of_two_normals_is_known() -> None:
    """The mean of the Gaussian kernel of N(a, I) and N(b, I) is (1 + 4 / C)^(-d / 2) exp(-|a - b|^2 / (C + 4))."""
    g = torch.Generator().manual_seed(1)
    shift, scale = torch.tensor([1.0, 0.5]), 2 * 2
    x, y = torch.randn(2, 3000, 2, generator=g)
    exact = 2 * (1 + 4 / scale) ** -1 * (1 - math.exp(-float(shift.square().sum()) / (scale + 4)))
    assert float(squared_mmd(x + shift, y)) == pytest.approx(exact, abs=0.01)
    assert float(squared_mmd(x, y)) == pytest.approx(0, abs=2e-3)


def test_weights_of_the_terms(toy: FactorData) -> None:
    net = VAENet(*mlp((16,), 3), likelihood="gaussian")
    batch = Batch(toy.batch(torch.arange(6)), len(toy))
    method = InfoVAE(alpha=-2.0, lambda_mmd=10.0, kernel="imq")
    loss, terms = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))
    torch.testing.assert_close(loss, terms["rec"] + 3 * terms["kl"] + 7 * terms["mmd"])


def test_negative_weight_of_the_mmd_is_rejected() -> None:
    with pytest.raises(UserError, match="must be at least 1"):
        InfoVAE(alpha=0.0, lambda_mmd=0.5)
    with pytest.raises(UserError, match="'alpha' parameter of InfoVAE must be finite and <= 1"):
        InfoVAE(alpha=1.5)
