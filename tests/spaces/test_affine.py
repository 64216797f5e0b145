"""Tests of affine maps: the matrix exponential, three parametrisations, inverses and the decomposition."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable

import pytest
import scipy.linalg
import torch
from torch import Tensor
from torch.func import grad, vmap

from unbraid.spaces import affine
from unbraid.spaces.expm import compose, expm, expm1
from unbraid.spaces.transformers import AffineDiffeomorphic

KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "affine": affine.affine,
    "affine_decomposed": affine.affine_decomposed,
    "affine_diffeomorphic": affine.affine_diffeomorphic,
}
all_kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


def random_generators(n: int, norm: float = 1.0) -> Tensor:
    """Return n random generators. The maximum over the rows of the sum of absolute values is `norm`."""
    g = torch.randn(n, 2, 3, dtype=torch.float64)
    return norm * g / g.abs().sum(-1).amax(-1)[:, None, None]


def append_zero_row(g: Tensor) -> Tensor:
    """Append a row of zeros, which makes the matrices square."""
    return torch.cat([g, torch.zeros_like(g[..., :1, :])], -2)


def relative_error(found: Tensor, expected: Tensor) -> float:
    size = expected.abs().amax((-2, -1), keepdim=True)
    return float(((found - expected).abs() / size).max())


@pytest.mark.parametrize("norm", [1e-6, 0.1, 1.0, 3.0, 10.0])
def test_exponential_equals_pytorch_and_scipy(norm: float) -> None:
    """This holds in the documented range of norms. The second tolerance is larger because SciPy is less accurate."""
    g = random_generators(200, norm)
    ours = expm(g)
    assert relative_error(ours, torch.linalg.matrix_exp(append_zero_row(g))[:, :2]) < 3e-14
    assert relative_error(ours, torch.tensor(scipy.linalg.expm(append_zero_row(g).numpy()))[:, :2]) < 5e-12


def test_exponential_of_special_matrices() -> None:
    """The matrices are a translation, which is nilpotent, zero, a rotation and a scaling."""
    shift, zero = torch.tensor([[0.0, 0, 2], [0, 0, -1]]), torch.zeros(2, 3)
    assert torch.equal(expm1(shift), shift)
    assert torch.equal(expm1(zero), zero)
    rotation = expm(torch.tensor([[0.0, -math.pi / 3, 0], [math.pi / 3, 0, 0]], dtype=torch.float64))
    assert rotation[:, :2].flatten().tolist() == pytest.approx([0.5, -math.sqrt(0.75), math.sqrt(0.75), 0.5], abs=1e-14)
    scaling = expm(torch.tensor([[2.0, 0, 0], [0, -3.0, 0]], dtype=torch.float64))
    assert scaling.diagonal().tolist() == pytest.approx([math.exp(2), math.exp(-3)], rel=1e-13)


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9])
def test_small_maps_have_small_relative_errors(size: float) -> None:
    g = random_generators(50, size)
    expected = torch.linalg.matrix_exp(append_zero_row(g))[:, :2] - torch.eye(2, 3, dtype=g.dtype)
    assert relative_error(expm1(g), expected) < 1e-15 / size + 1e-15
    assert relative_error(expm1(g.float()).double(), expm1(g)) < 1e-6


def test_accuracy_of_the_exponential_decreases_gradually_for_large_norms() -> None:
    for norm, error in ((16.0, 1e-12), (32.0, 1e-9), (64.0, 1e-5)):
        g = random_generators(50, norm)
        assert relative_error(expm(g), torch.linalg.matrix_exp(append_zero_row(g))[:, :2]) < error
    assert expm(random_generators(50, 80.0).float()).isfinite().all()


def test_exponential_of_the_negative_generator_is_the_inverse() -> None:
    """The error is below 1e-12. The determinant of the map is the exponential of the trace of the generator."""
    g = random_generators(200, 2.0)
    forward, inverse = expm(g), expm(-g)
    both = torch.cat([compose(forward, inverse)[..., :2], forward[..., :2] @ inverse[..., 2:] + forward[..., 2:]], -1)
    assert float((both - torch.eye(2, 3, dtype=g.dtype)).abs().max()) < 1e-12
    trace = g[:, 0, 0] + g[:, 1, 1]
    assert affine.determinant(forward).tolist() == pytest.approx(trace.exp().tolist(), rel=1e-12)


@pytest.mark.parametrize("squarings", [0, 5])
def test_gradients_of_the_exponential_equal_finite_differences(squarings: int) -> None:
    g = random_generators(3).requires_grad_()
    assert torch.autograd.gradcheck(lambda g: expm1(g, squarings), (g,))
    assert torch.autograd.gradcheck(lambda g: expm1(g, squarings), (torch.zeros_like(g).requires_grad_(),))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_exponential_kernel_equals_tensor_operations(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients of diffeomorphic maps agree, with and without vmap.

    Without a GPU, the kernel runs in Triton's interpreter.
    """
    pytest.importorskip("triton", reason="Triton is not installed here")
    if (device == "cpu") != importlib.import_module("unbraid.accel.kernels.jit").is_interpreted():
        pytest.skip("Triton's interpreter is used only without a GPU")
    kind, gamma, upstream = AffineDiffeomorphic(), 2 * torch.randn(3, 5, 6), torch.randn(3, 5, 2, 3)
    gamma[0, 0] = 0.0

    def loss(g: Tensor, weight: Tensor) -> Tensor:
        return (kind.matrix(g) * weight).sum()

    expected = vmap(kind.matrix)(gamma.double()), vmap(grad(loss))(gamma.double(), upstream.double())
    calls: list[torch.device] = []
    monkeypatch.setattr("unbraid.spaces.expm.supports_kernels", lambda where: calls.append(where) or True)
    moved = gamma.to(device), upstream.to(device)
    stacked = vmap(grad(loss))(*moved)
    single = torch.stack([grad(loss)(*pair) for pair in zip(*moved, strict=True)])
    for found, exact in ((vmap(kind.matrix)(moved[0]), expected[0]), (stacked, expected[1]), (single, expected[1])):
        torch.testing.assert_close(found.cpu().double(), exact, rtol=1e-5, atol=2e-5)
    assert len(calls) == 5


