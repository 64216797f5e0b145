"""Search the launch settings of `engine/kernels/tuned.py` on the GPU at hand, with the layers of the study's network.

Every candidate of every kernel is compiled in parallel processes, then timed at 128 runs of batch 64; prints the best
beside the one in use. A table row is worth changing where it wins by more than the noise of a second run.
Run: python benchmarks/tune_kernels.py [--only "up back"]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unbraid.accel.kernels import tuned
from unbraid.accel.kernels.blocked import blocked
from unbraid.accel.kernels.conv2x2 import two, two_back, two_weight
from unbraid.accel.kernels.conv4x4 import down
from unbraid.accel.kernels.conv_transpose4x4 import BERNOULLI, image_nll, up
from unbraid.accel.kernels.weights import image_weight_gradient, weight_gradient

Key = tuple[str, int, int]
BATCH, ROW = 64, 64 * 8_192


def grid(**axes: list[Any]) -> list[dict[str, Any]]:
    """Every combination."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


WALK = grid(BM=[32, 64, 128], BN=[64, 128], ST=[1, 2, 3], num_warps=[4, 8])
CANDIDATES: dict[str, Callable[[int, int], list[dict[str, Any]]]] = {
    "image": lambda c, m: grid(BM=[32, 64, 128, 256], num_warps=[1, 2, 4, 8]),
    "down": lambda c, m: grid(BM=[32, 64, 128], BO=[m], ST=[1, 2, 3], CAT=[False, True], num_warps=[4, 8]),
    "down back": lambda c, m: grid(BM=[32, 64, 128], BO=[m], ST=[1, 2, 3], CAT=[False, True], num_warps=[4, 8]),
    "up": lambda c, m: WALK,
    "up back": lambda c, m: WALK,
    "weight": lambda c, m: grid(
        TM=[64, 128], TN=[64, 128], BK=[32, 64, 128], SPLIT=[1, 2, 4], ST=[2, 3], num_warps=[4]
    ),
    "to image": lambda c, m: grid(BM=[32, 64, 128], ST=[1, 2, 3, 4], num_warps=[1, 2, 4, 8]),
    "image weight": lambda c, m: grid(BM=[32, 64, 128], IT=[8, 16, 32], num_warps=[1, 2, 4]),
    "image back": lambda c, m: grid(BM=[32, 64, 128], IT=[8, 16, 32], num_warps=[1, 2, 4]),
    "two": lambda c, m: grid(BM=[32, 64, 128, 256], num_warps=[2, 4, 8]),
    "two back": lambda c, m: grid(BM=[32, 64, 128], num_warps=[2, 4, 8]),
    "two weight": lambda c, m: grid(
        TM=[64, 128], TN=[32, 64], BK=[32, 64, 128], SPLIT=[1, 2, 4], ST=[2, 3], num_warps=[4]
    ),
}  # fmt: skip


