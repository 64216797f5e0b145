"""Every Triton kernel against float64: layers against PyTorch's convolutions, Adam and noise against their tensors.

Without a GPU they run in Triton's interpreter, in float32. All memory that a launcher asks for holds NaN first and lies
between guards, and so do all arguments: what is left unwritten, written outside or read from outside shows.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from support.guarded import DEVICE

pytest.importorskip("triton", reason="Triton is not installed here")

from support.layers import (
    CLOSE,
    IMAGES,
    Case,
    Gradient,
    ImageCase,
    conv,
    given,
    in_blocks,
    laid,
    near,
    randn,
    spread,
    stretch,
    stretch_like,
    sums,
    taps,
    tiled,
    transposed,
    weights_of,
)
from unbraid.accel.kernels.blocked import to_blocked, zero_border
from unbraid.accel.kernels.conv2x2 import conv2x2, conv2x2_input_gradient, conv2x2_weight_gradient
from unbraid.accel.kernels.conv4x4 import conv4x4
from unbraid.accel.kernels.conv_transpose4x4 import (
    BERNOULLI,
    GAUSSIAN,
    conv_transpose4x4,
    conv_transpose4x4_image,
    conv_transpose4x4_nll,
)
from unbraid.accel.kernels.weights import conv4x4_weight_gradient, image_conv4x4_weight_gradient

pytestmark = pytest.mark.usefixtures("poisoned")


# Layouts


@pytest.mark.parametrize(("channels", "stored"), [(1, 1), (3, 4)])
@pytest.mark.parametrize("side", [2, 6, 32])
def test_block_puts_every_pixel_in_its_place(side: int, channels: int, stored: int) -> None:
    """Pixel (y, x) is number (y + 1) % 2, (x + 1) % 2 of block (y + 1) // 2, (x + 1) // 2; all else is zero."""
    x = randn(2, 3, channels, side, side)
    found = to_blocked(given(x), stored, torch.float32)
    assert torch.equal(found.double().cpu(), in_blocks(x, stored))
    g = side // 2 + 1
    pixels = found.view(2, 3, g, g, 2, 2, stored).double().cpu()
    for y in range(side):
        for at in range(side):
            place = pixels[:, :, (y + 1) // 2, (at + 1) // 2, (y + 1) % 2, (at + 1) % 2]
            assert torch.equal(place[..., :channels], x[:, :, :, y, at])
            place.zero_()
    assert not pixels.any()


def test_block_takes_images_in_any_memory_layout() -> None:
    """What `vmap` hands over need not be contiguous."""
    x = given(randn(3, 2, 8, 8, 3)).permute(1, 0, 4, 2, 3)
    assert torch.equal(to_blocked(x, 4, torch.float32), to_blocked(x.contiguous(), 4, torch.float32))


@pytest.mark.parametrize("channels", [32, 64])
@pytest.mark.parametrize("side", [2, 6, 16])
def test_border_is_zeroed_and_nothing_else(side: int, channels: int) -> None:
    """The frame becomes zero, the pixels inside stay as they are."""
    x = randn(2, 3, channels, side, side)
    framed = given(in_blocks(x))
    inside = in_blocks(torch.ones_like(x)) == 1
    framed[~inside.to(DEVICE)] = math.nan
    assert torch.equal(zero_border(framed, side, channels).double().cpu(), in_blocks(x))


# Layers of 4x4


@tiled("conv4x4")
def test_down_is_a_convolution_with_relu(case: Case, tiles: str) -> None:
    """Every run its own weights and bias; the border of a blocked result is zero."""
    runs, batch, h, C, M, plain = case
    x, w, bias = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, M, C, 4, 4, scale=0.1), randn(runs, M)
    y, _ = conv4x4(given(in_blocks(x)), stretch(taps(w)), stretch_like(bias, taps(w)), h, C, M, plain)
    wanted = (conv(x, w) + spread(bias)).relu()
    assert 0.1 < float((wanted > 0).double().mean()) < 0.9
    near(y, laid(wanted, plain))
    assert not y.cpu()[laid(torch.ones_like(wanted), plain) == 0].any()


@tiled("conv4x4 gradient")
def test_down_is_the_gradient_of_a_transposed_convolution(case: Case, tiles: str) -> None:
    """Masked where the activations are zero (or below), with its sums as the gradient of the bias."""
    runs, batch, h, C, M, plain = case
    x, w = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, M, C, 4, 4, scale=0.1)
    act = randn(runs, batch, M, h, h).relu()
    y, part = conv4x4(given(in_blocks(x)), stretch(taps(w)), None, h, C, M, plain, act=given(laid(act, plain)))
    wanted = torch.where(act > 0, conv(x, w), 0.0)
    near(y, laid(wanted, plain))
    assert not y.cpu()[laid(act, plain) == 0].any()
    near(sums(part), wanted.sum((1, 3, 4)), 10 * CLOSE)  # sums of either sign, against a smaller norm


