"""The launch settings that `unbraid tune` tries for each kernel, and the numbers of runs for which it tries them.

`unbraid.accel.kernels` describes the launch settings. Settings in a file are accepted only if they are listed here,
because other tile sizes may leave out a part of a layer. This module does not import Triton.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any, Literal

Launch = dict[str, Any]
Key = tuple[str, int, int]
"""The name of a kernel, and the channels of the large and of the small image (inputs and outputs of a dense layer)."""

TunedPrecision = Literal["bf16", "tf32"]
RUNS = (1, 4, 16, 40, 64, 128, 256)
MAX_RUNS = 256
CONV_CHANNELS = ((32, 32), (32, 64), (64, 64))
IMAGE_CHANNELS = ((1, 32), (4, 32))
DENSE_SIZES = ((1024, 256), (256, 24), (16, 256), (256, 1024), (1000, 1000))
KEYS: tuple[Key, ...] = (
    *(("image conv4x4", *size) for size in IMAGE_CHANNELS),
    *(("image conv_transpose4x4", *size) for size in IMAGE_CHANNELS),
    *(("image weight gradient", *size) for size in IMAGE_CHANNELS),
    *(("image decoder gradient", *size) for size in IMAGE_CHANNELS),
    ("conv4x4", 32, 32),
    *(("conv4x4 gradient", *size) for size in CONV_CHANNELS),
    *(("conv_transpose4x4", *size) for size in CONV_CHANNELS),
    ("conv_transpose4x4 gradient", 32, 32),
    *(("conv4x4 weight gradient", *size) for size in CONV_CHANNELS),
    *(("conv2x2", *size) for size in CONV_CHANNELS[1:]),
    *(("conv2x2 input gradient", *size) for size in CONV_CHANNELS[1:]),
    *(("conv2x2 weight gradient", *size) for size in CONV_CHANNELS[1:]),
    *(("dense", *size) for size in DENSE_SIZES),
    *(("dense input gradient", *size) for size in DENSE_SIZES),
    *(("dense weight gradient", *size) for size in DENSE_SIZES),
    ("dense adam", 1000, 1000),
)
"""The layers that are timed, which are those of the networks `locatello` and `burgess` and of FactorVAE's critic."""

KERNELS = tuple(dict.fromkeys(key[0] for key in KEYS))


def nearest_size(runs: int, sizes: Iterable[int]) -> int:
    """Return the number in `sizes` whose ratio to `runs` is closest to 1. If two are equally close, return the smaller.

    >>> [nearest_size(runs, RUNS) for runs in (1, 2, 3, 8, 25, 26, 50, 51, 300)]
    [1, 1, 4, 4, 16, 40, 40, 64, 256]
    """
    return min(sorted(sizes), key=lambda size: abs(math.log(size / runs)))


def candidates(key: Key, precision: TunedPrecision) -> list[Launch]:
    """Return the settings to try for a layer. Some of them may need more memory than a multiprocessor has."""
    name, c, m = key
    half = precision == "bf16"
    stages = [3] if half else [1, 2]  # tiles of float32 need twice the memory
    if name in ("conv4x4", "conv4x4 gradient"):
        return _strips(c, m, half)
    if name in ("conv_transpose4x4", "conv_transpose4x4 gradient"):
        return _grid(
            BM=[32, 64, 128], BN=[64, 128], RS=[1, 2, 4, 8], ST=[*stages, 4] if half else stages, num_warps=[4]
        )
    if name == "conv4x4 weight gradient":
        small = _grid(TM=[64, 128], TN=[64, 128], BK=[64, 128], SPLIT=[1, 2, 4, 8, 16], ST=stages, num_warps=[4])
        return small + (_grid(TM=[128], TN=[128], BK=[64], SPLIT=[1, 2], ST=[3, 4], num_warps=[8]) if half else [])
    if name == "conv2x2 weight gradient":
        return _grid(TM=[64, 128], TN=[32, 64], BK=[64, 128], SPLIT=[1, 2, 4, 8], ST=stages, num_warps=[4])
    if name in ("dense", "dense input gradient"):
        return _grid(BM=[16, 64, 128], BN=[32, 64, 128], BK=[64, 128], ST=stages, num_warps=[4])
    return _grid(**PLAIN_AXES[name])


PLAIN_AXES: dict[str, dict[str, list[Any]]] = {
    "image conv4x4": {"BM": [32, 64, 128], "num_warps": [1, 2, 4]},
    "image conv_transpose4x4": {"BM": [32, 64, 128], "RS": [1, 2, 4, 8], "ST": [1, 2, 3], "num_warps": [2, 4]},
    "image weight gradient": {"BM": [32, 64, 128], "IT": [2, 4, 8, 16, 32], "num_warps": [1, 2]},
    "image decoder gradient": {"BM": [32, 64, 128], "IT": [2, 4, 8, 16, 32], "num_warps": [1, 2]},
    "conv2x2": {"BM": [16, 32, 64, 128, 256], "num_warps": [4, 8]},
    "conv2x2 input gradient": {"BM": [16, 32, 64, 128], "num_warps": [2, 4]},
    "dense adam": {"TM": [16, 32, 64], "TN": [32, 64, 128], "BK": [64, 128], "num_warps": [4, 8]},
    "dense weight gradient": {"TM": [32, 64, 128], "TN": [32, 64, 128], "BK": [64], "num_warps": [4, 8]},
}


def _strips(c: int, m: int, half: bool) -> list[Launch]:
    """Return the settings of 4x4 convolutions, which read strips of the large image."""
    if not half:
        outputs = sorted({32, m})
        return _grid(BM=[16, 32, 64], BO=outputs, RS=[1, 2, 4, 8], CAT=[False], ST=[1], num_warps=[4])
    if c == 32:
        strips = _grid(BM=[32, 64], BO=[m], RS=[1, 2, 4, 8], CAT=[False, True], ST=[1, 3], num_warps=[4])
        return strips + (_grid(BM=[32, 64], GB=[2], ST=[2, 3], num_warps=[4]) if m == 32 else [])
    return _grid(BM=[32, 64], BO=[m], RS=[1, 2, 4], CAT=[False], ST=[1, 3], num_warps=[4, 8])


def _grid(**axes: list[Any]) -> list[Launch]:
    """Return all combinations of the values."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
