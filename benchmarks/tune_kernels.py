"""Search launch settings for `unbraid/accel/kernels/tuned.py` on this GPU, with the layers of the study's network.

All candidates of all kernels are compiled in parallel processes and then timed for several numbers of runs of batch 64.
The best ones are printed beside the settings in use. Change a setting only if it is faster by more than the noise of a
second run.
Run: python benchmarks/tune_kernels.py [--only "conv_transpose4x4 gradient" --runs 1 16]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unbraid.accel.adam import Adam
from unbraid.accel.kernels import tuned
from unbraid.accel.kernels.blocked import empty_blocked
from unbraid.accel.kernels.conv2x2 import conv2x2, conv2x2_input_gradient, conv2x2_weight_gradient
from unbraid.accel.kernels.conv4x4 import conv4x4
from unbraid.accel.kernels.conv_transpose4x4 import conv_transpose4x4
from unbraid.accel.kernels.dense import dense, dense_input_gradient, dense_weight_gradient
from unbraid.accel.kernels.dense_adam import dense_adam
from unbraid.accel.kernels.last_layer import BERNOULLI, conv_transpose4x4_nll
from unbraid.accel.kernels.weights import conv4x4_weight_gradient, image_conv4x4_weight_gradient

Key = tuple[str, int, int]
BATCH, ROW = 64, 1 << 20
CALLS, REPLAYS = 8, 7  # calls in a graph, and replays of the graph, of which the first two are not counted


def grid(**axes: list[Any]) -> list[dict[str, Any]]:
    """All combinations of the values."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


STRIPS = grid(BM=[32, 64], RS=[1, 2, 4, 8], CAT=[False, True], ST=[1, 3], num_warps=[4])
WIDE_STRIPS = grid(BM=[32, 64], RS=[1, 2, 4], CAT=[False], ST=[1, 3], num_warps=[4, 8])
WALK = grid(BM=[32, 64, 128], BN=[64, 128], RS=[1, 2, 4, 8], ST=[3], num_warps=[4])
SPLITS = grid(TM=[64, 128], TN=[64, 128], BK=[64, 128], SPLIT=[1, 2, 4, 8, 16], ST=[3], num_warps=[4])
DENSE = grid(BM=[16, 64, 128], BN=[32, 64, 128], BK=[64, 128], ST=[3], num_warps=[4])
IMAGE_SUMS = grid(BM=[32, 64, 128], IT=[2, 4, 8, 16, 32], num_warps=[1, 2])
CANDIDATES: dict[str, Callable[[int, int], list[dict[str, Any]]]] = {
    "image conv4x4": lambda c, m: grid(BM=[32, 64, 128], num_warps=[1, 2, 4]),
    "conv4x4": lambda c, m: [{**s, "BO": m} for s in (STRIPS if c == 32 else WIDE_STRIPS)],
    "conv4x4 gradient": lambda c, m: [{**s, "BO": m} for s in (STRIPS if c == 32 else WIDE_STRIPS)],
    "conv_transpose4x4": lambda c, m: WALK,
    "conv_transpose4x4 gradient": lambda c, m: WALK,
    "conv4x4 weight gradient": lambda c, m: SPLITS,
    "image conv_transpose4x4": lambda c, m: grid(BM=[32, 64, 128], RS=[1, 2, 4, 8], ST=[1, 2, 3], num_warps=[2, 4]),
    "image weight gradient": lambda c, m: IMAGE_SUMS,
    "image decoder gradient": lambda c, m: IMAGE_SUMS,
    "conv2x2": lambda c, m: grid(BM=[16, 32, 64, 128, 256], num_warps=[4, 8]),
    "conv2x2 input gradient": lambda c, m: grid(BM=[16, 32, 64, 128], num_warps=[2, 4]),
    "conv2x2 weight gradient": lambda c, m: grid(
        TM=[64, 128], TN=[32, 64], BK=[64, 128], SPLIT=[1, 2, 4, 8], ST=[3], num_warps=[4]
    ),
    "dense": lambda k, n: DENSE,
    "dense input gradient": lambda k, n: DENSE,
    "dense adam": lambda k, n: grid(TM=[16, 32, 64], TN=[32, 64, 128], BK=[64, 128], num_warps=[4, 8]),
    "dense weight gradient": lambda k, n: grid(TM=[32, 64, 128], TN=[32, 64, 128], BK=[64], num_warps=[4, 8]),
}  # fmt: skip


