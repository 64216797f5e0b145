"""Every layer on a GPU, in bfloat16 and TensorFloat-32, agrees with float64 on the same rounded numbers."""

from __future__ import annotations

import random

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed here")

from torch import Tensor

from support.layers import (
    as_image,
    assert_near,
    conv,
    conv_transpose,
    flat_taps,
    lay_out,
    randn,
    to_blocks,
    weight_gradient,
)
from unbraid.accel.kernels.conv2x2 import conv2x2, conv2x2_input_gradient, conv2x2_weight_gradient
from unbraid.accel.kernels.conv4x4 import conv4x4
from unbraid.accel.kernels.conv_transpose4x4 import conv_transpose4x4
from unbraid.accel.kernels.last_layer import BERNOULLI, conv_transpose4x4_nll
from unbraid.accel.kernels.weights import conv4x4_weight_gradient, image_conv4x4_weight_gradient

pytestmark = pytest.mark.gpu

# Relative tolerances of stored results and of float32 sums. A bfloat16 result has 8 bits and thus a relative error of
# at most 2^-9. Weight gradients are float32 sums, whose products are exact for bfloat16. For TensorFloat-32, the
# factors of the products have 11 bits.
STORED = {torch.bfloat16: 2.5e-3, torch.float32: 1e-3}
SUMMED = {torch.bfloat16: 2e-5, torch.float32: 1e-3}

Shape = tuple[torch.dtype, int, int, int, int, int, bool]


def shapes(widths: list[tuple[int, int]]) -> list[Shape]:
    """Return shapes with random runs, batch size, side and layout, for each pair of widths and each format."""
    rng = random.Random(0)
    return [
        (dtype, rng.randint(1, 4), rng.randint(1, 70), rng.choice([4, 8, 16]), c, m, rng.random() < 0.5)
        for dtype in STORED
        for c, m in widths
    ]


def round_to(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round numbers to a format and return them as float64."""
    return values.to(dtype).double()


def to_gpu(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the same numbers on the GPU in a format."""
    return values.to("cuda", dtype)


@pytest.mark.parametrize("shape", shapes([(32, 32), (32, 64), (64, 64)]), ids=str)
def test_4x4_layers(shape: Shape) -> None:
    dtype, runs, batch, h, c, m, plain = shape
    large, small = (round_to(randn(runs, batch, k, s, s), dtype) for k, s in ((c, 2 * h), (m, h)))
    w = round_to(randn(runs, m, c, 4, 4, scale=0.1), dtype)
    flat = to_gpu(flat_taps(w), dtype)
    act = small.relu()
    result, part = conv4x4(
        to_gpu(to_blocks(large), dtype), flat, None, h, c, m, plain, act=to_gpu(lay_out(act, plain), dtype)
    )
    wanted = torch.where(act > 0, conv(large, w), 0.0)
    assert_near(result, lay_out(wanted, plain), STORED[dtype])
    assert_near(part.double().sum(1), wanted.sum((1, 3, 4)), 10 * STORED[dtype])
    act = large.relu()
    result, part = conv_transpose4x4(
        to_gpu(lay_out(small, plain), dtype), flat, None, h, c, m, plain, act=to_gpu(to_blocks(act), dtype)
    )
    assert_near(result, to_blocks(torch.where(act > 0, conv_transpose(small, w), 0.0)), STORED[dtype])
    bias = round_to(randn(runs, c), dtype)
    rows = torch.zeros(runs, flat.shape[1], device="cuda", dtype=dtype)
    rows[:, :c] = to_gpu(bias, dtype)
    result, _ = conv_transpose4x4(to_gpu(lay_out(small, plain), dtype), flat, rows, h, c, m, plain)
    assert_near(result, to_blocks((conv_transpose(small, w) + as_image(bias)).relu()), STORED[dtype])
    out = torch.full((runs, 16 * c * m), torch.nan, device="cuda")
    conv4x4_weight_gradient(to_gpu(to_blocks(large), dtype), to_gpu(lay_out(small, plain), dtype), out, h, c, m, plain)
    assert_near(out, flat_taps(weight_gradient(large, small, 4)), SUMMED[dtype])


@pytest.mark.parametrize("shape", shapes([(32, 64), (64, 64)]), ids=str)
def test_2x2_layers(shape: Shape) -> None:
    dtype, runs, batch, h, c, m, _ = shape
    large, small = (round_to(randn(runs, batch, k, s, s), dtype) for k, s in ((c, 2 * h), (m, h)))
    w = round_to(randn(runs, m, c, 2, 2, scale=0.1), dtype)
    flat = to_gpu(w.permute(0, 3, 4, 2, 1).flatten(1), dtype)
    x, g = to_gpu(lay_out(large, True), dtype), to_gpu(lay_out(small, True), dtype)
    assert_near(conv2x2(x, flat, torch.zeros_like(flat), h, c, m), lay_out(conv(large, w).relu(), True), STORED[dtype])
    act = large.relu()
    result, _ = conv2x2_input_gradient(g, flat, to_gpu(lay_out(act, True), dtype), h, c, m)
    assert_near(result, lay_out(torch.where(act > 0, conv_transpose(small, w), 0.0), True), STORED[dtype])
    out = torch.full((runs, 4 * c * m), torch.nan, device="cuda")
    conv2x2_weight_gradient(x, g, out, h, c, m)
    assert_near(out, weight_gradient(large, small, 2).permute(0, 3, 4, 2, 1).flatten(1), SUMMED[dtype])


@pytest.mark.parametrize("shape", shapes([(1, 32), (3, 32)]), ids=str)
def test_image_layers(shape: Shape) -> None:
    dtype, runs, batch, h, c, m, plain = shape
    stored = {1: 1, 3: 4}[c]
    image = round_to(torch.rand(runs, batch, c, 2 * h, 2 * h).double(), dtype)
    small = round_to(randn(runs, batch, m, h, h), dtype)
    w = round_to(randn(runs, m, c, 4, 4, scale=0.1), dtype)
    flat = to_gpu(flat_taps(w, stored), dtype)
    zero = torch.zeros_like(flat)
    result, _ = conv4x4(to_gpu(to_blocks(image, stored), dtype), flat, zero, h, stored, m, plain)
    assert_near(result, lay_out(conv(image, w).relu(), plain), STORED[dtype])
    target = image.float().to("cuda")
    loss, slopes, _ = conv_transpose4x4_nll(
        to_gpu(lay_out(small, plain), dtype), flat, zero, target, stored, plain, BERNOULLI
    )
    logits = conv_transpose(small, w)
    nll = torch.nn.functional.binary_cross_entropy_with_logits(logits, image, reduction="none")
    assert_near(loss, nll.sum((2, 3, 4)), SUMMED[dtype])
    assert_near(slopes, to_blocks(logits.sigmoid() - image, stored), STORED[dtype])
    out = torch.full((runs, flat.shape[1]), torch.nan, device="cuda")
    image_conv4x4_weight_gradient(
        to_gpu(to_blocks(image, stored), dtype), to_gpu(lay_out(small, plain), dtype), out, h, stored, plain
    )
    assert_near(out, flat_taps(weight_gradient(image, small, 4), stored), SUMMED[dtype])
