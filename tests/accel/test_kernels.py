"""Every Triton kernel of a layer agrees with PyTorch convolutions in float64.

Without a GPU, the kernels run in the interpreter of Triton, in float32. Allocated memory is filled with NaN and lies
between guard elements. This detects elements that are not written and accesses outside of the memory.
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
    IMAGES,
    TOLERANCE,
    Case,
    Gradient,
    ImageCase,
    as_image,
    assert_near,
    conv,
    conv_transpose,
    flat_taps,
    guarded_copy,
    lay_out,
    parametrize_tiles,
    randn,
    sum_parts,
    to_blocks,
    weight_gradient,
    within_longer_rows,
    within_rows_like,
)
from unbraid.accel.kernels.blocked import to_blocked, zero_border
from unbraid.accel.kernels.conv2x2 import conv2x2, conv2x2_input_gradient, conv2x2_weight_gradient
from unbraid.accel.kernels.conv4x4 import conv4x4
from unbraid.accel.kernels.conv_transpose4x4 import conv_transpose4x4
from unbraid.accel.kernels.last_layer import BERNOULLI, GAUSSIAN, conv_transpose4x4_image, conv_transpose4x4_nll
from unbraid.accel.kernels.weights import conv4x4_weight_gradient, image_conv4x4_weight_gradient

pytestmark = pytest.mark.usefixtures("poisoned")


# Layouts


@pytest.mark.parametrize(("channels", "stored"), [(1, 1), (3, 4)])
@pytest.mark.parametrize("side", [2, 6, 32])
def test_to_blocked_puts_every_pixel_at_its_position(side: int, channels: int, stored: int) -> None:
    """Pixel (y, x) is at ((y + 1) % 2, (x + 1) % 2) of block ((y + 1) // 2, (x + 1) // 2). Everything else is zero."""
    x = randn(2, 3, channels, side, side)
    found = to_blocked(guarded_copy(x), stored, torch.float32)
    assert torch.equal(found.double().cpu(), to_blocks(x, stored))
    g = side // 2 + 1
    pixels = found.view(2, 3, g, g, 2, 2, stored).double().cpu()
    for y in range(side):
        for at in range(side):
            pixel = pixels[:, :, (y + 1) // 2, (at + 1) // 2, (y + 1) % 2, (at + 1) % 2]
            assert torch.equal(pixel[..., :channels], x[:, :, :, y, at])
            pixel.zero_()
    assert not pixels.any()


def test_to_blocked_takes_images_in_any_memory_layout() -> None:
    """Images need not be contiguous, because tensors under `vmap` often are not."""
    x = guarded_copy(randn(3, 2, 8, 8, 3)).permute(1, 0, 4, 2, 3)
    assert torch.equal(to_blocked(x, 4, torch.float32), to_blocked(x.contiguous(), 4, torch.float32))


@pytest.mark.parametrize("channels", [32, 64])
@pytest.mark.parametrize("side", [2, 6, 16])
def test_zero_border_changes_only_the_border(side: int, channels: int) -> None:
    """The border becomes zero and the pixels inside stay unchanged."""
    x = randn(2, 3, channels, side, side)
    framed = guarded_copy(to_blocks(x))
    inside = to_blocks(torch.ones_like(x)) == 1
    framed[~inside.to(DEVICE)] = math.nan
    assert torch.equal(zero_border(framed, side, channels).double().cpu(), to_blocks(x))


# 4x4 layers


@parametrize_tiles("conv4x4")
def test_conv4x4_is_a_convolution_with_relu(case: Case, tiles: str) -> None:
    """Every run has its own weights and bias. The border of a blocked result is zero."""
    runs, batch, h, C, M, plain = case
    x, w, bias = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, M, C, 4, 4, scale=0.1), randn(runs, M)
    y, _ = conv4x4(
        guarded_copy(to_blocks(x)),
        within_longer_rows(flat_taps(w)),
        within_rows_like(bias, flat_taps(w)),
        h,
        C,
        M,
        plain,
    )
    wanted = (conv(x, w) + as_image(bias)).relu()
    assert 0.1 < float((wanted > 0).double().mean()) < 0.9
    assert_near(y, lay_out(wanted, plain))
    assert not y.cpu()[lay_out(torch.ones_like(wanted), plain) == 0].any()


@parametrize_tiles("conv4x4 gradient")
def test_conv4x4_is_the_input_gradient_of_a_transposed_convolution(case: Case, tiles: str) -> None:
    """The gradient is zero where the activations are zero, and its sums are the gradient of the bias."""
    runs, batch, h, C, M, plain = case
    x, w = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, M, C, 4, 4, scale=0.1)
    act = randn(runs, batch, M, h, h).relu()
    y, part = conv4x4(
        guarded_copy(to_blocks(x)),
        within_longer_rows(flat_taps(w)),
        None,
        h,
        C,
        M,
        plain,
        act=guarded_copy(lay_out(act, plain)),
    )
    wanted = torch.where(act > 0, conv(x, w), 0.0)
    assert_near(y, lay_out(wanted, plain))
    assert not y.cpu()[lay_out(act, plain) == 0].any()
    assert_near(
        sum_parts(part), wanted.sum((1, 3, 4)), 10 * TOLERANCE
    )  # the tolerance is larger because terms of both signs cancel


