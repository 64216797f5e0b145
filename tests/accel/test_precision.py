"""The precision of kernels follows that of the run."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed here")

from unbraid.accel.kernels import tuned
from unbraid.accel.launch_candidates import KEYS
from unbraid.accel.precision import Precision, matmul_precision, product_precision


@pytest.mark.parametrize(("precision", "expected"), [("fp32", "tf32x3"), ("tf32", "tf32"), ("bf16", "tf32x3")])
def test_float32_is_multiplied_as_tf32_only_in_tf32(precision: Precision, expected: str) -> None:
    """In runs with bf16, networks that are computed in float32 are multiplied with the error of float32."""
    with matmul_precision(precision):
        assert product_precision(torch.float32) == expected
        assert product_precision(torch.bfloat16) == "tf32"  # Triton ignores it for other types than float32


@pytest.mark.parametrize("runs", [1, 64])
def test_launch_settings_depend_on_the_precision(runs: int) -> None:
    for key in KEYS:
        with matmul_precision("fp32"):
            exact = tuned.launch_settings(*key, torch.float32, runs)
        with matmul_precision("tf32"):
            fast = tuned.launch_settings(*key, torch.float32, runs)
        assert exact == tuned.EXACT.get(key[0], fast)


def test_settings_of_exact_products_cover_every_layer() -> None:
    """Tiles divide the channels, and slices divide strips."""
    for name, c, m in KEYS:
        settings = tuned.EXACT.get(name, {})
        assert m % settings.get("BO", m) == 0
        assert 4 * c % settings.get("BN", 4 * c) == 0 or name.startswith("dense")
        assert 8 * c % settings.get("BK", 8 * c) == 0 or name.startswith("dense")
