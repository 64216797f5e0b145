"""Milliseconds of warping a batch of images by each spatial transformer, and how many times those of affine maps.

A measurement draws nothing: parameters and images are given, and the gradient is taken for both. Transformers take
turns, so that whatever else the machine does meets all of them. A GPU launches each operation on its own and, as in
training, replays all of them as one CUDA graph. What else kept the machine busy shows in its load, the mean number of
processes that wanted to run in the minute before and the minute after.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from machine import describe
from unbraid.spaces.transformers import TRANSFORMERS, Cpab, Transformer

RESULTS = Path(__file__).parent / "results"
SIZE = 0.3  # of the parameters


def contestants() -> dict[str, Transformer]:
    """Every transformer as it comes, flows of fewer steps, and their coarser way."""
    others = {"cpab 20 steps": Cpab(steps=20), "cpab squaring": Cpab(method="squaring")}
    return {**{name: kind() for name, kind in TRANSFORMERS.items()}, **others}


def work(t: Transformer, batch: int, side: int, device: str) -> dict[str, Callable[[], object]]:
    """The forward warp alone, without a gradient, and with the gradient of images and parameters."""
    chance = torch.Generator().manual_seed(0)
    image = torch.rand(batch, 1, side, side, generator=chance).to(device).requires_grad_()
    gamma = (SIZE * torch.randn(batch, t.dim, generator=chance)).to(device).requires_grad_()

    @torch.no_grad()
    def forward() -> object:
        return t.forward(image, gamma)

    def both() -> object:
        return torch.autograd.grad(t.forward(image, gamma).sum(), (image, gamma))

    return {"forward": forward, "forward and backward": both}


def captured(task: Callable[[], object]) -> Callable[[], object]:
    """The same as one CUDA graph, the way training runs it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            task()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = task()

    def replay() -> object:
        graph.replay()
        return kept

    return replay


def milliseconds(task: Callable[[], object], device: str) -> float:
    """Of one call, to its end on the device."""
    begun = time.perf_counter()
    task()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begun)


def measure(batch: int, side: int, device: str, repeats: int) -> dict[str, dict[str, float]]:
    """Medians over turns; the first turn warms up and is not counted."""
    tasks = {name: work(t, batch, side, device) for name, t in contestants().items()}
    if device == "cuda":
        for pair in tasks.values():
            pair.update({f"{what}, replayed": captured(task) for what, task in pair.items()})
    times: dict[str, dict[str, list[float]]] = {name: {what: [] for what in pair} for name, pair in tasks.items()}
    for turn in range(repeats + 1):
        for name, pair in tasks.items():
            for what, task in pair.items():
                found = milliseconds(task, device)
                if turn:
                    times[name][what].append(found)
    return {name: {what: statistics.median(found) for what, found in pair.items()} for name, pair in times.items()}


def main() -> None:
    """Measure, print and write the result beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--side", type=int, default=64, help="of the images, in pixels")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--out", type=Path, help="default: results/bench_warp_{device}.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    load = [os.getloadavg()[0]]
    times = measure(options.batch, options.side, options.device, options.repeats)
    load.append(os.getloadavg()[0])
    ratios = {
        name: {what: found / times["affine"][what] for what, found in pair.items()} for name, pair in times.items()
    }
    for name, pair in times.items():
        for what, found in pair.items():
            print(f"{name:22} {what:30} {found:10.3f} ms {ratios[name][what]:8.2f} x affine", flush=True)
    settings = {key: getattr(options, key) for key in ("device", "batch", "side", "repeats", "threads")}
    result = {**describe(), **settings, "load": load, "milliseconds": times, "ratios": ratios}
    out = options.out or RESULTS / f"bench_warp_{options.device}.json"
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