@parametrize_tiles("image conv4x4", IMAGES, (3, 5))
def test_conv4x4_of_images(case: ImageCase, tiles: str) -> None:
    """The first layer of an encoder has one channel, or three that are stored as four."""
    runs, batch, h, stored, channels, M, plain = case
    x, w, bias = randn(runs, batch, channels, 2 * h, 2 * h), randn(runs, M, channels, 4, 4), randn(runs, M)
    flat = flat_taps(w, stored)
    y, _ = conv4x4(
        guarded_copy(to_blocks(x, stored)), within_longer_rows(flat), within_rows_like(bias, flat), h, stored, M, plain
    )
    assert_near(y, lay_out((conv(x, w) + as_image(bias)).relu(), plain))


def test_conv4x4_of_the_same_images_for_all_runs() -> None:
    """Images may be an expanded view, in which every run reads the same memory."""
    x, w, bias = randn(1, 3, 3, 16, 16), randn(2, 32, 3, 4, 4), randn(2, 32)
    flat, shared = flat_taps(w, 4), guarded_copy(to_blocks(x, 4)).expand(2, -1, -1, -1, -1)
    y, _ = conv4x4(shared, within_longer_rows(flat), within_rows_like(bias, flat), 8, 4, 32, False)
    assert_near(y, lay_out((conv(x.expand(2, -1, -1, -1, -1), w) + as_image(bias)).relu(), False))


@parametrize_tiles("conv_transpose4x4")
def test_conv_transpose4x4_is_a_transposed_convolution_with_relu(case: Case, tiles: str) -> None:
    """Every run has its own weights and bias. The border of the result is zero in spite of the bias."""
    runs, batch, h, C, M, plain = case
    x, w, bias = randn(runs, batch, M, h, h), randn(runs, M, C, 4, 4, scale=0.1), randn(runs, C)
    y, _ = conv_transpose4x4(
        guarded_copy(lay_out(x, plain)),
        within_longer_rows(flat_taps(w)),
        within_rows_like(bias, flat_taps(w)),
        h,
        C,
        M,
        plain,
    )
    wanted = (conv_transpose(x, w) + as_image(bias)).relu()
    assert 0.1 < float((wanted > 0).double().mean()) < 0.9
    assert_near(y, to_blocks(wanted))
    assert not y.cpu()[to_blocks(torch.ones_like(wanted)) == 0].any()


@parametrize_tiles("conv_transpose4x4 gradient")
def test_conv_transpose4x4_is_the_input_gradient_of_a_convolution(case: Case, tiles: str) -> None:
    """The gradient is zero where the activations are zero, and its sums are the gradient of the bias."""
    runs, batch, h, C, M, plain = case
    g, w = randn(runs, batch, M, h, h), randn(runs, M, C, 4, 4, scale=0.1)
    act = randn(runs, batch, C, 2 * h, 2 * h).relu()
    y, part = conv_transpose4x4(
        guarded_copy(lay_out(g, plain)),
        within_longer_rows(flat_taps(w)),
        None,
        h,
        C,
        M,
        plain,
        act=guarded_copy(to_blocks(act)),
    )
    wanted = torch.where(act > 0, conv_transpose(g, w), 0.0)
    assert_near(y, to_blocks(wanted))
    assert not y.cpu()[to_blocks(act) == 0].any()
    assert_near(sum_parts(part), wanted.sum((1, 3, 4)), 10 * TOLERANCE)


