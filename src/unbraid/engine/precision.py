"""Which precision a device multiplies fastest in, among those whose scores could not be told from float32's."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Literal

import torch

Precision = Literal["fp32", "bf16"]


@functools.cache
def fastest(device: str | torch.device) -> Precision:
    """bf16 where the processor multiplies bfloat16 natively, fp32 elsewhere.

    Only convolutions use it, between float32 parameters and float32 sums; `benchmarks/bench_precision.py` compares the
    scores of runs trained either way.
    """
    if torch.device(device).type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if {"avx512_bf16", "amx_bf16"} & _cpu_flags() else "fp32"


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())
