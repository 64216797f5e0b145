"""Every layer on a GPU, in each precision, agrees with float64 on the same rounded numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator

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
from unbraid.accel.precision import matmul_precision

pytestmark = pytest.mark.gpu

# Relative tolerances of stored results and of float32 sums. A bfloat16 result has 8 bits and thus a relative error of
# at most 2^-9. Weight gradients are float32 sums, whose products are exact for bfloat16. For TensorFloat-32, the
# factors of the products have 11 bits. In fp32, products have about the error of float32.
STORED = {"bf16": 2.5e-3, "tf32": 1e-3, "fp32": 1e-5}
SUMMED = {"bf16": 2e-5, "tf32": 1e-3, "fp32": 1e-5}

Shape = tuple[str, int, int, int, int, int, bool]


@pytest.fixture
def shape(request: pytest.FixtureRequest) -> Iterator[Shape]:
    """The shape. While a test runs, kernels multiply in its precision."""
    with matmul_precision(request.param[0]):
        yield request.param


def shapes(widths: list[tuple[int, int]]) -> list[Shape]:
    """Return shapes with random runs, batch size, side and layout, for each pair of widths and each precision."""
    rng = random.Random(0)
    return [
        (precision, rng.randint(1, 4), rng.randint(1, 70), rng.choice([4, 8, 16]), c, m, rng.random() < 0.5)
        for precision in STORED
        for c, m in widths
    ]


def round_to(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round numbers to a format and return them as float64."""
    return values.to(dtype).double()


def to_gpu(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the same numbers on the GPU in a format."""
    return values.to("cuda", dtype)


@pytest.mark.parametrize("shape", shapes([(32, 32), (32, 64), (64, 64)]), indirect=True, ids=str)
def test_4x4_layers(shape: Shape) -> None:
    precision, runs, batch, h, c, m, plain = shape
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    large, small = (round_to(randn(runs, batch, k, s, s), dtype) for k, s in ((c, 2 * h), (m, h)))
    w = round_to(randn(runs, m, c, 4, 4, scale=0.1), dtype)
    flat = to_gpu(flat_taps(w), dtype)
    act = small.relu()
    result, part = conv4x4(
        to_gpu(to_blocks(large), dtype), flat, None, h, c, m, plain, act=to_gpu(lay_out(act, plain), dtype)
    )
    wanted = torch.where(act > 0, conv(large, w), 0.0)
    assert_near(result, lay_out(wanted, plain), STORED[precision])
    assert_near(part.double().sum(1), wanted.sum((1, 3, 4)), 10 * STORED[precision])
    act = large.relu()
    result, part = conv_transpose4x4(
        to_gpu(lay_out(small, plain), dtype), flat, None, h, c, m, plain, act=to_gpu(to_blocks(act), dtype)
    )
    assert_near(result, to_blocks(torch.where(act > 0, conv_transpose(small, w), 0.0)), STORED[precision])
    bias = round_to(randn(runs, c), dtype)
    rows = torch.zeros(runs, flat.shape[1], device="cuda", dtype=dtype)
    rows[:, :c] = to_gpu(bias, dtype)
    result, _ = conv_transpose4x4(to_gpu(lay_out(small, plain), dtype), flat, rows, h, c, m, plain)
    assert_near(result, to_blocks((conv_transpose(small, w) + as_image(bias)).relu()), STORED[precision])
    out = torch.full((runs, 16 * c * m), torch.nan, device="cuda")
    conv4x4_weight_gradient(to_gpu(to_blocks(large), dtype), to_gpu(lay_out(small, plain), dtype), out, h, c, m, plain)
    assert_near(out, flat_taps(weight_gradient(large, small, 4)), SUMMED[precision])


@pytest.mark.parametrize("shape", shapes([(32, 64), (64, 64)]), indirect=True, ids=str)
def test_2x2_layers(shape: Shape) -> None:
    precision, runs, batch, h, c, m, _ = shape
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    large, small = (round_to(randn(runs, batch, k, s, s), dtype) for k, s in ((c, 2 * h), (m, h)))
    w = round_to(randn(runs, m, c, 2, 2, scale=0.1), dtype)
    flat = to_gpu(w.permute(0, 3, 4, 2, 1).flatten(1), dtype)
    x, g = to_gpu(lay_out(large, True), dtype), to_gpu(lay_out(small, True), dtype)
    result = conv2x2(x, flat, torch.zeros_like(flat), h, c, m)
    assert_near(result, lay_out(conv(large, w).relu(), True), STORED[precision])
    act = large.relu()
    result, _ = conv2x2_input_gradient(g, flat, to_gpu(lay_out(act, True), dtype), h, c, m)
    assert_near(result, lay_out(torch.where(act > 0, conv_transpose(small, w), 0.0), True), STORED[precision])
    out = torch.full((runs, 4 * c * m), torch.nan, device="cuda")
    conv2x2_weight_gradient(x, g, out, h, c, m)
    assert_near(out, weight_gradient(large, small, 2).permute(0, 3, 4, 2, 1).flatten(1), SUMMED[precision])


@pytest.mark.parametrize("shape", shapes([(1, 32), (3, 32)]), indirect=True, ids=str)
def test_image_layers(shape: Shape) -> None:
    precision, runs, batch, h, c, m, plain = shape
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    stored = {1: 1, 3: 4}[c]
    image = round_to(torch.rand(runs, batch, c, 2 * h, 2 * h).double(), dtype)
    small = round_to(randn(runs, batch, m, h, h), dtype)
    w = round_to(randn(runs, m, c, 4, 4, scale=0.1), dtype)
    flat = to_gpu(flat_taps(w, stored), dtype)
    zero = torch.zeros_like(flat)
    result, _ = conv4x4(to_gpu(to_blocks(image, stored), dtype), flat, zero, h, stored, m, plain)
    assert_near(result, lay_out(conv(image, w).relu(), plain), STORED[precision])
    target = image.float().to("cuda")
    loss, slopes, _ = conv_transpose4x4_nll(
        to_gpu(lay_out(small, plain), dtype), flat, zero, target, stored, plain, BERNOULLI
    )
    logits = conv_transpose(small, w)
    nll = torch.nn.functional.binary_cross_entropy_with_logits(logits, image, reduction="none")
    assert_near(loss, nll.sum((2, 3, 4)), SUMMED[precision])
    assert_near(slopes, to_blocks(logits.sigmoid() - image, stored), STORED[precision])
    out = torch.full((runs, flat.shape[1]), torch.nan, device="cuda")
    image_conv4x4_weight_gradient(
        to_gpu(to_blocks(image, stored), dtype), to_gpu(lay_out(small, plain), dtype), out, h, stored, plain
    )
    assert_near(out, flat_taps(weight_gradient(image, small, 4), stored), SUMMED[precision])