@parametrize_tiles("conv4x4 weight gradient")
def test_conv4x4_weight_gradient(case: Case, tiles: str) -> None:
    """The gradient of convolutions and transposed convolutions is written into a part of longer rows."""
    runs, batch, h, C, M, plain = case
    x, g = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, batch, M, h, h)
    gradient = Gradient(runs, 16 * C * M)
    conv4x4_weight_gradient(guarded_copy(to_blocks(x)), guarded_copy(lay_out(g, plain)), gradient.out, h, C, M, plain)
    assert_near(gradient.checked(), flat_taps(weight_gradient(x, g, 4)))


# Layers next to the image


@pytest.mark.parametrize("case", IMAGES, ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_conv_transpose4x4_image_is_a_transposed_convolution(case: ImageCase, biased: bool) -> None:
    """The result, without a ReLU, is the output of a decoder or, without a bias, the input gradient of an encoder."""
    runs, batch, h, stored, channels, M, plain = case
    x, w, bias = randn(runs, batch, M, h, h), randn(runs, M, channels, 4, 4, scale=0.1), randn(runs, channels)
    flat = flat_taps(w, stored)
    added = within_rows_like(F.pad(bias, (0, stored - channels)), flat) if biased else None
    y = conv_transpose4x4_image(
        guarded_copy(lay_out(x, plain)), within_longer_rows(flat), added, stored, channels, h, plain
    )
    assert_near(y, conv_transpose(x, w) + (as_image(bias) if biased else 0))


@pytest.mark.parametrize("case", IMAGES, ids=str)
@pytest.mark.parametrize(("kind", "scale"), [(BERNOULLI, 0.1), (BERNOULLI, 8.0), (GAUSSIAN, 0.1)])
def test_conv_transpose4x4_nll(case: ImageCase, kind: int, scale: float) -> None:
    """The negative log-likelihood, its derivatives and their sums are correct, even for logits in the hundreds."""
    runs, batch, h, stored, channels, M, plain = case
    x, w = randn(runs, batch, M, h, h), randn(runs, M, channels, 4, 4, scale=scale)
    bias, target = randn(runs, channels), torch.rand(runs, batch, channels, 2 * h, 2 * h).double()
    flat, shifts = flat_taps(w, stored), F.pad(bias, (0, stored - channels))
    loss, slopes, totals = conv_transpose4x4_nll(
        guarded_copy(lay_out(x, plain)),
        within_longer_rows(flat),
        within_rows_like(shifts, flat),
        guarded_copy(target),
        stored,
        plain,
        kind,
    )
    output = (conv_transpose(x, w) + as_image(bias)).requires_grad_()
    losses = {
        BERNOULLI: lambda: F.binary_cross_entropy_with_logits(output, target, reduction="none"),
        GAUSSIAN: lambda: 0.5 * (output - target).square(),
    }
    wanted = losses[kind]().sum((2, 3, 4))
    (slope,) = torch.autograd.grad(wanted.sum(), output)
    assert_near(loss, wanted.detach())
    assert_near(slopes, to_blocks(slope, stored))
    assert not slopes.cpu()[to_blocks(torch.ones_like(slope), stored) == 0].any()
    assert totals.shape == (runs, batch, 4, stored)
    assert_near(totals.double().sum(2), F.pad(slope.sum((3, 4)), (0, stored - channels)), 10 * TOLERANCE)


@parametrize_tiles("image weight gradient", IMAGES, (3, 5))
def test_image_weight_gradient_of_an_encoder(case: ImageCase, tiles: str) -> None:
    """The weight gradient of the first layer of an encoder is correct, and zero for padded channels."""
    runs, batch, h, stored, channels, M, plain = case
    x, g = randn(runs, batch, channels, 2 * h, 2 * h), randn(runs, batch, M, h, h)
    gradient = Gradient(runs, 16 * stored * M)
    image_conv4x4_weight_gradient(
        guarded_copy(to_blocks(x, stored)), guarded_copy(lay_out(g, plain)), gradient.out, h, stored, plain
    )
    assert_near(gradient.checked(), flat_taps(weight_gradient(x, g, 4), stored))


@parametrize_tiles("image decoder gradient", IMAGES, (3, 5))
def test_image_weight_gradient_of_a_decoder(case: ImageCase, tiles: str) -> None:
    """The weight and input gradients of the last layer of a decoder are correct, with a weight for each sample."""
    runs, batch, h, stored, channels, M, plain = case
    slope, w = randn(runs, batch, channels, 2 * h, 2 * h), randn(runs, M, channels, 4, 4, scale=0.1)
    act, scale = randn(runs, batch, M, h, h).relu(), randn(runs, batch)
    gradient, below = Gradient(runs, 16 * stored * M), guarded_copy(torch.full_like(lay_out(act, plain), math.nan))
    if not plain:
        zero_border(below, h, M)
    part = image_conv4x4_weight_gradient(
        guarded_copy(to_blocks(slope, stored)), guarded_copy(lay_out(act, plain)), gradient.out, h, stored, plain,
        within_longer_rows(flat_taps(w, stored)), guarded_copy(scale), below,
    )  # fmt: skip
    scaled = slope * scale[..., None, None, None]
    wanted = torch.where(act > 0, conv(scaled, w), 0.0)
    assert_near(gradient.checked(), flat_taps(weight_gradient(scaled, act, 4), stored))
    assert_near(below, lay_out(wanted, plain))
    assert_near(sum_parts(part), wanted.sum((1, 3, 4)), 10 * TOLERANCE)


# 2x2 layers

CASES_2X2 = [(1, 1, 4, 32, 64), (3, 5, 4, 64, 64), (2, 3, 8, 32, 32), (2, 4, 6, 64, 32)]  # (runs, batch, side, C, M)


def flat_taps_2x2(w: Tensor) -> Tensor:
    """Flatten the 2x2 weights of every run, (r, M, C, 2, 2), in the order (py, px, C, M)."""
    return w.permute(0, 3, 4, 2, 1).reshape(len(w), -1)


@parametrize_tiles("conv2x2", CASES_2X2)
def test_conv2x2_is_a_convolution_with_relu(case: tuple[int, int, int, int, int], tiles: str) -> None:
    """Images are plain, and every run has its own weights and bias."""
    runs, batch, h, C, M = case
    x, w, bias = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, M, C, 2, 2, scale=0.2), randn(runs, M)
    y = conv2x2(
        guarded_copy(lay_out(x, True)),
        within_longer_rows(flat_taps_2x2(w)),
        within_rows_like(bias, flat_taps_2x2(w)),
        h,
        C,
        M,
    )
    assert_near(y, lay_out((conv(x, w) + as_image(bias)).relu(), True))


