"""Tests of properties that all spatial transformers have, for points and for images."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from unbraid.spaces import cpab
from unbraid.spaces.transformers import (
    TRANSFORMERS,
    AffineDecomposed,
    AffineDiffeomorphic,
    Cpab,
    Transformer,
    to_unit_square,
)
from unbraid.spaces.warp import pixel_centres

ALL_TRANSFORMERS: list[Transformer] = [
    *(kind() for kind in TRANSFORMERS.values()), Cpab(2, 4), Cpab(2, 2, method="squaring")
]  # fmt: skip
all_transformers = pytest.mark.parametrize("t", ALL_TRANSFORMERS, ids=str)


def random_parameters(t: Transformer, b: int = 3, size: float = 0.2) -> Tensor:
    return size * torch.randn(b, t.dim, dtype=torch.float64)


def blob_images(b: int, side: int) -> Tensor:
    """Return images (b, 1, side, side) of Gaussian blobs, which are almost zero at the edges."""
    x, y = pixel_centres(side, side, dtype=torch.float64).T.unflatten(1, (side, side))
    centre = 0.4 + 0.2 * torch.rand(b, 2, 1, 1, dtype=torch.float64)
    return (-((x - centre[:, 0]) ** 2 + (y - centre[:, 1]) ** 2) / 0.02).exp()[:, None]


def test_names_and_dimensions_of_all_transformers() -> None:
    assert list(TRANSFORMERS) == ["affine", "affine_decomposed", "affine_diffeomorphic", "cpab"]
    assert [kind().dim for kind in TRANSFORMERS.values()] == [6, 6, 6, 62]
    assert Cpab(2, 4).dim == 30


@all_transformers
def test_zero_parameters_give_the_identity(t: Transformer) -> None:
    grid, image = pixel_centres(8, 16), torch.rand(2, 3, 8, 16)
    gamma = t.identity(2)
    assert torch.equal(t.points(gamma, grid), grid.expand(2, -1, -1))
    assert torch.equal(t.inverse(gamma, grid), grid.expand(2, -1, -1))
    assert torch.equal(t.forward(image, gamma), image)
    assert torch.equal(t.backward(image, gamma), image)


@pytest.mark.parametrize("t", [*(kind() for kind in list(TRANSFORMERS.values())[:3]), Cpab(steps=1000)], ids=str)
def test_inverse_maps_undo_the_maps(t: Transformer) -> None:
    """The error is below 1e-6. Flows are integrated in 1000 steps. Parameters have standard deviation 0.2."""
    gamma, grid = random_parameters(t), torch.rand(40, 2, dtype=torch.float64)
    moved = t.points(gamma, grid)
    back = torch.cat([t.inverse(gamma[i : i + 1], moved[i]) for i in range(3)])
    assert float((back - grid).abs().max()) < 1e-6


@all_transformers
def test_inverse_warps_restore_images(t: Transformer) -> None:
    """Resampling twice blurs the images, but for smooth 64 x 64 images the error is below -35 dB."""
    image = blob_images(4, 64)
    gamma = random_parameters(t, 4, 0.1)
    restored = t.forward(t.backward(image, gamma), gamma)
    error = (restored - image).square().mean((1, 2, 3))
    assert float(-10 * error.log10().max()) > 35
    assert float((t.forward(image, gamma) - image).square().mean()) > 5 * float(error.mean())


def test_rotations_are_about_the_centre_of_the_image() -> None:
    """The rotation is a quarter turn, in two parametrisations."""
    image, quarter = torch.rand(1, 1, 16, 16), torch.pi / 2
    expected = image.rot90(1, (2, 3))
    by_angle = AffineDecomposed().forward(image, torch.tensor([[quarter, 0, 0, 0, 0, 0]]))
    flow = AffineDiffeomorphic()
    skew = flow.turn * math.atanh(quarter / flow.turn)
    by_flow = flow.forward(image, torch.tensor([[0, -skew, 0, skew, 0, 0]]))
    for found in (by_angle, by_flow):
        assert torch.allclose(found, expected, atol=1e-4)


def test_diffeomorphic_parameters_are_bounded_and_small_ones_unchanged() -> None:
    flow = AffineDiffeomorphic()
    small = 1e-3 * torch.randn(5, 6, dtype=torch.float64)
    torch.testing.assert_close(flow.bounded_parameters(small), small, rtol=1e-5, atol=0)
    far = flow.matrix(1e4 * torch.randn(200, 6, dtype=torch.float64))
    assert bool(far.isfinite().all())
    assert float(torch.linalg.svdvals(far[..., :2]).max()) < math.exp(2 * flow.stretch)
    torch.testing.assert_close(flow.bounded_parameters(-small), -flow.bounded_parameters(small))


def test_conversion_to_the_unit_square() -> None:
    """A map and its conversion give the same point, in coordinates from -1 to 1 and from 0 to 1."""
    matrix, p = torch.randn(2, 3, dtype=torch.float64), torch.rand(7, 2, dtype=torch.float64)
    expected = ((2 * p - 1) @ matrix[:, :2].T + matrix[:, 2] + 1) / 2
    moved = to_unit_square(matrix)
    assert torch.allclose(p @ moved[:, :2].T + moved[:, 2], expected)


@pytest.mark.parametrize("t", [*ALL_TRANSFORMERS[:3], Cpab(2, 2, 10), Cpab(2, 2, 8, "squaring", 6)], ids=str)
def test_gradients_equal_finite_differences(t: Transformer) -> None:
    gamma = random_parameters(t, 1).requires_grad_()
    image = torch.rand(1, 1, 3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda i, g: t.backward(i, g, "border"), (image, gamma))


@all_transformers
def test_vmap_equals_a_loop(t: Transformer) -> None:
    """This holds for a stack of runs, each with separate images and parameters. Gradients are finite."""
    image, gamma = torch.rand(3, 2, 1, 8, 8), 0.3 * torch.randn(3, 2, t.dim)
    gamma.requires_grad_()

    def warp_back_and_forth(i: Tensor, g: Tensor) -> Tensor:
        return t.forward(t.backward(i, g), g)

    mapped = vmap(warp_back_and_forth)(image, gamma)
    looped = torch.stack([warp_back_and_forth(i, g) for i, g in zip(image, gamma, strict=True)])
    assert torch.allclose(mapped, looped, atol=1e-4)
    assert torch.autograd.grad(mapped.sum(), gamma)[0].isfinite().all()


def test_constants_cached_inside_vmap_can_be_used_outside() -> None:
    """The cached basis and grid are ordinary tensors, even if they are first requested inside grad and vmap."""
    t = Cpab(3, 5, 4)
    image, gamma = torch.rand(2, 3, 1, 5, 9), torch.randn(2, 3, t.dim)

    def loss(g: Tensor, i: Tensor) -> Tensor:
        return t.forward(i, g).square().sum()

    inside = vmap(grad(loss))(gamma, image)
    gamma.requires_grad_()
    (outside,) = torch.autograd.grad(vmap(loss)(gamma, image).sum(), gamma)
    assert torch.allclose(inside, outside, atol=1e-5)


class RecordedOperations(TorchDispatchMode):
    """A context that records the names of all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@all_transformers
def test_no_operation_waits_for_the_device(t: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """No operation reads a value or has an output size that depends on values, and constants are created only once.

    The flows use tensor operations here, because the operations of compiled code cannot be recorded.
    """
    monkeypatch.setattr(cpab, "compiled_kernels", lambda *arguments: None)
    image, gamma = torch.rand(3, 2, 1, 8, 8), torch.randn(3, 2, t.dim, requires_grad=True)
    for _ in range(2):
        with RecordedOperations() as recorded:
            warped = vmap(lambda i, g: t.forward(t.backward(i, g), g))(image, gamma)
            torch.autograd.grad(warped.sum(), gamma)
    assert {"grid_sampler_2d", "grid_sampler_2d_backward"} <= recorded.names
    waiting = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "lift_fresh", "unique"}
    assert not waiting & recorded.names
    assert ("scatter_add" in recorded.names) == isinstance(t, Cpab)


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"method must be one of steps, squaring\. Got 'euler'"):
        Cpab(method="euler")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'steps' of a flow must be an integer >= 1\. Got 0"):
        Cpab(steps=0)
    with pytest.raises(ValueError, match="'nx' of a tessellation must be an integer"):
        Cpab(nx=-1)
