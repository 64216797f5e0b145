"""Reference layers in float64 from convolutions of PyTorch, layouts of images and weights, and test cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_weight

from support.guarded import DEVICE, guarded_memory

pytest.importorskip("triton", reason="Triton is not installed here")

from unbraid.accel.kernels import tuned

# Sums of up to 2,000 float32 products have errors of about 3e-7 of their norm. A wrong element gives a far larger
# error. On a GPU float32 products are computed in TensorFloat-32, with 10 bits.
TOLERANCE = 2e-6 if DEVICE == "cpu" else 3e-3

Case = tuple[int, int, int, int, int, bool]
# (runs, batch, side of the small image, channels of the large and of the small image, whether the small image is plain)
# The cases cover one and several tiles, full and partial tiles, sides that are no power of two, and all widths in both
# layouts.
CASES: list[Case] = [
    (1, 1, 4, 32, 32, True),
    (2, 5, 14, 32, 32, False),
    (1, 4, 16, 32, 32, True),
    (2, 3, 8, 32, 64, False),
    (1, 2, 6, 64, 32, True),
    (2, 5, 6, 64, 64, False),
    (3, 4, 4, 64, 64, True),
    (1, 1, 2, 64, 32, False),
]
ImageCase = tuple[int, int, int, int, int, int, bool]
# (runs, batch, side of the small image, stored channels, real channels, width, whether the small image is plain)
IMAGES: list[ImageCase] = [
    (1, 1, 4, 1, 1, 32, True),
    (2, 5, 16, 4, 3, 32, False),
    (3, 4, 8, 1, 1, 64, False),
    (2, 3, 6, 4, 3, 64, True),
]


def parametrize_tiles(
    name: str, cases: Sequence[tuple[int, ...]] = CASES, at: tuple[int, int] = (3, 4)
) -> pytest.MarkDecorator:
    """Parametrize a test over all cases with the tiles for float32, and with the tiles for bfloat16 where they differ.

    One case also has the tiles for bfloat16 and many runs. `at` gives the positions in a case of the two widths that
    determine the launch settings.
    """
    wanted = [("float32", case) for case in cases]
    if DEVICE == "cpu":  # on a GPU, float32 values may not fit into shared memory with these tiles
        tabled = [case for case in cases if (name, *(case[i] for i in at)) in tuned.BFLOAT16]
        wanted += [("bfloat16", case) for case in tabled]
        wanted += [("bfloat16 for many runs", case) for case in tabled[:1]]
    return pytest.mark.parametrize(("tiles", "case"), wanted, indirect=["tiles"], ids=str)


def randn(*shape: int, scale: float = 1.0) -> Tensor:
    """Random float64 numbers that float32 represents exactly."""
    return (scale * torch.randn(*shape)).double()


def guarded_copy(values: Tensor) -> Tensor:
    """The same numbers in float32 on the device, in guarded memory."""
    inside, _ = guarded_memory(tuple(values.shape), device=DEVICE)
    return inside.copy_(values)


def within_longer_rows(values: Tensor) -> Tensor:
    """The same rows as parts of longer rows of NaN, like the parameters of a layer in the rows of a stack."""
    wide = torch.full((len(values), values.shape[1] + 56), math.nan, device=DEVICE)
    wide[:, 24:-32] = values
    return wide[:, 24:-32]


class Gradient:
    """The output of a weight gradient: a part of longer rows whose other elements must stay unchanged."""

    def __init__(self, runs: int, size: int) -> None:
        self.wide = torch.full((runs, size + 40), math.nan, device=DEVICE)
        self.out = self.wide[:, 16:-24]

    def checked(self) -> Tensor:
        """The gradient, after asserting that the other elements are unchanged."""
        assert bool(self.wide[:, :16].isnan().all())
        assert bool(self.wide[:, -24:].isnan().all())
        return self.out


def to_blocks(x: Tensor, stored: int | None = None) -> Tensor:
    """Convert images (r, b, c, h, h) to blocked images, as described in `unbraid.accel.kernels.blocked`."""
    r, b, c, h = x.shape[:4]
    channels, g = stored or c, h // 2 + 1
    framed = F.pad(x, (1, 1, 1, 1, 0, channels - c)).view(r, b, channels, g, 2, g, 2)
    return framed.permute(0, 1, 3, 5, 4, 6, 2).reshape(r, b, g, g, 4 * channels)


def lay_out(x: Tensor, plain: bool) -> Tensor:
    """Convert images (r, b, c, h, h) to plain or blocked images."""
    return x.permute(0, 1, 3, 4, 2).contiguous() if plain else to_blocks(x)


def flat_taps(w: Tensor, stored: int | None = None) -> Tensor:
    """Flatten the 4x4 weights of every run, (r, M, C, 4, 4), in the order (dy, dx, py, px, C, M)."""
    r, m, c = w.shape[:3]
    parts = w.view(r, m, c, 2, 2, 2, 2).permute(0, 3, 5, 4, 6, 2, 1)
    return F.pad(parts, (0, 0, 0, (stored or c) - c)).reshape(r, -1)


def assert_near(found: Tensor, wanted: Tensor, tolerance: float = TOLERANCE) -> None:
    """Assert equal shapes and a difference that is small relative to the norm. NaN is never near."""
    assert found.shape == wanted.shape
    error = float((found.double().cpu() - wanted).norm() / wanted.norm())
    assert error <= tolerance, error


def for_each_run(function: Callable[..., Tensor], *stacks: Tensor) -> Tensor:
    """Apply a function to each run, and stack the results."""
    return torch.stack([function(*values) for values in zip(*stacks, strict=True)])


def conv(x: Tensor, w: Tensor) -> Tensor:
    """The stride-2 convolution of each run."""
    return for_each_run(lambda a, b: F.conv2d(a, b, stride=2, padding=b.shape[-1] // 2 - 1), x, w)


def conv_transpose(x: Tensor, w: Tensor) -> Tensor:
    """The stride-2 transposed convolution of each run."""
    return for_each_run(lambda a, b: F.conv_transpose2d(a, b, stride=2, padding=b.shape[-1] // 2 - 1), x, w)


def weight_gradient(x: Tensor, g: Tensor, kernel: int) -> Tensor:
    """The weight gradient of a convolution from its inputs and output gradients."""
    shape = (g.shape[2], x.shape[2], kernel, kernel)
    return for_each_run(lambda a, b: conv2d_weight(a, shape, b, 2, kernel // 2 - 1), x, g)


def as_image(bias: Tensor) -> Tensor:
    """The bias of each run, (r, c), in a shape that broadcasts against images."""
    return bias[:, None, :, None, None]


def sum_parts(part: Tensor) -> Tensor:
    """The sum of partial sums (r, parts, c)."""
    return part.double().sum(1)


def within_rows_like(values: Tensor, other: Tensor) -> Tensor:
    """Like `within_longer_rows`, with rows as long as those of `other`: weight and bias have the same row length."""
    wide = torch.full((len(values), other.shape[1] + 56), math.nan, device=DEVICE)
    wide[:, 8 : 8 + values.shape[1]] = values
    return wide[:, 8 : 8 + values.shape[1]]
