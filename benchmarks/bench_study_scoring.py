"""How much longer a study takes if its runs are scored, compared with training alone.

On a GPU, runs are scored on the cores of the machine while the next stack is trained. So scoring should add little more
than the time to score the last stack. The study has six strengths of some methods of locatello2019 on one dataset, with
fewer steps. Its real runs have 300,000 steps, for which the same scores take a smaller part of the time.

A first, small study compiles the kernels of training and of the metrics, and is not measured.
Writes results/bench_study_scoring.json. Run: python benchmarks/bench_study_scoring.py [--device cuda]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import unbraid as ub
from machine import describe
from unbraid.runtime.files import write_atomic

RESULT = Path(__file__).parent / "results" / "bench_study_scoring.json"
METHODS = ("beta_vae", "beta_tcvae", "annealed_vae")


def study_seconds(options: argparse.Namespace, seeds: int, steps: int, metrics: Sequence[str] | None) -> float:
    """Return the time that the study takes with this number of seeds and steps, with the metrics."""
    with tempfile.TemporaryDirectory() as out:
        started = time.perf_counter()
        ub.study(
            "locatello2019", out, only={"method": options.methods}, data=options.data, seeds=range(seeds), steps=steps,
            metrics=metrics, samples=options.samples, device=options.device,
        )  # fmt: skip
        return time.perf_counter() - started


def main() -> None:
    """Measure the study without and with scores, print both times and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try this script [cuda]")
    parser.add_argument("--data", default="dsprites", help="dataset [dsprites]")
    parser.add_argument("--methods", nargs="+", default=METHODS, help=f"methods, one stack each [{' '.join(METHODS)}]")
    parser.add_argument("--seeds", type=int, default=21, help="seeds of each of six strengths [21]")
    parser.add_argument("--steps", type=int, default=10_000, help="steps of each run [10000]")
    parser.add_argument("--samples", type=int, default=10_000, help="training rows of the metrics [10000]")
    parser.add_argument("--out", type=Path, default=RESULT, help="file to write")
    options = parser.parse_args()
    study_seconds(options, 1, 10, None)
    training = study_seconds(options, options.seeds, options.steps, [])
    both = study_seconds(options, options.seeds, options.steps, None)
    runs = 6 * options.seeds * len(options.methods)
    result = {
        **describe(), "device": options.device, "data": options.data, "methods": list(options.methods), "runs": runs,
        "steps": options.steps, "samples": options.samples, "training_seconds": training, "with_scores_seconds": both,
        "ratio": both / training,
    }  # fmt: skip
    print(f"{runs} runs of {options.steps:,} steps: {training:.0f} s without scores, {both:.0f} s with scores")
    print(f"The study takes {both / training - 1:.1%} longer with scores.")
    write_atomic(options.out, (json.dumps(result, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
