"""The precision of kernels follows that of the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed here")

from unbraid.accel.kernels import tuned
from unbraid.accel.launch_candidates import KEYS
from unbraid.accel.launch_file import user_table
from unbraid.accel.precision import Precision, matmul_precision, product_precision
from unbraid.errors import UserError


@pytest.mark.parametrize(("precision", "expected"), [("fp32", "tf32x3"), ("tf32", "tf32"), ("bf16", "tf32x3")])
def test_float32_is_multiplied_as_tf32_only_in_tf32(precision: Precision, expected: str) -> None:
    """In runs with bf16, networks that are computed in float32 are multiplied with the error of float32."""
    with matmul_precision(precision):
        assert product_precision(torch.float32) == expected
        assert product_precision(torch.bfloat16) == "tf32"  # Triton ignores it for other types than float32


@pytest.fixture
def _highest_precision() -> Iterator[None]:
    """Restore the default precision of float32 products after a test."""
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("before", ["medium", "high", "highest"])
@pytest.mark.usefixtures("_highest_precision")
def test_the_precision_of_the_process_is_restored(before: str) -> None:
    torch.set_float32_matmul_precision(before)
    with matmul_precision("fp32"):
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="this PyTorch has no such setting"
)
@pytest.mark.usefixtures("_highest_precision")
def test_settings_of_backends_raise() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with pytest.raises(UserError, match="must not be set by an attribute fp32_precision"), matmul_precision("fp32"):
        pass


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty cache folder, so that no settings of `unbraid tune` are read."""
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path))
    user_table.cache_clear()
    yield
    user_table.cache_clear()


@pytest.mark.parametrize("runs", [1, 64])
@pytest.mark.usefixtures("empty_cache")
def test_launch_settings_depend_on_the_precision(runs: int) -> None:
    for key in KEYS:
        with matmul_precision("fp32"):
            float32 = tuned.launch_settings(*key, torch.float32, runs)
        with matmul_precision("tf32"):
            fast = tuned.launch_settings(*key, torch.float32, runs)
        assert float32 == tuned.FLOAT32_PRODUCTS.get(key[0], fast)


def test_settings_of_float32_products_cover_every_layer() -> None:
    """Tiles divide the channels, and slices divide strips."""
    for name, c, m in KEYS:
        settings = tuned.FLOAT32_PRODUCTS.get(name, {})
        assert m % settings.get("BO", m) == 0
        assert 4 * c % settings.get("BN", 4 * c) == 0
        assert 8 * c % settings.get("BK", 8 * c) == 0
        assert 4 * c % settings.get("TM", 4 * c) == 0
        assert 4 * m % settings.get("TN", 4 * m) == 0
