"""Tests of the resampling of images, compared with PyTorch's `grid_sample` and with results computed by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from unbraid.spaces.warp import grid_nodes, pixel_centres, sample_image, warp_image


def pixel_grid(h: int, w: int, b: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the pixel centres (b, h, w, 2)."""
    return pixel_centres(h, w, dtype=dtype).unflatten(0, (h, w)).expand(b, -1, -1, -1)


def interpolate_by_formula(image: Tensor, p: Tensor) -> float:
    """Interpolate an image (h, w) at one point, as the sum over all pixels in the documentation of `sample_image`."""
    h, w = image.shape
    across = (1 - (w * p[0] - 0.5 - torch.arange(w)).abs()).clamp_min(0)
    down = (1 - (h * p[1] - 0.5 - torch.arange(h)).abs()).clamp_min(0)
    return float(down @ image @ across)


def test_coordinates_of_pixel_centres_and_nodes() -> None:
    assert pixel_centres(2, 4)[:5].tolist() == [
        [0.125, 0.25],
        [0.375, 0.25],
        [0.625, 0.25],
        [0.875, 0.25],
        [0.125, 0.75],
    ]
    assert grid_nodes(2, 3).tolist() == [[0, 0], [0.5, 0], [1, 0], [0, 1], [0.5, 1], [1, 1]]
    assert pixel_centres(5, 5) is pixel_centres(5, 5, "cpu")


def test_grids_created_in_inference_mode_can_be_used_with_gradients() -> None:
    """The cached grid must not be an inference tensor, even if it is first requested in inference mode."""
    with torch.inference_mode():
        grid = pixel_centres(3, 11)
    scale = torch.ones(1, requires_grad=True)
    (grid * scale).sum().backward()
    assert scale.grad is not None


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("corners", [False, True])
def test_sampling_equals_grid_sample(padding: str, corners: bool) -> None:
    image, points = torch.randn(3, 2, 9, 7), 1.4 * torch.rand(3, 5, 6, 2) - 0.2
    expected = F.grid_sample(image, 2 * points - 1, padding_mode=padding, align_corners=corners)
    found = sample_image(image, points.flatten(1, 2), padding, corners)
    assert torch.allclose(found, expected.flatten(2), atol=1e-6)
    if not corners:
        assert torch.equal(warp_image(image, points, padding), found.unflatten(-1, (5, 6)))


def test_sampling_equals_the_formula() -> None:
    image = torch.randn(1, 1, 5, 8, dtype=torch.float64)
    points = 1.4 * torch.rand(1, 40, 2, dtype=torch.float64) - 0.2
    expected = [interpolate_by_formula(image[0, 0], p) for p in points[0]]
    assert sample_image(image, points)[0, 0].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("side", [16, 28, 64])
def test_warp_at_the_pixel_centres_is_the_identity(side: int) -> None:
    """The images are exactly equal if the side is a power of two. Otherwise the pixel centres are rounded."""
    image = torch.rand(2, 3, side, side)
    found = warp_image(image, pixel_grid(side, side, 2))
    assert torch.allclose(found, image, atol=0 if side in (16, 64) else 1e-5, rtol=0)


@pytest.mark.parametrize(("dx", "dy"), [(1, 0), (0, -3), (5, 2), (16, 0)])
def test_shifts_by_whole_pixels(dx: int, dy: int) -> None:
    """Each pixel gets the value of the pixel that is dx to the right and dy below.

    Outside the image, values are zero or, with padding "border", those of the nearest pixel.
    """
    image = torch.rand(1, 1, 16, 16)
    moved = warp_image(image, pixel_grid(16, 16) + torch.tensor([dx, dy]) / 16)
    wide = F.pad(image, (16, 16, 16, 16))
    assert torch.equal(moved, wide[..., 16 + dy : 32 + dy, 16 + dx : 32 + dx])
    edge = warp_image(image, pixel_grid(16, 16) + torch.tensor([dx, dy]) / 16, "border")
    wide = F.pad(image, (16, 16, 16, 16), mode="replicate")
    assert torch.equal(edge, wide[..., 16 + dy : 32 + dy, 16 + dx : 32 + dx])


def test_reflections_equal_flipped_images() -> None:
    image, grid = torch.rand(1, 2, 8, 8), pixel_grid(8, 8)
    assert torch.equal(warp_image(image, torch.stack([1 - grid[..., 0], grid[..., 1]], -1)), image.flip(-1))
    assert torch.equal(warp_image(image, grid.flip(-1)), image.mT)


def test_nodes_have_the_values_of_the_image_with_corners() -> None:
    image = torch.rand(1, 1, 4, 5)
    assert torch.allclose(sample_image(image, grid_nodes(4, 5)[None], corners=True)[0, 0], image.flatten(), atol=1e-6)


def test_gradients_equal_finite_differences() -> None:
    image = torch.randn(2, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    points = (1.2 * torch.rand(2, 3, 3, 2, dtype=torch.float64) - 0.1).requires_grad_()
    for padding in ("zeros", "border"):
        assert torch.autograd.gradcheck(lambda i, p, padding=padding: warp_image(i, p, padding), (image, points))


@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0)])
def test_vmap_equals_a_loop(dims: tuple[int | None, int | None]) -> None:
    """Values and gradients agree, even if the stack shares the images or the points."""
    image = torch.randn(3, 2, 2, 6, 6)[(slice(None) if dims[0] == 0 else 0)].requires_grad_()
    points = torch.rand(3, 2, 6, 6, 2)[(slice(None) if dims[1] == 0 else 0)].requires_grad_()
    mapped = vmap(warp_image, in_dims=dims)(image, points)
    looped = [warp_image(image[i] if dims[0] == 0 else image, points[i] if dims[1] == 0 else points) for i in range(3)]
    assert torch.allclose(mapped, torch.stack(looped), atol=1e-6)
    inputs = (image, points)
    gradients = (torch.autograd.grad(x.square().sum(), inputs) for x in (mapped, torch.stack(looped)))
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def test_distant_and_nan_points_do_not_affect_others() -> None:
    image = torch.rand(1, 1, 4, 4)
    points = torch.tensor([[[1e30, 0.5], [-1e30, 0.5], [torch.inf, 0.5], [torch.nan, 0.5], [0.5, 0.5]]])
    found = sample_image(image, points)[0, 0]
    assert found[:2].tolist() == [0, 0]
    assert float(found[4]) == pytest.approx(interpolate_by_formula(image[0, 0], points[0, 4]))


def test_invalid_arguments_are_rejected() -> None:
    image, points = torch.rand(1, 1, 4, 4), torch.rand(1, 3, 2)
    with pytest.raises(ValueError, match=r"padding must be one of zeros, border\. Got 'mirror'"):
        sample_image(image, points, "mirror")
    with pytest.raises(ValueError, match=r"the same dtype\. Got torch\.float32 and torch\.float64 instead"):
        sample_image(image, points.double())
    with pytest.raises(ValueError, match="at least one row and one column"):
        pixel_centres(0, 3)