@tiled("image conv4x4", IMAGES, (3, 5))
def test_down_from_an_image(case: ImageCase, tiles: str) -> None:
    """The encoder's first layer, of one channel or of three stored as four."""
    runs, batch, h, stored, channels, M, plain = case
    x, w, bias = randn(runs, batch, channels, 2 * h, 2 * h), randn(runs, M, channels, 4, 4), randn(runs, M)
    flat = taps(w, stored)
    y, _ = conv4x4(given(in_blocks(x, stored)), stretch(flat), stretch_like(bias, flat), h, stored, M, plain)
    near(y, laid((conv(x, w) + spread(bias)).relu(), plain))


def test_down_from_one_image_for_all_runs() -> None:
    """Images may be an expanded view: every run reads the same ones."""
    x, w, bias = randn(1, 3, 3, 16, 16), randn(2, 32, 3, 4, 4), randn(2, 32)
    flat, shared = taps(w, 4), given(in_blocks(x, 4)).expand(2, -1, -1, -1, -1)
    y, _ = conv4x4(shared, stretch(flat), stretch_like(bias, flat), 8, 4, 32, False)
    near(y, laid((conv(x.expand(2, -1, -1, -1, -1), w) + spread(bias)).relu(), False))


@tiled("conv_transpose4x4")
def test_up_is_a_transposed_convolution_with_relu(case: Case, tiles: str) -> None:
    """Every run its own weights and bias; the border of the result is zero in spite of the bias."""
    runs, batch, h, C, M, plain = case
    x, w, bias = randn(runs, batch, M, h, h), randn(runs, M, C, 4, 4, scale=0.1), randn(runs, C)
    y, _ = conv_transpose4x4(given(laid(x, plain)), stretch(taps(w)), stretch_like(bias, taps(w)), h, C, M, plain)
    wanted = (transposed(x, w) + spread(bias)).relu()
    assert 0.1 < float((wanted > 0).double().mean()) < 0.9
    near(y, in_blocks(wanted))
    assert not y.cpu()[in_blocks(torch.ones_like(wanted)) == 0].any()


@tiled("conv_transpose4x4 gradient")
def test_up_is_the_gradient_of_a_convolution(case: Case, tiles: str) -> None:
    """Masked where the activations are zero, with its sums as the gradient of the bias."""
    runs, batch, h, C, M, plain = case
    g, w = randn(runs, batch, M, h, h), randn(runs, M, C, 4, 4, scale=0.1)
    act = randn(runs, batch, C, 2 * h, 2 * h).relu()
    y, part = conv_transpose4x4(
        given(laid(g, plain)), stretch(taps(w)), None, h, C, M, plain, act=given(in_blocks(act))
    )
    wanted = torch.where(act > 0, transposed(g, w), 0.0)
    near(y, in_blocks(wanted))
    assert not y.cpu()[in_blocks(act) == 0].any()
    near(sums(part), wanted.sum((1, 3, 4)), 10 * CLOSE)


@tiled("conv4x4 weight gradient")
def test_weight_gradient(case: Case, tiles: str) -> None:
    """Of a convolution and of the transposed one alike: large images against small ones, into a stretch of rows."""
    runs, batch, h, C, M, plain = case
    x, g = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, batch, M, h, h)
    gradient = Gradient(runs, 16 * C * M)
    conv4x4_weight_gradient(given(in_blocks(x)), given(laid(g, plain)), gradient.out, h, C, M, plain)
    near(gradient.found(), taps(weights_of(x, g, 4)))


# Layers at the image