def jobs(runs: int) -> dict[Key, Callable[[], Any]]:
    """The function to time for each row of the table."""
    torch.manual_seed(0)
    half = torch.bfloat16
    weight = torch.randn(runs, ROW, device="cuda").to(half) * 0.05
    out = torch.empty(runs, ROW, device="cuda")
    like = torch.empty(runs, BATCH, device="cuda")

    def large(side: int, c: int) -> Tensor:
        return empty_blocked(like, side, c, half).normal_()

    def small(h: int, m: int, plain: bool) -> Tensor:
        return torch.randn(runs, BATCH, h, h, m, device="cuda").to(half) if plain else large(h, m)

    def w(c: int, m: int, taps: int = 16) -> Tensor:
        return weight[:, : taps * c * m]

    def o(c: int, m: int, taps: int = 16) -> Tensor:
        return out[:, : taps * c * m]

    bias = weight[:, -1024:]
    found: dict[Key, Callable[[], Any]] = {}
    for stored, real in ((1, 1), (4, 3)):
        x, target = large(64, stored), torch.rand(runs, BATCH, real, 64, 64, device="cuda")
        act, into, scale = large(32, 32), large(32, 32), torch.full((runs, BATCH), 1 / 64, device="cuda")
        given, gradient = w(stored, 32), o(stored, 32)
        found["image conv4x4", stored, 32] = partial(conv4x4, x, given, bias, 32, stored, 32, False)
        found["image conv_transpose4x4", stored, 32] = partial(
            conv_transpose4x4_nll, act, given, bias, target, stored, False, BERNOULLI
        )
        found["image weight gradient", stored, 32] = partial(
            image_conv4x4_weight_gradient, x, act, gradient, 32, stored, False
        )
        found["image decoder gradient", stored, 32] = partial(
            image_conv4x4_weight_gradient, x, act, gradient, 32, stored, False, given, scale, into
        )
    found["conv4x4", 32, 32] = partial(conv4x4, large(32, 32), w(32, 32), bias, 16, 32, 32, True)
    for c, m, h, plain in ((32, 32, 16, False), (32, 64, 8, False), (64, 64, 4, True)):
        big, little = large(2 * h, c), small(h, m, plain)
        found["conv4x4 gradient", c, m] = partial(conv4x4, big, w(c, m), None, h, c, m, plain, little)
        found["conv_transpose4x4", c, m] = partial(conv_transpose4x4, little, w(c, m), bias, h, c, m, plain)
        found["conv4x4 weight gradient", c, m] = partial(conv4x4_weight_gradient, big, little, o(c, m), h, c, m, plain)
    found["conv_transpose4x4 gradient", 32, 32] = partial(
        conv_transpose4x4, small(16, 32, True), w(32, 32), None, 16, 32, 32, True, large(32, 32)
    )
    for c, m, h in ((32, 64, 8), (64, 64, 4)):
        big, little = small(2 * h, c, True), small(h, m, True)
        found["conv2x2", c, m] = partial(conv2x2, big, w(c, m, 4), bias, h, c, m)
        found["conv2x2 input gradient", c, m] = partial(conv2x2_input_gradient, little, w(c, m, 4), big, h, c, m)
        found["conv2x2 weight gradient", c, m] = partial(conv2x2_weight_gradient, big, little, o(c, m, 4), h, c, m)
    for k, n in ((1024, 256), (256, 24), (16, 256), (256, 1024), (1000, 1000)):
        batch = 2 * BATCH if k == n else BATCH  # the critic of FactorVAE reads two batches
        x, g = (torch.randn(runs, batch, size, device="cuda").to(half) for size in (k, n))
        found["dense", k, n] = partial(dense, x, w(k, n, 1), bias, (k, n), 0.0)
        found["dense input gradient", k, n] = partial(dense_input_gradient, g, w(k, n, 1), (k, n), x, 0.0, half)
        found["dense weight gradient", k, n] = partial(
            dense_weight_gradient, x, g, o(k, n, 1), out[:, -1024:], (k, n), True
        )
    state = (out, torch.zeros_like(out), torch.zeros_like(out), weight)
    rate, alive = torch.zeros(runs, device="cuda"), torch.ones(runs, dtype=torch.bool, device="cuda")
    found["dense adam", k, n] = partial(
        dense_adam,
        x,
        g,
        state,
        (k, n),
        k * n,
        rate,
        alive,
        torch.ones((), dtype=torch.int64, device="cuda"),
        Adam(1e-4),
    )
    return found


