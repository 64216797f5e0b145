"""How each kernel is launched: found by benchmarks/tune_kernels.py on an H200; a bad choice costs up to nine times.

HALF is for bfloat16, WHOLE for float32, OTHERWISE for layers that are in neither.
"""

from __future__ import annotations

from typing import Any

import torch

Launch = dict[str, Any]

HALF: dict[tuple[str, int, int], Launch] = {
    ("image", 1, 32): {"BM": 64, "num_warps": 1},
    ("image", 4, 32): {"BM": 128, "num_warps": 2},
    ("down", 32, 32): {"BM": 64, "BO": 32, "ST": 3, "CAT": True, "num_warps": 4},
    ("down", 32, 64): {"BM": 64, "BO": 64, "ST": 3, "CAT": True, "num_warps": 4},
    ("down", 64, 64): {"BM": 64, "BO": 64, "ST": 1, "CAT": False, "num_warps": 8},
    ("down back", 32, 32): {"BM": 64, "BO": 32, "ST": 2, "CAT": True, "num_warps": 4},
    ("down back", 32, 64): {"BM": 64, "BO": 64, "ST": 3, "CAT": True, "num_warps": 4},
    ("down back", 64, 64): {"BM": 64, "BO": 64, "ST": 1, "CAT": False, "num_warps": 8},
    ("up", 32, 32): {"BM": 64, "BN": 128, "ST": 3, "num_warps": 4},
    ("up", 32, 64): {"BM": 64, "BN": 128, "ST": 3, "num_warps": 4},
    ("up", 64, 64): {"BM": 64, "BN": 128, "ST": 3, "num_warps": 4},
    ("up back", 32, 32): {"BM": 128, "BN": 64, "ST": 3, "num_warps": 4},
    ("weight", 32, 32): {"TM": 128, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
    ("weight", 32, 64): {"TM": 128, "TN": 128, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
    ("weight", 64, 64): {"TM": 128, "TN": 128, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
    ("to image", 1, 32): {"BM": 64, "ST": 3, "num_warps": 4},
    ("to image", 4, 32): {"BM": 64, "ST": 3, "num_warps": 4},
    ("image weight", 1, 32): {"BM": 128, "IT": 8, "num_warps": 2},
    ("image weight", 4, 32): {"BM": 128, "IT": 32, "num_warps": 4},
    ("image back", 1, 32): {"BM": 128, "IT": 16, "num_warps": 1},
    ("image back", 4, 32): {"BM": 32, "IT": 32, "num_warps": 1},
    ("two", 32, 64): {"BM": 256, "num_warps": 8},
    ("two", 64, 64): {"BM": 128, "num_warps": 4},
    ("two back", 32, 64): {"BM": 64, "num_warps": 2},
    ("two weight", 32, 64): {"TM": 64, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
    ("two weight", 64, 64): {"TM": 128, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
}
WHOLE: dict[tuple[str, int, int], Launch] = {
    ("down", 32, 32): {"BM": 64, "BO": 32, "ST": 1, "CAT": False, "num_warps": 4},
    ("down", 32, 64): {"BM": 32, "BO": 32, "ST": 1, "CAT": False, "num_warps": 4},
    ("down", 64, 64): {"BM": 16, "BO": 32, "ST": 1, "CAT": False, "num_warps": 4},
    ("weight", 32, 32): {"TM": 64, "TN": 64, "BK": 64, "SPLIT": 2, "ST": 2, "num_warps": 4},
    ("weight", 32, 64): {"TM": 64, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 2, "num_warps": 4},
    ("weight", 64, 64): {"TM": 64, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 2, "num_warps": 4},
}
OTHERWISE: dict[str, Launch] = {
    "image": {"BM": 64, "num_warps": 2},
    "down": {"BM": 32, "BO": 32, "ST": 1, "CAT": False, "num_warps": 4},
    "down back": {"BM": 16, "BO": 32, "ST": 1, "CAT": False, "num_warps": 4},
    "up back": {"BM": 32, "BN": 64, "ST": 1, "num_warps": 4},
    "up": {"BM": 32, "BN": 64, "ST": 1, "num_warps": 4},
    "weight": {"TM": 64, "TN": 64, "BK": 32, "SPLIT": 1, "ST": 2, "num_warps": 4},
    "to image": {"BM": 64, "ST": 1, "num_warps": 4},
    "image weight": {"BM": 64, "IT": 16, "num_warps": 2},
    "image back": {"BM": 64, "IT": 16, "num_warps": 2},
    "two": {"BM": 64, "num_warps": 4},
    "two back": {"BM": 64, "num_warps": 4},
    "two weight": {"TM": 64, "TN": 32, "BK": 64, "SPLIT": 2, "ST": 2, "num_warps": 4},
    "adam": {"BLOCK": 2048, "num_warps": 8},
    "noise": {"BLOCK": 1024, "num_warps": 4},
}


def launch(name: str, c: int, m: int, dtype: torch.dtype) -> Launch:
    """The settings of a kernel for a layer between c channels on the large side and m on the small one."""
    table = HALF if dtype == torch.bfloat16 else WHOLE
    return table.get((name, c, m), OTHERWISE[name])
