"""Which precision a device multiplies fastest in, among those whose scores could not be told from float32's."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import torch

from unbraid.errors import UserError

Precision = Literal["fp32", "tf32", "bf16"]


@functools.cache
def fastest(device: str | torch.device) -> Precision:
    """bf16 where the processor multiplies bfloat16 natively, fp32 elsewhere.

    Only products use it, between float32 parameters and float32 sums; `benchmarks/bench_precision.py` compares the
    scores of runs trained either way.
    """
    if torch.device(device).type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if {"avx512_bf16", "amx_bf16"} & _cpu_flags() else "fp32"


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse a precision the device does not have."""
    if precision == "tf32" and (device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0)):
        raise UserError(
            f"Precision tf32 needs an NVIDIA GPU of compute capability 8.0 or more. Got {device}. Use fp32."
        )


@contextlib.contextmanager
def multiplying(precision: str) -> Iterator[None]:
    """Whether float32 products on a GPU may be rounded to TensorFloat-32; fp32 means fp32."""
    allow = precision == "tf32"
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allow
    try:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=allow):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())
