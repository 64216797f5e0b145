"""The matrix exponential: scipy, closed forms, gradients, and `vmap`."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from unbraid.spaces.matrix_exponential import matrix_exponential


def random_matrices(scale: float, b: int = 6, m: int = 5) -> Tensor:
    return scale * torch.randn(b, m, m, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("scale", [0.0, 1e-8, 1e-3, 0.1, 1.0, 5.0])
def test_equals_scipy(scale: float) -> None:
    a = random_matrices(scale)
    for own, matrix in zip(matrix_exponential(a), a, strict=True):
        wanted = scipy.linalg.expm(matrix.numpy())
        np.testing.assert_allclose(own.numpy(), wanted, rtol=0, atol=1e-11 * np.abs(wanted).max())


def test_matrices_of_different_norms_do_not_affect_each_other() -> None:
    small, large = random_matrices(1e-3), random_matrices(4.0)
    together = matrix_exponential(torch.stack([small, large]))
    torch.testing.assert_close(together, torch.stack([matrix_exponential(small), matrix_exponential(large)]))


def test_many_turns_of_a_rotation() -> None:
    """The exponential of a skew-symmetric matrix is a rotation, here by 100 radians."""
    turn = torch.tensor([[0.0, -100.0], [100.0, 0.0]], dtype=torch.float64)
    wanted = torch.tensor([[math.cos(100), -math.sin(100)], [math.sin(100), math.cos(100)]], dtype=torch.float64)
    torch.testing.assert_close(matrix_exponential(turn), wanted, rtol=0, atol=1e-10)


def test_float32_is_accurate() -> None:
    a = random_matrices(1.0)
    torch.testing.assert_close(matrix_exponential(a.float()), matrix_exponential(a).float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-3, 0.7, 2.0])
def test_gradients_equal_those_of_torch(scale: float) -> None:
    a, weight = random_matrices(scale).requires_grad_(), random_matrices(1.0)
    (own,) = torch.autograd.grad((matrix_exponential(a) * weight).sum(), a)
    (wanted,) = torch.autograd.grad((torch.linalg.matrix_exp(a) * weight).sum(), a)
    torch.testing.assert_close(own, wanted, rtol=1e-9, atol=1e-9)


def test_gradients_are_numerical_derivatives() -> None:
    assert torch.autograd.gradcheck(matrix_exponential, (random_matrices(0.8, 2, 3).requires_grad_(),))


def test_vmap_of_values_and_gradients() -> None:
    a = random_matrices(1.5).reshape(3, 2, 5, 5)
    gradient = torch.func.grad(lambda one: matrix_exponential(one).square().sum())
    torch.testing.assert_close(torch.func.vmap(matrix_exponential)(a), torch.stack([matrix_exponential(x) for x in a]))
    torch.testing.assert_close(torch.func.vmap(gradient)(a), torch.stack([gradient(x) for x in a]))


def test_nan_stays_in_its_matrix() -> None:
    a = random_matrices(1.0, 2)
    a[0, 1, 2] = math.nan
    found = matrix_exponential(a)
    assert bool(found[0].isnan().any())
    torch.testing.assert_close(found[1], matrix_exponential(a[1]))