@all_kinds
def test_zero_parameters_give_the_identity(kind: Callable[[Tensor], Tensor]) -> None:
    matrix = kind(torch.zeros(3, 6))
    assert torch.equal(matrix, torch.eye(2, 3).expand(3, 2, 3))
    assert torch.equal(affine.inverse(matrix), matrix)


@all_kinds
def test_inverse_maps_undo_the_maps(kind: Callable[[Tensor], Tensor]) -> None:
    """This holds in both orders. The inverse matrices also equal those of PyTorch."""
    matrix, points = kind(0.3 * torch.randn(50, 6, dtype=torch.float64)), torch.rand(20, 2, dtype=torch.float64)
    back = affine.inverse(matrix)
    for first, second in ((matrix, back), (back, matrix)):
        assert torch.allclose(
            affine.transform_points(second, affine.transform_points(first, points)), points.expand(50, -1, -1)
        )
    exact = torch.linalg.inv(torch.cat([matrix, torch.tensor([0.0, 0, 1]).double().expand(50, 1, 3)], 1))
    assert torch.allclose(back, exact[:, :2])


def test_inverse_of_a_flow_has_negated_parameters() -> None:
    gamma = torch.randn(50, 6, dtype=torch.float64)
    assert torch.allclose(affine.inverse(affine.affine_diffeomorphic(gamma)), affine.affine_diffeomorphic(-gamma))


def test_a_singular_map_has_no_inverse() -> None:
    """Only `affine.affine` can produce singular maps. Their inverses are not finite."""
    gamma = torch.tensor([[-1.0, 0, 0.3, 0, -1.0, 0.2]])
    assert not affine.inverse(affine.affine(gamma)).isfinite().any()
    near = gamma * torch.tensor([1 - 1e-4, 1, 1, 1, 1 - 1e-4, 1])
    assert float(affine.inverse(affine.affine(near)).abs().max()) > 1e3
    for kind in (affine.affine_decomposed, affine.affine_diffeomorphic):
        assert affine.inverse(kind(3 * torch.randn(500, 6))).isfinite().all()


@all_kinds
def test_gradients_equal_finite_differences(kind: Callable[[Tensor], Tensor]) -> None:
    gamma = (0.3 * torch.randn(2, 6, dtype=torch.float64)).requires_grad_()
    points = torch.rand(3, 2, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda g, p: affine.transform_points(kind(g), p), (gamma, points))
    assert torch.autograd.gradcheck(lambda g: affine.inverse(kind(g)), (gamma,))


@all_kinds
def test_vmap_equals_a_loop(kind: Callable[[Tensor], Tensor]) -> None:
    gamma, points = torch.randn(4, 3, 6), torch.rand(5, 2)

    def apply_inverse(g: Tensor) -> Tensor:
        return affine.transform_points(affine.inverse(kind(g)), points)

    assert torch.allclose(vmap(apply_inverse)(gamma), torch.stack([apply_inverse(g) for g in gamma]), rtol=1e-5)


def test_each_map_may_have_separate_points() -> None:
    matrix, points = torch.randn(3, 2, 3), torch.rand(3, 7, 2)
    expected = torch.einsum("bij,bnj->bni", matrix[..., :2], points) + matrix[:, None, :, 2]
    assert torch.allclose(affine.transform_points(matrix, points), expected, atol=1e-6)
    assert torch.equal(
        affine.transform_points(matrix, points[0])[1], affine.transform_points(matrix[1:2], points[:1])[0]
    )
