"""The launch settings of each kernel, which benchmarks/tune_kernels.py found on an H200.

Bad settings can be nine times slower. BFLOAT16 and FLOAT32 are indexed by (kernel, channels of the large image,
channels of the small image). DEFAULT is used for all other sizes.
"""

from __future__ import annotations

from typing import Any

import torch

Launch = dict[str, Any]

BFLOAT16: dict[tuple[str, int, int], Launch] = {
    ("image conv4x4", 1, 32): {"BM": 64, "num_warps": 1},
    ("image conv4x4", 4, 32): {"BM": 128, "num_warps": 2},
    ("conv4x4", 32, 32): {"BM": 64, "BO": 32, "ST": 3, "CAT": True, "num_warps": 4},
    ("conv4x4", 32, 64): {"BM": 64, "BO": 64, "ST": 3, "CAT": True, "num_warps": 4},
    ("conv4x4", 64, 64): {"BM": 64, "BO": 64, "ST": 1, "CAT": False, "num_warps": 8},
    ("conv4x4 gradient", 32, 32): {"BM": 64, "BO": 32, "ST": 2, "CAT": True, "num_warps": 4},
    ("conv4x4 gradient", 32, 64): {"BM": 64, "BO": 64, "ST": 3, "CAT": True, "num_warps": 4},
    ("conv4x4 gradient", 64, 64): {"BM": 64, "BO": 64, "ST": 1, "CAT": False, "num_warps": 8},
    ("conv_transpose4x4", 32, 32): {"BM": 64, "BN": 128, "ST": 3, "num_warps": 4},
    ("conv_transpose4x4", 32, 64): {"BM": 64, "BN": 128, "ST": 3, "num_warps": 4},
    ("conv_transpose4x4", 64, 64): {"BM": 64, "BN": 128, "ST": 3, "num_warps": 4},
    ("conv_transpose4x4 gradient", 32, 32): {"BM": 128, "BN": 64, "ST": 3, "num_warps": 4},
    ("conv4x4 weight gradient", 32, 32): {"TM": 128, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
    ("conv4x4 weight gradient", 32, 64): {"TM": 128, "TN": 128, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
    ("conv4x4 weight gradient", 64, 64): {"TM": 128, "TN": 128, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
    ("image conv_transpose4x4", 1, 32): {"BM": 64, "ST": 3, "num_warps": 4},
    ("image conv_transpose4x4", 4, 32): {"BM": 64, "ST": 3, "num_warps": 4},
    ("image weight gradient", 1, 32): {"BM": 128, "IT": 8, "num_warps": 2},
    ("image weight gradient", 4, 32): {"BM": 128, "IT": 32, "num_warps": 4},
    ("image decoder gradient", 1, 32): {"BM": 128, "IT": 16, "num_warps": 1},
    ("image decoder gradient", 4, 32): {"BM": 32, "IT": 32, "num_warps": 1},
    ("conv2x2", 32, 64): {"BM": 256, "num_warps": 8},
    ("conv2x2", 64, 64): {"BM": 128, "num_warps": 4},
    ("conv2x2 input gradient", 32, 64): {"BM": 64, "num_warps": 2},
    ("conv2x2 weight gradient", 32, 64): {"TM": 64, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
    ("conv2x2 weight gradient", 64, 64): {"TM": 128, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
}
FLOAT32: dict[tuple[str, int, int], Launch] = {
    ("conv4x4", 32, 32): {"BM": 64, "BO": 32, "ST": 1, "CAT": False, "num_warps": 4},
    ("conv4x4", 32, 64): {"BM": 32, "BO": 32, "ST": 1, "CAT": False, "num_warps": 4},
    ("conv4x4", 64, 64): {"BM": 16, "BO": 32, "ST": 1, "CAT": False, "num_warps": 4},
    ("conv4x4 weight gradient", 32, 32): {"TM": 64, "TN": 64, "BK": 64, "SPLIT": 2, "ST": 2, "num_warps": 4},
    ("conv4x4 weight gradient", 32, 64): {"TM": 64, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 2, "num_warps": 4},
    ("conv4x4 weight gradient", 64, 64): {"TM": 64, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 2, "num_warps": 4},
}
DEFAULT: dict[str, Launch] = {
    "image conv4x4": {"BM": 64, "num_warps": 2},
    "conv4x4": {"BM": 32, "BO": 32, "ST": 1, "CAT": False, "num_warps": 4},
    "conv4x4 gradient": {"BM": 16, "BO": 32, "ST": 1, "CAT": False, "num_warps": 4},
    "conv_transpose4x4 gradient": {"BM": 32, "BN": 64, "ST": 1, "num_warps": 4},
    "conv_transpose4x4": {"BM": 32, "BN": 64, "ST": 1, "num_warps": 4},
    "conv4x4 weight gradient": {"TM": 64, "TN": 64, "BK": 32, "SPLIT": 1, "ST": 2, "num_warps": 4},
    "image conv_transpose4x4": {"BM": 64, "ST": 1, "num_warps": 4},
    "image weight gradient": {"BM": 64, "IT": 16, "num_warps": 2},
    "image decoder gradient": {"BM": 64, "IT": 16, "num_warps": 2},
    "conv2x2": {"BM": 64, "num_warps": 4},
    "conv2x2 input gradient": {"BM": 64, "num_warps": 4},
    "conv2x2 weight gradient": {"TM": 64, "TN": 32, "BK": 64, "SPLIT": 2, "ST": 2, "num_warps": 4},
    "adam": {"BLOCK": 2048, "num_warps": 8},
    "noise": {"BLOCK": 1024, "num_warps": 4},
}


def launch_settings(name: str, c: int, m: int, dtype: torch.dtype) -> Launch:
    """Return the settings of a kernel for a layer with c channels in the large image and m in the small image."""
    table = BFLOAT16 if dtype == torch.bfloat16 else FLOAT32
    return table.get((name, c, m), DEFAULT[name])
