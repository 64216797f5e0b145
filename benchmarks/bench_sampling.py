"""Measure how many images per second are drawn on one core from every built-in dataset: indices alone, and with images.

Drawing must never limit training. Datasets that are rendered when they are needed are also limited by rendering, so
both rates are shown.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from machine import describe
from unbraid.data import BUILT_IN, FactorData, load
from unbraid.data.sampling import laplace_transitions, pairs, random_walks, uniform_transitions
from unbraid.noise import Noise

RESULT = Path(__file__).parent / "results" / "bench_sampling.json"
PAIRS = 32  # 64 images, one step of training
DRAWS: dict[str, Callable[..., Any]] = {
    "pairs": pairs,
    "uniform transitions": uniform_transitions,
    "laplace transitions": laplace_transitions,
    "walks of 8": random_walks,
}


def images_per_second(work: Callable[[int], int], device: str, seconds: float) -> float:
    """Return the images per second of repeated calls of `work`, which returns the number of its images."""
    for i in range(3):
        work(i)
    done, step, start = 0, 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        done += work(step)
        step += 1
    if device != "cpu":
        torch.cuda.synchronize()
    return done / (time.perf_counter() - start)


def measure(data: FactorData, device: str, seconds: float, count: int) -> dict[str, dict[str, float]]:
    """Return the rates of every way to draw, without and with images."""
    found = {}
    for name, draw in DRAWS.items():

        def indices(step: int, draw: Callable[..., Any] = draw) -> torch.Tensor:
            drawn = draw(
                data, Noise.from_seed(torch.tensor(0, device=device), torch.tensor(step, device=device)), count
            )
            examples: torch.Tensor = getattr(drawn, "examples", drawn)
            return examples.flatten()

        def images(step: int, indices: Callable[[int], torch.Tensor] = indices) -> int:
            noise = Noise.from_seed(torch.tensor(1, device=device), torch.tensor(step, device=device))
            return len(data.batch(indices(step), noise))

        drawing = images_per_second(lambda step, indices=indices: len(indices(step)), device, seconds)  # type: ignore[misc]
        found[name] = {"drawn": drawing, "with images": images_per_second(images, device, seconds)}
    return found


def main() -> None:
    """Measure, print, and write the results to results/."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of each measurement")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs per call")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rates = {}
    for name in BUILT_IN:
        rates[name] = measure(load(name, device=options.device), options.device, options.seconds, options.pairs)
        for draw, pair in rates[name].items():
            print(
                f"{name:18} {draw:20} {pair['drawn']:12,.0f} drawn/s {pair['with images']:12,.0f} images/s", flush=True
            )
    result = {**describe(), "device": options.device, "threads": 1, "pairs": options.pairs, "rates": rates}
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
