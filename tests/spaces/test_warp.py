"""Images resampled at points: against PyTorch's own sampler, and in cases whose answer is known."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from unbraid.spaces.warp import nodes, pixel_centres, sample, warp


def centred(h: int, w: int, b: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    return pixel_centres(h, w, dtype=dtype).unflatten(0, (h, w)).expand(b, -1, -1, -1)


def by_hand(image: Tensor, p: Tensor) -> float:
    """One channel at one point, by the formula, as a sum over all pixels."""
    h, w = image.shape
    across = (1 - (w * p[0] - 0.5 - torch.arange(w)).abs()).clamp_min(0)
    down = (1 - (h * p[1] - 0.5 - torch.arange(h)).abs()).clamp_min(0)
    return float(down @ image @ across)


def test_grids() -> None:
    assert pixel_centres(2, 4)[:5].tolist() == [
        [0.125, 0.25],
        [0.375, 0.25],
        [0.625, 0.25],
        [0.875, 0.25],
        [0.125, 0.75],
    ]
    assert nodes(2, 3).tolist() == [[0, 0], [0.5, 0], [1, 0], [0, 1], [0.5, 1], [1, 1]]
    assert pixel_centres(5, 5) is pixel_centres(5, 5, "cpu")


def test_grids_made_without_gradients_serve_with_them() -> None:
    """The first to ask may be in inference mode; what is kept must not be marked by it."""
    with torch.inference_mode():
        grid = pixel_centres(3, 11)
    scale = torch.ones(1, requires_grad=True)
    (grid * scale).sum().backward()
    assert scale.grad is not None


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("corners", [False, True])
def test_against_grid_sample(padding: str, corners: bool) -> None:
    image, points = torch.randn(3, 2, 9, 7), 1.4 * torch.rand(3, 5, 6, 2) - 0.2
    wanted = F.grid_sample(image, 2 * points - 1, padding_mode=padding, align_corners=corners)
    found = sample(image, points.flatten(1, 2), padding, corners)
    assert torch.allclose(found, wanted.flatten(2), atol=1e-6)
    if not corners:
        assert torch.equal(warp(image, points, padding), found.unflatten(-1, (5, 6)))


def test_against_the_formula() -> None:
    image = torch.randn(1, 1, 5, 8, dtype=torch.float64)
    points = 1.4 * torch.rand(1, 40, 2, dtype=torch.float64) - 0.2
    wanted = [by_hand(image[0, 0], p) for p in points[0]]
    assert sample(image, points)[0, 0].tolist() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("side", [16, 28, 64])
def test_own_centres_give_the_image_itself(side: int) -> None:
    """To the bit where a side is a power of two; elsewhere a centre is rounded, and so is the image."""
    image = torch.rand(2, 3, side, side)
    found = warp(image, centred(side, side, 2))
    assert torch.allclose(found, image, atol=0 if side in (16, 64) else 1e-5, rtol=0)


@pytest.mark.parametrize(("dx", "dy"), [(1, 0), (0, -3), (5, 2), (16, 0)])
def test_shifts_by_whole_pixels(dx: int, dy: int) -> None:
    """The value of a pixel is that of the one dx to the right and dy down; beyond the edge lie zeros."""
    image = torch.rand(1, 1, 16, 16)
    moved = warp(image, centred(16, 16) + torch.tensor([dx, dy]) / 16)
    wide = F.pad(image, (16, 16, 16, 16))
    assert torch.equal(moved, wide[..., 16 + dy : 32 + dy, 16 + dx : 32 + dx])
    edge = warp(image, centred(16, 16) + torch.tensor([dx, dy]) / 16, "border")
    wide = F.pad(image, (16, 16, 16, 16), mode="replicate")
    assert torch.equal(edge, wide[..., 16 + dy : 32 + dy, 16 + dx : 32 + dx])


def test_mirror_images() -> None:
    image, grid = torch.rand(1, 2, 8, 8), centred(8, 8)
    assert torch.equal(warp(image, torch.stack([1 - grid[..., 0], grid[..., 1]], -1)), image.flip(-1))
    assert torch.equal(warp(image, grid.flip(-1)), image.mT)


def test_outermost_values_with_corners() -> None:
    image = torch.rand(1, 1, 4, 5)
    assert torch.allclose(sample(image, nodes(4, 5)[None], corners=True)[0, 0], image.flatten(), atol=1e-6)


def test_gradients() -> None:
    image = torch.randn(2, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    points = (1.2 * torch.rand(2, 3, 3, 2, dtype=torch.float64) - 0.1).requires_grad_()
    for padding in ("zeros", "border"):
        assert torch.autograd.gradcheck(lambda i, p, padding=padding: warp(i, p, padding), (image, points))


@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0)])
def test_mapped_is_one_by_one(dims: tuple[int | None, int | None]) -> None:
    """Values and gradients, with either argument shared by the stack."""
    image = torch.randn(3, 2, 2, 6, 6)[(slice(None) if dims[0] == 0 else 0)].requires_grad_()
    points = torch.rand(3, 2, 6, 6, 2)[(slice(None) if dims[1] == 0 else 0)].requires_grad_()
    at_once = vmap(warp, in_dims=dims)(image, points)
    each = [warp(image[i] if dims[0] == 0 else image, points[i] if dims[1] == 0 else points) for i in range(3)]
    assert torch.allclose(at_once, torch.stack(each), atol=1e-6)
    given = (image, points)
    pairs = (torch.autograd.grad(x.square().sum(), given) for x in (at_once, torch.stack(each)))
    for a, b in zip(*pairs, strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def test_points_far_away_or_undefined_do_no_harm() -> None:
    image = torch.rand(1, 1, 4, 4)
    points = torch.tensor([[[1e30, 0.5], [-1e30, 0.5], [torch.inf, 0.5], [torch.nan, 0.5], [0.5, 0.5]]])
    found = sample(image, points)[0, 0]
    assert found[:2].tolist() == [0, 0]
    assert float(found[4]) == pytest.approx(by_hand(image[0, 0], points[0, 4]))


def test_refusals() -> None:
    image, points = torch.rand(1, 1, 4, 4), torch.rand(1, 3, 2)
    with pytest.raises(ValueError, match=r"padding must be one of zeros, border\. Got 'mirror'"):
        sample(image, points, "mirror")
    with pytest.raises(ValueError, match=r"one dtype\. Got torch\.float32 and torch\.float64\. Convert one"):
        sample(image, points.double())
    with pytest.raises(ValueError, match="at least one row and one column"):
        pixel_centres(0, 3)