def microseconds(job: Callable[[], Any]) -> float:
    """The median time of a call, in replays of a CUDA graph of several calls."""
    job()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            job()
    times: list[float] = []
    for i in range(REPLAYS):
        first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        graph.replay()
        second.record()
        second.synchronize()
        if i > 1:
            times.append(first.elapsed_time(second) * 1e3 / CALLS)
    return statistics.median(times)


def compile_candidates(part: list[tuple[Key, dict[str, Any]]]) -> int:
    """Compile candidates into the cache of Triton, and return how many compiled. Some do not fit on the chip."""
    work, done = jobs(1), 0
    for key, candidate in part:
        tuned.BFLOAT16[key] = {1: candidate}
        try:
            work[key]()
            done += 1
        except Exception:
            continue
    return done


def time_candidates(job: Callable[[], Any], key: Key) -> list[tuple[float, dict[str, Any]]]:
    """The times of all candidates of one kernel, fastest first."""
    before, found = tuned.BFLOAT16.get(key), []
    for candidate in CANDIDATES[key[0]](*key[1:]):
        tuned.BFLOAT16[key] = {1: candidate}
        try:
            found.append((microseconds(job), candidate))
        except Exception:
            continue
    if before is None:
        del tuned.BFLOAT16[key]
    else:
        tuned.BFLOAT16[key] = before
    return sorted(found, key=lambda pair: pair[0])


def search(only: list[str], sizes: list[int]) -> Iterator[tuple[Key, int, float, list[tuple[float, dict[str, Any]]]]]:
    """For each number of runs and kernel, the time of the settings in use, and the times of all candidates."""
    wanted = [key for key in jobs(1) if not only or key[0] in only]
    pairs = [(key, candidate) for key in wanted for candidate in CANDIDATES[key[0]](*key[1:])]
    processes = min(os.cpu_count() or 1, 15)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        compiled = sum(pool.map(compile_candidates, [pairs[i::processes] for i in range(processes)]))
        print(f"{compiled} of {len(pairs)} candidates compiled", flush=True)
    for runs in sizes:
        work = jobs(runs)
        for key in wanted:
            yield key, runs, microseconds(work[key]), time_candidates(work[key], key)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], choices=list(CANDIDATES))
    parser.add_argument("--runs", nargs="*", type=int, default=[1, 4, 16, 40, 128])
    parser.add_argument("--out", type=Path, help="a JSON file for all times")
    options = parser.parse_args()
    everything = []
    for key, runs, now, found in search(options.only, options.runs):
        best = "; ".join(f"{t:.1f} {c}" for t, c in found[:3])
        print(f"{key}, {runs} runs: now {now:.1f} us; {best}", flush=True)
        everything.append({"key": key, "runs": runs, "now": now, "found": found[:20]})
        if options.out:
            options.out.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