@parametrize_tiles("conv2x2 input gradient", CASES_2X2)
def test_conv2x2_input_gradient(case: tuple[int, int, int, int, int], tiles: str) -> None:
    """The gradient is zero where the activations are zero, and its sums are the gradient of the bias."""
    runs, batch, h, C, M = case
    g, w = randn(runs, batch, M, h, h), randn(runs, M, C, 2, 2)
    act = randn(runs, batch, C, 2 * h, 2 * h).relu()
    y, part = conv2x2_input_gradient(
        guarded_copy(lay_out(g, True)), within_longer_rows(flat_taps_2x2(w)), guarded_copy(lay_out(act, True)), h, C, M
    )
    wanted = torch.where(act > 0, conv_transpose(g, w), 0.0)
    assert_near(y, lay_out(wanted, True))
    assert_near(sum_parts(part), wanted.sum((1, 3, 4)), 10 * TOLERANCE)


@parametrize_tiles("conv2x2 weight gradient", CASES_2X2)
def test_conv2x2_weight_gradient(case: tuple[int, int, int, int, int], tiles: str) -> None:
    """The gradient is written into a part of longer rows."""
    runs, batch, h, C, M = case
    x, g = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, batch, M, h, h)
    gradient = Gradient(runs, 4 * C * M)
    conv2x2_weight_gradient(guarded_copy(lay_out(x, True)), guarded_copy(lay_out(g, True)), gradient.out, h, C, M)
    assert_near(gradient.checked(), flat_taps_2x2(weight_gradient(x, g, 2)))
