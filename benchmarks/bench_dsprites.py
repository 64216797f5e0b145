"""Measure how long it takes to render dSprites on one core (and on a device), and to write and load its cache."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from machine import describe
from unbraid.data import cache, dsprites
from unbraid.data.rendered.dsprites import FILE

RESULT = Path(__file__).parent / "results" / "bench_dsprites.json"


def time_call(work: Callable[[], object]) -> float:
    """Return the seconds of one call, including the work on a device."""
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure_rendering(device: str, repeats: int) -> dict[str, Any]:
    """Measure rendering of the whole dataset. The first time, which includes warm-up, is reported separately."""
    first, *times = [time_call(lambda: dsprites(device, cache=False)) for _ in range(repeats + 1)]
    median = statistics.median(times)
    data = dsprites(device, cache=False)
    lit = sum(int((data.table >> bit & 1).sum()) for bit in range(8))
    return {
        "first_seconds": first,
        "seconds": times,
        "median_seconds": median,
        "images_per_second": len(data) / median,
        "lit_pixels": lit,
    }


def measure_cache(repeats: int) -> dict[str, Any]:
    """Measure writing the dataset to a new cache folder, and loading it from the file system's cache."""
    data = dsprites(cache=False)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UNBRAID_CACHE"] = folder
        write = time_call(lambda: cache.write(FILE, data.table))
        times = [time_call(dsprites) for _ in range(repeats)]
        size = (Path(folder) / FILE).stat().st_size
    return {
        "bytes": size,
        "write_seconds": write,
        "load_seconds": times,
        "median_load_seconds": statistics.median(times),
    }


def main() -> None:
    """Measure, print, and write the results to results/."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="a device to measure as well, for example cuda")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    devices = dict.fromkeys(("cpu", options.device))
    figures = {device: measure_rendering(device, options.repeats) for device in devices}
    result = {**describe(), "threads": 1, "render": figures, "cache": measure_cache(options.repeats)}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    for device, figure in figures.items():
        print("{}: {median_seconds:.3f} s, {images_per_second:,.0f} images/s".format(device, **figure))
    print(
        "cache: write {write_seconds:.3f} s, load {median_load_seconds:.3f} s, {bytes:,} bytes".format(
            **result["cache"]
        )
    )


if __name__ == "__main__":
    main()