def jobs(runs: int) -> dict[Key, Callable[[], Any]]:
    """What to time for each row of the table."""
    torch.manual_seed(0)
    half = torch.bfloat16
    weight = torch.randn(runs, ROW, device="cuda").to(half) * 0.05
    out = torch.empty(runs, ROW, device="cuda")
    like = torch.empty(runs, BATCH, device="cuda")

    def large(side: int, c: int) -> Tensor:
        return blocked(like, side, c, half).normal_()

    def small(h: int, m: int, plain: bool) -> Tensor:
        return torch.randn(runs, BATCH, h, h, m, device="cuda").to(half) if plain else large(h, m)

    def w(c: int, m: int, taps: int = 16) -> Tensor:
        return weight[:, : taps * c * m]

    def o(c: int, m: int, taps: int = 16) -> Tensor:
        return out[:, : taps * c * m]

    bias = weight[:, -64:]
    found: dict[Key, Callable[[], Any]] = {}
    for stored, real in ((1, 1), (4, 3)):
        x, target = large(64, stored), torch.rand(runs, BATCH, real, 64, 64, device="cuda")
        act, into, scale = large(32, 32), large(32, 32), torch.full((runs, BATCH), 1 / 64, device="cuda")
        given, gradient = w(stored, 32), o(stored, 32)
        found["image", stored, 32] = partial(down, x, given, bias, 32, stored, 32, False)
        found["to image", stored, 32] = partial(image_nll, act, given, bias, target, stored, False, BERNOULLI)
        found["image weight", stored, 32] = partial(image_weight_gradient, x, act, gradient, 32, stored, False)
        found["image back", stored, 32] = partial(
            image_weight_gradient, x, act, gradient, 32, stored, False, given, scale, into
        )
    found["down", 32, 32] = partial(down, large(32, 32), w(32, 32), bias, 16, 32, 32, True)
    for c, m, h, plain in ((32, 32, 16, False), (32, 64, 8, False), (64, 64, 4, True)):
        big, little = large(2 * h, c), small(h, m, plain)
        found["down back", c, m] = partial(down, big, w(c, m), None, h, c, m, plain, little)
        found["up", c, m] = partial(up, little, w(c, m), bias, h, c, m, plain)
        found["weight", c, m] = partial(weight_gradient, big, little, o(c, m), h, c, m, plain)
    found["up back", 32, 32] = partial(up, small(16, 32, True), w(32, 32), None, 16, 32, 32, True, large(32, 32))
    for c, m, h in ((32, 64, 8), (64, 64, 4)):
        big, little = small(2 * h, c, True), small(h, m, True)
        found["two", c, m] = partial(two, big, w(c, m, 4), bias, h, c, m)
        found["two back", c, m] = partial(two_back, little, w(c, m, 4), big, h, c, m)
        found["two weight", c, m] = partial(two_weight, big, little, o(c, m, 4), h, c, m)
    return found


def milliseconds(job: Callable[[], Any]) -> float:
    """The median of repeated calls."""
    times: list[float] = []
    for i in range(12):
        first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        job()
        second.record()
        second.synchronize()
        if i > 2:
            times.append(first.elapsed_time(second))
    return statistics.median(times)


def compiled(part: list[tuple[Key, dict[str, Any]]]) -> int:
    """Compile candidates into Triton's cache; those that do not fit on the chip are left out later."""
    work, done = jobs(1), 0
    for key, candidate in part:
        tuned.HALF[key] = candidate
        try:
            work[key]()
            done += 1
        except Exception:
            continue
    return done


def search(only: list[str]) -> Iterator[tuple[Key, float, list[tuple[float, dict[str, Any]]]]]:
    """For each kernel: the time in use now, and all candidates with theirs, the best first."""
    wanted = [key for key in jobs(1) if not only or key[0] in only]
    pairs = [(key, candidate) for key in wanted for candidate in CANDIDATES[key[0]](*key[1:])]
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool:
        print(sum(pool.map(compiled, [pairs[i::12] for i in range(12)])), "of", len(pairs), "candidates", flush=True)
    work = jobs(128)
    for key in wanted:
        now = milliseconds(work[key])
        before, found = tuned.HALF.get(key), []
        for candidate in CANDIDATES[key[0]](*key[1:]):
            tuned.HALF[key] = candidate
            try:
                found.append((milliseconds(work[key]), candidate))
            except Exception:
                continue
        if before is None:
            del tuned.HALF[key]
        else:
            tuned.HALF[key] = before
        yield key, now, sorted(found, key=lambda pair: pair[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], choices=list(CANDIDATES))
    parser.add_argument("--out", type=Path, help="every time, as JSON")
    options = parser.parse_args()
    everything = {}
    for key, now, found in search(options.only):
        best = "; ".join(f"{t:.4f} {c}" for t, c in found[:3])
        print(f"{key}: now {now:.4f} ms; {best}", flush=True)
        everything[str(key)] = {"now": now, "found": found[:20]}
    if options.out:
        options.out.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
