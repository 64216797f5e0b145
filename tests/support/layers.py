"""Layers in float64 from PyTorch's convolutions, layouts by hand, and the cases kernels are held to them in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_weight

from support.guarded import DEVICE, room

pytest.importorskip("triton", reason="Triton is not installed here")

from unbraid.accel.kernels import tuned

# Sums of up to 2,000 float32 products are off by some 3e-7 of their norm, any wrong element by far more. On a GPU
# float32 products are TensorFloat-32, of 10 bits.
CLOSE = 2e-6 if DEVICE == "cpu" else 3e-3

Case = tuple[int, int, int, int, int, bool]
# runs, batch, side of the small image, channels of the large and of the small one, whether the small one is plain.
# Together: one tile and several, full ones and not, sides that are no power of two, all widths in both layouts.
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
# runs, batch, side of the small image, channels as stored and as they are, width, whether the small image is plain
IMAGES: list[ImageCase] = [
    (1, 1, 4, 1, 1, 32, True),
    (2, 5, 16, 4, 3, 32, False),
    (3, 4, 8, 1, 1, 64, False),
    (2, 3, 6, 4, 3, 64, True),
]


def tiled(name: str, cases: Sequence[tuple[int, ...]] = CASES, at: tuple[int, int] = (3, 4)) -> pytest.MarkDecorator:
    """All cases with the tiles chosen for float32, and those for which others were chosen for bfloat16 with these.

    `at` says where in a case the two widths are that launches are chosen by.
    """
    wanted = [("float32", case) for case in cases]
    if DEVICE == "cpu":  # tiles for bfloat16 may not fit a GPU's shared memory with float32
        wanted += [("bfloat16", case) for case in cases if (name, *(case[i] for i in at)) in tuned.BFLOAT16]
    return pytest.mark.parametrize(("tiles", "case"), wanted, indirect=["tiles"], ids=str)


def randn(*shape: int, scale: float = 1.0) -> Tensor:
    """Float64 numbers that float32 represents exactly."""
    return (scale * torch.randn(*shape)).double()


def given(values: Tensor) -> Tensor:
    """The same numbers in float32 on the device, between guards."""
    inside, _ = room(tuple(values.shape), device=DEVICE)
    return inside.copy_(values)


def stretch(values: Tensor) -> Tensor:
    """Rows of numbers as a stretch of longer rows of NaN: how a stack keeps the parameters of every run."""
    wide = torch.full((len(values), values.shape[1] + 56), math.nan, device=DEVICE)
    wide[:, 24:-32] = values
    return wide[:, 24:-32]


class Gradient:
    """Where a weight gradient goes: a stretch of longer rows whose other elements must stay as they are."""

    def __init__(self, runs: int, size: int) -> None:
        self.wide = torch.full((runs, size + 40), math.nan, device=DEVICE)
        self.out = self.wide[:, 16:-24]

    def found(self) -> Tensor:
        assert bool(self.wide[:, :16].isnan().all())
        assert bool(self.wide[:, -24:].isnan().all())
        return self.out


def in_blocks(x: Tensor, stored: int | None = None) -> Tensor:
    """Images (r, b, c, h, h) blocked, as `kernels.blocked` describes it."""
    r, b, c, h = x.shape[:4]
    channels, g = stored or c, h // 2 + 1
    framed = F.pad(x, (1, 1, 1, 1, 0, channels - c)).view(r, b, channels, g, 2, g, 2)
    return framed.permute(0, 1, 3, 5, 4, 6, 2).reshape(r, b, g, g, 4 * channels)


def laid(x: Tensor, plain: bool) -> Tensor:
    """Images (r, b, c, h, h) plain or blocked."""
    return x.permute(0, 1, 3, 4, 2).contiguous() if plain else in_blocks(x)


def taps(w: Tensor, stored: int | None = None) -> Tensor:
    """4x4 weights of every run, (r, M, C, 4, 4), as flat (dy, dx, py, px, C, M)."""
    r, m, c = w.shape[:3]
    parts = w.view(r, m, c, 2, 2, 2, 2).permute(0, 3, 5, 4, 6, 2, 1)
    return F.pad(parts, (0, 0, 0, (stored or c) - c)).reshape(r, -1)


def near(found: Tensor, wanted: Tensor, tolerance: float = CLOSE) -> None:
    """Check shapes, and that the difference is small against the norm; NaN is never near."""
    assert found.shape == wanted.shape
    error = float((found.double().cpu() - wanted).norm() / wanted.norm())
    assert error <= tolerance, error


def each(function: Callable[..., Tensor], *stacks: Tensor) -> Tensor:
    """A function of one run, run after run."""
    return torch.stack([function(*values) for values in zip(*stacks, strict=True)])


def conv(x: Tensor, w: Tensor) -> Tensor:
    return each(lambda a, b: F.conv2d(a, b, stride=2, padding=b.shape[-1] // 2 - 1), x, w)


def transposed(x: Tensor, w: Tensor) -> Tensor:
    return each(lambda a, b: F.conv_transpose2d(a, b, stride=2, padding=b.shape[-1] // 2 - 1), x, w)


def weights_of(x: Tensor, g: Tensor, kernel: int) -> Tensor:
    """The gradient of a convolution's weights from its inputs and the gradients of its outputs."""
    shape = (g.shape[2], x.shape[2], kernel, kernel)
    return each(lambda a, b: conv2d_weight(a, shape, b, 2, kernel // 2 - 1), x, g)


def spread(bias: Tensor) -> Tensor:
    """A bias a run, (r, c), against images."""
    return bias[:, None, :, None, None]


def sums(part: Tensor) -> Tensor:
    """The parts of a sum, (r, parts, c), added up."""
    return part.double().sum(1)


def stretch_like(values: Tensor, other: Tensor) -> Tensor:
    """A stretch of rows as long as those of another: kernels take one distance between runs for weight and bias."""
    wide = torch.full((len(values), other.shape[1] + 56), math.nan, device=DEVICE)
    wide[:, 8 : 8 + values.shape[1]] = values
    return wide[:, 8 : 8 + values.shape[1]]
