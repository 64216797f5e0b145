"""Two kernels of 4x4 convolutions, for groups of pixels and for slices of strips, agree with PyTorch in float64."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed here")

from support.layers import (
    TOLERANCE,
    Case,
    as_image,
    assert_near,
    conv,
    flat_taps,
    guarded_copy,
    lay_out,
    randn,
    sum_parts,
    to_blocks,
    within_longer_rows,
    within_rows_like,
)
from unbraid.accel.kernels import tuned
from unbraid.accel.kernels.conv4x4 import conv4x4

pytestmark = pytest.mark.usefixtures("poisoned")
CASES: list[Case] = [(2, 3, 4, 32, 32, True), (2, 5, 4, 32, 64, False), (1, 2, 8, 32, 32, False)]


SETTINGS = {
    "groups": {"BM": 16, "ST": 1, "GB": 2, "num_warps": 4},
    "slices": {"BM": 32, "BO": 32, "BK": 64, "ST": 1, "num_warps": 4},
}


@pytest.fixture(autouse=True, params=SETTINGS)
def settings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose the kernel by its launch settings."""
    for name in ("conv4x4", "conv4x4 gradient"):
        for m in (32, 64):
            monkeypatch.setitem(tuned.FLOAT32, (name, 32, m), {256: SETTINGS[request.param]})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution_with_relu(case: Case) -> None:
    """Every run has its own weights and bias, and the border of a blocked result is zero."""
    runs, batch, h, C, M, plain = case
    x, w, bias = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, M, C, 4, 4, scale=0.1), randn(runs, M)
    flat = flat_taps(w)
    weights, biases = within_longer_rows(flat), within_rows_like(bias, flat)
    y, _ = conv4x4(guarded_copy(to_blocks(x)), weights, biases, h, C, M, plain)
    wanted = (conv(x, w) + as_image(bias)).relu()
    assert_near(y, lay_out(wanted, plain))
    assert not y.cpu()[lay_out(torch.ones_like(wanted), plain) == 0].any()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_input_gradient(case: Case) -> None:
    """The gradient is zero where the activations are zero, and its sums are the gradient of the bias."""
    runs, batch, h, C, M, plain = case
    x, w = randn(runs, batch, C, 2 * h, 2 * h), randn(runs, M, C, 4, 4, scale=0.1)
    act = randn(runs, batch, M, h, h).relu()
    given = guarded_copy(lay_out(act, plain))
    y, part = conv4x4(guarded_copy(to_blocks(x)), within_longer_rows(flat_taps(w)), None, h, C, M, plain, act=given)
    wanted = torch.where(act > 0, conv(x, w), 0.0)
    assert_near(y, lay_out(wanted, plain))
    assert not y.cpu()[lay_out(act, plain) == 0].any()
    assert_near(sum_parts(part), wanted.sum((1, 3, 4)), 10 * TOLERANCE)
