"""The launch settings of each kernel, which were found by timing the kernels on an H200 GPU.

With bad settings, a kernel can be nine times slower.

`launch_settings` uses what `unbraid tune` found for this GPU and stored in the cache folder. For other layers and
numbers of runs it uses the tables of this module.

A convolution with stride 2 maps an image to an image of half the side, and its transpose does the reverse. These images
are called the large and the small image. BFLOAT16 and FLOAT32 are indexed by (kernel, channels of the large image,
channels of the small image), and then by the largest number of runs trained together for which the settings are used.
If more runs are trained together, the last settings are used. For dense layers, the padded numbers of inputs and
outputs take the place of the channels. DEFAULT is used for kernels and channels that are not in these tables.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import torch

from unbraid.accel.launch_candidates import RUNS, Launch, TunedPrecision, nearest_size
from unbraid.accel.launch_file import is_interpreted, user_table
from unbraid.accel.precision import product_precision

BFLOAT16: dict[tuple[str, int, int], dict[int, Launch]] = {
    ("image conv4x4", 1, 32): {
        2: {"BM": 32, "num_warps": 2},
        256: {"BM": 64, "num_warps": 2},
    },
    ("image conv4x4", 4, 32): {256: {"BM": 128, "num_warps": 2}},
    ("conv4x4", 32, 32): {
        2: {"BM": 64, "BO": 32, "RS": 8, "CAT": False, "ST": 1, "num_warps": 4},
        8: {"BM": 64, "BO": 32, "RS": 2, "CAT": True, "ST": 3, "num_warps": 4},
        72: {"BM": 64, "BO": 32, "RS": 1, "CAT": True, "ST": 3, "num_warps": 4},
        256: {"BM": 64, "GB": 2, "ST": 3, "num_warps": 4},
    },
    ("conv4x4", 32, 64): {128: {"BM": 64, "BO": 64, "ST": 3, "CAT": True, "RS": 1, "num_warps": 4}},
    ("conv4x4", 64, 64): {128: {"BM": 64, "BO": 64, "ST": 1, "CAT": False, "RS": 1, "num_warps": 8}},
    ("conv4x4 gradient", 32, 32): {
        2: {"BM": 64, "BO": 32, "RS": 8, "CAT": False, "ST": 1, "num_warps": 4},
        8: {"BM": 64, "BO": 32, "RS": 2, "CAT": True, "ST": 3, "num_warps": 4},
        72: {"BM": 64, "BO": 32, "RS": 1, "CAT": True, "ST": 3, "num_warps": 4},
        256: {"BM": 64, "GB": 2, "ST": 3, "num_warps": 4},
    },
    ("conv4x4 gradient", 32, 64): {
        2: {"BM": 32, "BO": 64, "RS": 8, "CAT": False, "ST": 3, "num_warps": 4},
        8: {"BM": 64, "BO": 64, "RS": 8, "CAT": False, "ST": 1, "num_warps": 4},
        256: {"BM": 64, "BO": 64, "RS": 1, "CAT": True, "ST": 3, "num_warps": 4},
    },
    ("conv4x4 gradient", 64, 64): {
        8: {"BM": 32, "BO": 64, "RS": 4, "CAT": False, "ST": 1, "num_warps": 4},
        72: {"BM": 32, "BO": 64, "RS": 1, "CAT": False, "ST": 3, "num_warps": 4},
        256: {"BM": 64, "BO": 64, "RS": 1, "CAT": False, "ST": 1, "num_warps": 8},
    },
    ("conv_transpose4x4", 32, 32): {
        2: {"BM": 64, "BN": 64, "RS": 8, "ST": 3, "num_warps": 4},
        8: {"BM": 64, "BN": 64, "RS": 4, "ST": 3, "num_warps": 4},
        25: {"BM": 64, "BN": 64, "RS": 1, "ST": 3, "num_warps": 4},
        72: {"BM": 64, "BN": 128, "RS": 1, "ST": 3, "num_warps": 4},
        256: {"BM": 64, "BN": 128, "RS": 1, "ST": 4, "num_warps": 4},
    },
    ("conv_transpose4x4", 32, 64): {
        2: {"BM": 64, "BN": 64, "RS": 4, "ST": 3, "num_warps": 4},
        8: {"BM": 64, "BN": 64, "RS": 2, "ST": 3, "num_warps": 4},
        256: {"BM": 64, "BN": 128, "RS": 1, "ST": 3, "num_warps": 4},
    },
    ("conv_transpose4x4", 64, 64): {
        2: {"BM": 128, "BN": 64, "RS": 8, "ST": 3, "num_warps": 4},
        8: {"BM": 64, "BN": 64, "RS": 1, "ST": 3, "num_warps": 4},
        256: {"BM": 64, "BN": 128, "RS": 1, "ST": 3, "num_warps": 4},
    },
    ("conv_transpose4x4 gradient", 32, 32): {
        2: {"BM": 64, "BN": 64, "RS": 8, "ST": 3, "num_warps": 4},
        8: {"BM": 64, "BN": 64, "RS": 2, "ST": 3, "num_warps": 4},
        256: {"BM": 64, "BN": 64, "RS": 1, "ST": 3, "num_warps": 4},
    },
    ("conv4x4 weight gradient", 32, 32): {
        8: {"TM": 128, "TN": 64, "BK": 64, "SPLIT": 16, "ST": 3, "num_warps": 4},
        72: {"TM": 128, "TN": 64, "BK": 64, "SPLIT": 8, "ST": 3, "num_warps": 4},
        256: {"TM": 128, "TN": 128, "BK": 64, "SPLIT": 1, "ST": 4, "num_warps": 8},
    },
    ("conv4x4 weight gradient", 32, 64): {
        2: {"TM": 64, "TN": 64, "BK": 64, "SPLIT": 16, "ST": 3, "num_warps": 4},
        8: {"TM": 128, "TN": 64, "BK": 64, "SPLIT": 8, "ST": 3, "num_warps": 4},
        72: {"TM": 128, "TN": 64, "BK": 64, "SPLIT": 4, "ST": 3, "num_warps": 4},
        256: {"TM": 128, "TN": 128, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
    },
    ("conv4x4 weight gradient", 64, 64): {
        2: {"TM": 64, "TN": 64, "BK": 128, "SPLIT": 8, "ST": 3, "num_warps": 4},
        8: {"TM": 64, "TN": 64, "BK": 128, "SPLIT": 1, "ST": 3, "num_warps": 4},
        72: {"TM": 128, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
        256: {"TM": 128, "TN": 128, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
    },
    ("image conv_transpose4x4", 1, 32): {
        8: {"BM": 32, "RS": 8, "ST": 2, "num_warps": 2},
        25: {"BM": 32, "RS": 2, "ST": 3, "num_warps": 2},
        256: {"BM": 32, "RS": 1, "ST": 3, "num_warps": 2},
    },
    ("image conv_transpose4x4", 4, 32): {
        2: {"BM": 32, "RS": 4, "ST": 3, "num_warps": 2},
        8: {"BM": 64, "RS": 4, "ST": 2, "num_warps": 4},
        256: {"BM": 64, "RS": 1, "ST": 3, "num_warps": 4},
    },
    ("image weight gradient", 1, 32): {
        2: {"BM": 128, "IT": 4, "num_warps": 2},
        8: {"BM": 64, "IT": 8, "num_warps": 2},
        25: {"BM": 64, "IT": 16, "num_warps": 2},
        72: {"BM": 128, "IT": 32, "num_warps": 2},
        256: {"BM": 128, "IT": 16, "num_warps": 2},
    },
    ("image weight gradient", 4, 32): {
        8: {"BM": 64, "IT": 8, "num_warps": 2},
        25: {"BM": 32, "IT": 32, "num_warps": 1},
        256: {"BM": 64, "IT": 32, "num_warps": 2},
    },
    ("image decoder gradient", 1, 32): {
        8: {"BM": 128, "IT": 4, "num_warps": 2},
        256: {"BM": 128, "IT": 8, "num_warps": 1},
    },
    ("image decoder gradient", 4, 32): {
        2: {"BM": 64, "IT": 4, "num_warps": 2},
        8: {"BM": 64, "IT": 8, "num_warps": 2},
        25: {"BM": 32, "IT": 32, "num_warps": 1},
        72: {"BM": 32, "IT": 16, "num_warps": 1},
        256: {"BM": 32, "IT": 32, "num_warps": 1},
    },
    ("conv2x2", 32, 64): {
        2: {"BM": 32, "num_warps": 8},
        256: {"BM": 128, "num_warps": 8},
    },
    ("conv2x2", 64, 64): {
        2: {"BM": 16, "num_warps": 8},
        8: {"BM": 32, "num_warps": 8},
        256: {"BM": 128, "num_warps": 8},
    },
    ("conv2x2 input gradient", 32, 64): {
        2: {"BM": 16, "num_warps": 4},
        256: {"BM": 128, "num_warps": 4},
    },
    ("conv2x2 input gradient", 64, 64): {
        2: {"BM": 16, "num_warps": 4},
        8: {"BM": 32, "num_warps": 4},
        256: {"BM": 64, "num_warps": 4},
    },
    ("conv2x2 weight gradient", 32, 64): {
        2: {"TM": 64, "TN": 32, "BK": 128, "SPLIT": 8, "ST": 3, "num_warps": 4},
        8: {"TM": 64, "TN": 32, "BK": 64, "SPLIT": 8, "ST": 3, "num_warps": 4},
        25: {"TM": 64, "TN": 64, "BK": 128, "SPLIT": 4, "ST": 3, "num_warps": 4},
        72: {"TM": 64, "TN": 64, "BK": 128, "SPLIT": 1, "ST": 3, "num_warps": 4},
        256: {"TM": 128, "TN": 64, "BK": 128, "SPLIT": 1, "ST": 3, "num_warps": 4},
    },
    ("conv2x2 weight gradient", 64, 64): {
        25: {"TM": 64, "TN": 32, "BK": 128, "SPLIT": 1, "ST": 3, "num_warps": 4},
        72: {"TM": 64, "TN": 64, "BK": 128, "SPLIT": 1, "ST": 3, "num_warps": 4},
        256: {"TM": 128, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 3, "num_warps": 4},
    },
    ("dense", 16, 256): {
        2: {"BM": 16, "BN": 64, "BK": 128, "ST": 3, "num_warps": 4},
        72: {"BM": 16, "BN": 128, "BK": 128, "ST": 3, "num_warps": 4},
        256: {"BM": 128, "BN": 64, "BK": 64, "ST": 3, "num_warps": 4},
    },
    ("dense", 256, 24): {
        72: {"BM": 64, "BN": 32, "BK": 64, "ST": 3, "num_warps": 4},
        256: {"BM": 128, "BN": 32, "BK": 128, "ST": 3, "num_warps": 4},
    },
    ("dense", 256, 1024): {
        8: {"BM": 64, "BN": 32, "BK": 64, "ST": 3, "num_warps": 4},
        72: {"BM": 64, "BN": 128, "BK": 64, "ST": 3, "num_warps": 4},
        256: {"BM": 128, "BN": 128, "BK": 64, "ST": 3, "num_warps": 4},
    },
    ("dense", 1000, 1000): {
        2: {"BM": 16, "BN": 32, "BK": 128, "ST": 3, "num_warps": 4},
        8: {"BM": 64, "BN": 64, "BK": 64, "ST": 3, "num_warps": 4},
        25: {"BM": 128, "BN": 128, "BK": 128, "ST": 3, "num_warps": 4},
        72: {"BM": 64, "BN": 128, "BK": 64, "ST": 3, "num_warps": 4},
        256: {"BM": 128, "BN": 128, "BK": 64, "ST": 3, "num_warps": 4},
    },
    ("dense", 1024, 256): {
        8: {"BM": 64, "BN": 32, "BK": 128, "ST": 3, "num_warps": 4},
        25: {"BM": 128, "BN": 32, "BK": 128, "ST": 3, "num_warps": 4},
        72: {"BM": 64, "BN": 128, "BK": 128, "ST": 3, "num_warps": 4},
        256: {"BM": 128, "BN": 128, "BK": 64, "ST": 3, "num_warps": 4},
    },
    ("dense input gradient", 16, 256): {
        72: {"BM": 16, "BN": 32, "BK": 64, "ST": 3, "num_warps": 4},
        256: {"BM": 128, "BN": 32, "BK": 128, "ST": 3, "num_warps": 4},
    },
    ("dense input gradient", 256, 24): {
        8: {"BM": 16, "BN": 64, "BK": 128, "ST": 3, "num_warps": 4},
        72: {"BM": 16, "BN": 128, "BK": 128, "ST": 3, "num_warps": 4},
        256: {"BM": 64, "BN": 128, "BK": 128, "ST": 3, "num_warps": 4},
    },
    ("dense input gradient", 256, 1024): {
        8: {"BM": 16, "BN": 32, "BK": 128, "ST": 3, "num_warps": 4},
        25: {"BM": 128, "BN": 32, "BK": 128, "ST": 3, "num_warps": 4},
        72: {"BM": 64, "BN": 32, "BK": 128, "ST": 3, "num_warps": 4},
        256: {"BM": 64, "BN": 128, "BK": 64, "ST": 3, "num_warps": 4},
    },
    ("dense input gradient", 1000, 1000): {
        2: {"BM": 16, "BN": 32, "BK": 128, "ST": 3, "num_warps": 4},
        8: {"BM": 64, "BN": 64, "BK": 64, "ST": 3, "num_warps": 4},
        25: {"BM": 128, "BN": 128, "BK": 64, "ST": 3, "num_warps": 4},
        72: {"BM": 64, "BN": 128, "BK": 64, "ST": 3, "num_warps": 4},
        256: {"BM": 128, "BN": 128, "BK": 64, "ST": 3, "num_warps": 4},
    },
    ("dense input gradient", 1024, 256): {
        8: {"BM": 64, "BN": 32, "BK": 64, "ST": 3, "num_warps": 4},
        72: {"BM": 64, "BN": 128, "BK": 64, "ST": 3, "num_warps": 4},
        256: {"BM": 128, "BN": 128, "BK": 64, "ST": 3, "num_warps": 4},
    },
    ("dense weight gradient", 16, 256): {
        25: {"TM": 64, "TN": 32, "BK": 64, "num_warps": 4},
        256: {"TM": 32, "TN": 128, "BK": 64, "num_warps": 4},
    },
    ("dense weight gradient", 256, 24): {
        25: {"TM": 64, "TN": 32, "BK": 64, "num_warps": 4},
        72: {"TM": 128, "TN": 32, "BK": 64, "num_warps": 4},
        256: {"TM": 64, "TN": 32, "BK": 64, "num_warps": 4},
    },
    ("dense weight gradient", 256, 1024): {
        2: {"TM": 64, "TN": 32, "BK": 64, "num_warps": 4},
        256: {"TM": 128, "TN": 64, "BK": 64, "num_warps": 4},
    },
    ("dense weight gradient", 1000, 1000): {256: {"TM": 128, "TN": 64, "BK": 64, "num_warps": 4}},
    ("dense weight gradient", 1024, 256): {
        2: {"TM": 64, "TN": 32, "BK": 64, "num_warps": 4},
        256: {"TM": 128, "TN": 64, "BK": 64, "num_warps": 4},
    },
    ("dense adam", 1000, 1000): {256: {"TM": 64, "TN": 64, "BK": 64, "num_warps": 4}},
}
FLOAT32: dict[tuple[str, int, int], dict[int, Launch]] = {
    ("conv4x4", 32, 32): {128: {"BM": 64, "BO": 32, "ST": 1, "CAT": False, "RS": 1, "num_warps": 4}},
    ("conv4x4", 32, 64): {128: {"BM": 32, "BO": 32, "ST": 1, "CAT": False, "RS": 1, "num_warps": 4}},
    ("conv4x4", 64, 64): {128: {"BM": 16, "BO": 32, "ST": 1, "CAT": False, "RS": 1, "num_warps": 4}},
    ("conv4x4 weight gradient", 32, 32): {128: {"TM": 64, "TN": 64, "BK": 64, "SPLIT": 2, "ST": 2, "num_warps": 4}},
    ("conv4x4 weight gradient", 32, 64): {128: {"TM": 64, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 2, "num_warps": 4}},
    ("conv4x4 weight gradient", 64, 64): {128: {"TM": 64, "TN": 64, "BK": 64, "SPLIT": 1, "ST": 2, "num_warps": 4}},
}
# Settings for products with the error of float32, which need more registers, by kernel. They were measured on an H200.
FLOAT32_PRODUCTS: dict[str, Launch] = {
    "conv4x4": {"BM": 64, "BO": 32, "BK": 64, "ST": 2, "num_warps": 4},
    "conv4x4 gradient": {"BM": 64, "BO": 32, "BK": 64, "ST": 2, "num_warps": 4},
    "conv4x4 weight gradient": {"TM": 64, "TN": 64, "BK": 32, "SPLIT": 16, "ST": 3, "num_warps": 4},
    "conv_transpose4x4": {"BM": 64, "BN": 64, "ST": 1, "RS": 1, "num_warps": 8},
    "conv_transpose4x4 gradient": {"BM": 64, "BN": 64, "ST": 1, "RS": 1, "num_warps": 8},
    "image conv_transpose4x4": {"BM": 32, "ST": 1, "RS": 1, "num_warps": 4},
    "conv2x2": {"BM": 64, "num_warps": 8},
    "conv2x2 input gradient": {"BM": 16, "num_warps": 8},
}
DEFAULT: dict[str, Launch] = {
    "image conv4x4": {"BM": 64, "num_warps": 2},
    "conv4x4": {"BM": 32, "BO": 32, "ST": 1, "CAT": False, "RS": 1, "num_warps": 4},
    "conv4x4 gradient": {"BM": 16, "BO": 32, "ST": 1, "CAT": False, "RS": 1, "num_warps": 4},
    "conv_transpose4x4 gradient": {"BM": 32, "BN": 64, "ST": 1, "RS": 1, "num_warps": 4},
    "conv_transpose4x4": {"BM": 32, "BN": 64, "ST": 1, "RS": 1, "num_warps": 4},
    "conv4x4 weight gradient": {"TM": 64, "TN": 64, "BK": 32, "SPLIT": 1, "ST": 2, "num_warps": 4},
    "image conv_transpose4x4": {"BM": 64, "ST": 1, "RS": 1, "num_warps": 4},
    "image weight gradient": {"BM": 64, "IT": 16, "num_warps": 2},
    "image decoder gradient": {"BM": 64, "IT": 16, "num_warps": 2},
    "conv2x2": {"BM": 64, "num_warps": 4},
    "conv2x2 input gradient": {"BM": 64, "num_warps": 4},
    "conv2x2 weight gradient": {"TM": 64, "TN": 32, "BK": 64, "SPLIT": 2, "ST": 2, "num_warps": 4},
    "dense": {"BM": 64, "BN": 64, "BK": 64, "ST": 3, "num_warps": 4},
    "dense input gradient": {"BM": 64, "BN": 64, "BK": 64, "ST": 3, "num_warps": 4},
    "dense weight gradient": {"TM": 64, "TN": 64, "BK": 64, "num_warps": 4},
    "dense adam": {"TM": 64, "TN": 64, "BK": 64, "num_warps": 4},
    "block sums": {"BLOCK": 8192, "num_warps": 8},
    "adam": {"BLOCK": 2048, "num_warps": 8},
    "noise": {"BLOCK": 1024, "num_warps": 4},
}


MIN_TILE = 16  # the smallest side of a tile that tensor cores multiply
TILES = ("BM", "BN", "BO", "BK", "TM", "TN")
P = ParamSpec("P")
R = TypeVar("R")
_forced: dict[str, Launch] = {}  # settings that replace all others, by kernel
_too_large: set[tuple[str, int, int, torch.dtype, tuple[Any, ...]]] = set()  # settings that did not fit on the GPU
_last_lookup: list[tuple[str, int, int, torch.dtype, tuple[Any, ...]]] = []  # latest result of `launch_settings`


def launch_settings(name: str, c: int, m: int, dtype: torch.dtype, runs: int) -> Launch:
    """Return the settings of a kernel for a layer with c channels in the large image and m in the small image.

    For a dense layer, c and m are the padded numbers of inputs and outputs.
    """
    if name in _forced:
        return _forced[name]
    settings = _user_settings(name, c, m, dtype, runs) or package_settings(name, c, m, dtype, runs)
    while (lookup := (name, c, m, dtype, tuple(settings.items()))) in _too_large:
        settings = smaller_settings(settings)
    _last_lookup[:] = [lookup]
    return settings


def package_settings(name: str, c: int, m: int, dtype: torch.dtype, runs: int) -> Launch:
    """Return the settings of a kernel in the tables of this module (see `launch_settings`)."""
    if name in FLOAT32_PRODUCTS and product_precision(dtype) == "tf32x3":
        return FLOAT32_PRODUCTS[name]
    table = BFLOAT16 if dtype == torch.bfloat16 else FLOAT32
    by_runs = table.get((name, c, m))
    if by_runs is None:
        return DEFAULT[name]
    return by_runs[min((limit for limit in by_runs if limit >= runs), default=max(by_runs))]


def _user_settings(name: str, c: int, m: int, dtype: torch.dtype, runs: int) -> Launch | None:
    """Return the settings that `unbraid tune` found on this GPU for about this number of runs, or None.

    It does not search settings for products with the error of float32 (see `product_precision`).
    """
    if product_precision(dtype) == "tf32x3":
        return None
    precision: TunedPrecision = "bf16" if dtype == torch.bfloat16 else "tf32"
    on_gpu = torch.cuda.is_available() and not is_interpreted()
    stored = user_table(torch.cuda.current_device() if on_gpu else None)
    by_runs = {} if stored is None else stored.tables[precision].get((name, c, m), {})
    return by_runs.get(nearest_size(runs, {*RUNS, *by_runs})) if by_runs else None


@contextlib.contextmanager
def forced_settings(name: str, settings: Launch) -> Iterator[None]:
    """Launch a kernel with the given settings inside this context, whatever the tables say."""
    _forced[name] = settings
    try:
        yield
    finally:
        del _forced[name]


def smaller_settings(settings: Launch) -> Launch:
    """Return settings that need less shared memory: with fewer pipeline stages, without CAT, or with a smaller tile.

    Settings that cannot be made smaller are returned unchanged.

    >>> smaller_settings({"BM": 64, "BK": 32, "ST": 3})
    {'BM': 64, 'BK': 32, 'ST': 2}
    >>> smaller_settings({"BM": 64, "BK": 32, "ST": 1})
    {'BM': 32, 'BK': 32, 'ST': 1}
    """
    if settings.get("ST", 1) > 1:
        return {**settings, "ST": settings["ST"] - 1}
    if settings.get("CAT"):
        return {**settings, "CAT": False}
    tiles = {name: size for name, size in settings.items() if name in TILES and size > MIN_TILE}
    longest = max(tiles, key=lambda name: tiles[name], default=None)
    return settings if longest is None else {**settings, longest: tiles[longest] // 2}


def fit_shared_memory(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function that looks up settings and launches one kernel with them.

    If the kernel needs more shared memory than a multiprocessor of the GPU has, the function is called again with
    smaller settings, which are also used from then on.
    """

    @functools.wraps(function)
    def launch(*args: P.args, **kwargs: P.kwargs) -> R:
        from triton.runtime.errors import OutOfResources

        while True:
            try:
                return function(*args, **kwargs)
            except OutOfResources:
                if not _last_lookup or not _make_smaller(_last_lookup[0]):
                    raise

    return launch


def _make_smaller(lookup: tuple[str, int, int, torch.dtype, tuple[Any, ...]]) -> bool:
    """Record that settings do not fit on the GPU. Return False if there are no smaller settings."""
    settings = dict(lookup[-1])
    if smaller_settings(settings) == settings:
        return False
    _too_large.add(lookup)
    return True
