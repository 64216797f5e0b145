"""Measure the milliseconds of warping a batch of images with each spatial transformer, also relative to affine maps.

Parameters and images are drawn before the measurement, and the gradient is taken for both. The transformers take turns,
so that other load on the machine affects all of them. On a GPU, operations are launched one by one and, as in training,
replayed as one CUDA graph. The results record the load of the machine before and after: the mean number of processes
that were ready to run in the last minute.
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
SIZE = 0.3  # standard deviation of the parameters


def transformers() -> dict[str, Transformer]:
    """Return every transformer with its defaults, flows with fewer steps, and flows by scaling and squaring."""
    others = {"cpab 20 steps": Cpab(steps=20), "cpab squaring": Cpab(method="squaring")}
    return {**{name: kind() for name, kind in TRANSFORMERS.items()}, **others}


def warp_tasks(t: Transformer, batch: int, side: int, device: str) -> dict[str, Callable[[], object]]:
    """Return two tasks: the forward warp without a gradient, and the warp with gradients of images and parameters."""
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(batch, 1, side, side, generator=generator).to(device).requires_grad_()
    gamma = (SIZE * torch.randn(batch, t.dim, generator=generator)).to(device).requires_grad_()

    @torch.no_grad()
    def forward() -> object:
        return t.forward(image, gamma)

    def both() -> object:
        return torch.autograd.grad(t.forward(image, gamma).sum(), (image, gamma))

    return {"forward": forward, "forward and backward": both}


def capture_graph(task: Callable[[], object]) -> Callable[[], object]:
    """Return the task as one CUDA graph, as training runs it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            task()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = task()

    def replay() -> object:
        graph.replay()
        return result

    return replay


def milliseconds(task: Callable[[], object], device: str) -> float:
    """Return the milliseconds of one call, until it ends on the device."""
    start = time.perf_counter()
    task()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start)


def measure(batch: int, side: int, device: str, repeats: int) -> dict[str, dict[str, float]]:
    """Return medians over rounds. The first round is for warm-up and is not counted."""
    tasks = {name: warp_tasks(t, batch, side, device) for name, t in transformers().items()}
    if device == "cuda":
        for pair in tasks.values():
            pair.update({f"{what}, replayed": capture_graph(task) for what, task in pair.items()})
    times: dict[str, dict[str, list[float]]] = {name: {what: [] for what in pair} for name, pair in tasks.items()}
    for turn in range(repeats + 1):
        for name, pair in tasks.items():
            for what, task in pair.items():
                found = milliseconds(task, device)
                if turn:
                    times[name][what].append(found)
    return {name: {what: statistics.median(found) for what, found in pair.items()} for name, pair in times.items()}


def main() -> None:
    """Measure, print, and write the results to results/."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--side", type=int, default=64, help="side of the images in pixels")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
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
