"""Measure how long it takes to compute the layers of shapes3d_rendered, and how many images per second are blended."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from machine import describe
from unbraid.data.dataset import FactorData
from unbraid.data.rendered.shapes3d_rendered import shapes3d_rendered
from unbraid.noise import Noise

RESULT = Path(__file__).parent / "results" / "bench_shapes3d.json"
BATCH = {"cpu": 64, "cuda": 4096}


def time_call(work: Callable[[], object]) -> float:
    """Return the seconds of one call, including the work on a device."""
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def blend_all_images(data: FactorData, size: int) -> None:
    """Blend all images in order, `size` at a time, and discard them."""
    for index in torch.arange(len(data), device=data.device).split(size):
        data.batch(index)


def measure_rendering(device: str, repeats: int) -> dict[str, Any]:
    """Measure computing the layers, blending random batches (after warm-up) and blending the whole dataset."""
    build = [time_call(lambda: shapes3d_rendered(device)) for _ in range(repeats)]
    data = shapes3d_rendered(device)
    size = BATCH[torch.device(device).type]
    index = data.draw(Noise(torch.tensor(0, device=device)), size * 32).split(size)
    batches = [time_call(lambda: [data.batch(part) for part in index]) for _ in range(repeats + 1)][1:]
    whole = time_call(lambda: blend_all_images(data, size))
    return {
        "layers_seconds": build,
        "median_layers_seconds": statistics.median(build),
        "batch": size,
        "random_images_per_second": size * 32 / statistics.median(batches),
        "whole_set_seconds": whole,
        "images_per_second": len(data) / whole,
        "table_bytes": data.table.nbytes,
    }


def main() -> None:
    """Measure, print, and write the results to results/."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="a device to measure as well, for example cuda")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = {device: measure_rendering(device, options.repeats) for device in dict.fromkeys(("cpu", options.device))}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({**describe(), "threads": 1, "render": figures}, indent=2) + "\n")
    for device, figure in figures.items():
        print(
            "{}: layers {median_layers_seconds:.2f} s, random batches of {batch} {random_images_per_second:,.0f} "
            "images/s, whole set {whole_set_seconds:.2f} s ({images_per_second:,.0f} images/s)".format(device, **figure)
        )


if __name__ == "__main__":
    main()