@pytest.mark.parametrize("case", IMAGES, ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_image_is_a_transposed_convolution(case: ImageCase, biased: bool) -> None:
    """The decoder's output; without a bias, the gradient by the encoder's input. No ReLU, no padded channel."""
    runs, batch, h, stored, channels, M, plain = case
    x, w, bias = randn(runs, batch, M, h, h), randn(runs, M, channels, 4, 4, scale=0.1), randn(runs, channels)
    flat = taps(w, stored)
    added = stretch_like(F.pad(bias, (0, stored - channels)), flat) if biased else None
    y = conv_transpose4x4_image(given(laid(x, plain)), stretch(flat), added, stored, channels, h, plain)
    near(y, transposed(x, w) + (spread(bias) if biased else 0))


@pytest.mark.parametrize("case", IMAGES, ids=str)
@pytest.mark.parametrize(("kind", "scale"), [(BERNOULLI, 0.1), (BERNOULLI, 8.0), (GAUSSIAN, 0.1)])
def test_image_nll(case: ImageCase, kind: int, scale: float) -> None:
    """The negative log-likelihood of every sample, its slopes by the output and their sums, logits of hundreds too."""
    runs, batch, h, stored, channels, M, plain = case
    x, w = randn(runs, batch, M, h, h), randn(runs, M, channels, 4, 4, scale=scale)
    bias, target = randn(runs, channels), torch.rand(runs, batch, channels, 2 * h, 2 * h).double()
    flat, shifts = taps(w, stored), F.pad(bias, (0, stored - channels))
    loss, slopes, totals = conv_transpose4x4_nll(
        given(laid(x, plain)), stretch(flat), stretch_like(shifts, flat), given(target), stored, plain, kind
    )
    output = (transposed(x, w) + spread(bias)).requires_grad_()
    losses = {
        BERNOULLI: lambda: F.binary_cross_entropy_with_logits(output, target, reduction="none"),
        GAUSSIAN: lambda: 0.5 * (output - target).square(),
    }
    wanted = losses[kind]().sum((2, 3, 4))
    (slope,) = torch.autograd.grad(wanted.sum(), output)
    near(loss, wanted.detach())
    near(slopes, in_blocks(slope, stored))
    assert not slopes.cpu()[in_blocks(torch.ones_like(slope), stored) == 0].any()
    assert totals.shape == (runs, batch, 4, stored)
    near(totals.double().sum(2), F.pad(slope.sum((3, 4)), (0, stored - channels)), 10 * CLOSE)


@tiled("image weight gradient", IMAGES, (3, 5))
def test_image_weight_gradient_of_an_encoder(case: ImageCase, tiles: str) -> None:
    """Images against gradients of the first layer's outputs; padded channels get zero."""
    runs, batch, h, stored, channels, M, plain = case
    x, g = randn(runs, batch, channels, 2 * h, 2 * h), randn(runs, batch, M, h, h)
    gradient = Gradient(runs, 16 * stored * M)
    image_conv4x4_weight_gradient(given(in_blocks(x, stored)), given(laid(g, plain)), gradient.out, h, stored, plain)
    near(gradient.found(), taps(weights_of(x, g, 4), stored))


@tiled("image decoder gradient", IMAGES, (3, 5))
def test_image_weight_gradient_of_a_decoder(case: ImageCase, tiles: str) -> None:
    """Slopes times a number a sample: the weights' gradient, the masked one of the activations below, its sums."""
    runs, batch, h, stored, channels, M, plain = case
    slope, w = randn(runs, batch, channels, 2 * h, 2 * h), randn(runs, M, channels, 4, 4, scale=0.1)
    act, scale = randn(runs, batch, M, h, h).relu(), randn(runs, batch)
    gradient, below = Gradient(runs, 16 * stored * M), given(torch.full_like(laid(act, plain), math.nan))
    if not plain:
        zero_border(below, h, M)
    part = image_conv4x4_weight_gradient(
        given(in_blocks(slope, stored)), given(laid(act, plain)), gradient.out, h, stored, plain,
        stretch(taps(w, stored)), given(scale), below,
    )  # fmt: skip
    scaled = slope * scale[..., None, None, None]
    wanted = torch.where(act > 0, conv(scaled, w), 0.0)
    near(gradient.found(), taps(weights_of(scaled, act, 4), stored))
    near(below, laid(wanted, plain))
    near(sums(part), wanted.sum((1, 3, 4)), 10 * CLOSE)


# Layers of 2x2

TWO = [(1, 1, 4, 32, 64), (3, 5, 4, 64, 64), (2, 3, 8, 32, 32), (2, 4, 6, 64, 32)]  # runs, batch, side, channels


def pairs(w: Tensor) -> Tensor:
    """2x2 weights of every run, (r, M, C, 2, 2), as flat (py, px, C, M)."""
    return w.permute(0, 3, 4, 2, 1).reshape(len(w), -1)


@tiled("conv2x2", TWO)
def test_two_is_a_convolution_with_relu(case: tuple[int, int, int, int, int], tiles: str) -> None:
    """Between plain images, every run its own weights and bias."""
    runs, batch, h, C, M = case
    x, w, bias = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, M, C, 2, 2, scale=0.2), randn(runs, M)
    y = conv2x2(given(laid(x, True)), stretch(pairs(w)), stretch_like(bias, pairs(w)), h, C, M)
    near(y, laid((conv(x, w) + spread(bias)).relu(), True))


@tiled("conv2x2 input gradient", TWO)
def test_two_back_is_its_gradient(case: tuple[int, int, int, int, int], tiles: str) -> None:
    """Masked where the activations are zero, with its sums as the gradient of the bias."""
    runs, batch, h, C, M = case
    g, w = randn(runs, batch, M, h, h), randn(runs, M, C, 2, 2)
    act = randn(runs, batch, C, 2 * h, 2 * h).relu()
    y, part = conv2x2_input_gradient(given(laid(g, True)), stretch(pairs(w)), given(laid(act, True)), h, C, M)
    wanted = torch.where(act > 0, transposed(g, w), 0.0)
    near(y, laid(wanted, True))
    near(sums(part), wanted.sum((1, 3, 4)), 10 * CLOSE)


@tiled("conv2x2 weight gradient", TWO)
def test_two_weight_is_the_gradient_of_its_weights(case: tuple[int, int, int, int, int], tiles: str) -> None:
    """Into a stretch of rows."""
    runs, batch, h, C, M = case
    x, g = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, batch, M, h, h)
    gradient = Gradient(runs, 4 * C * M)
    conv2x2_weight_gradient(given(laid(x, True)), given(laid(g, True)), gradient.out, h, C, M)
    near(gradient.found(), pairs(weights_of(x, g, 2)))
