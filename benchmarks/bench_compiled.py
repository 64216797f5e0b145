"""Compare the scores of runs whose training step is compiled with those of runs whose step is not, with the same seeds.

For each method, it prints the mean and standard deviation of every score and of the last logged terms for both, the
p value of a permutation test of the means, that of a Kolmogorov-Smirnov test of the distributions, and the training
speed of both in model-steps per second. The method must log the terms `rec` and `kl`.
Writes results/bench_compiled.json. It needs a GPU.
Run: python benchmarks/bench_compiled.py [--methods slow_vae --seeds 16 --steps 100000]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import unbraid as ub
from bench_precision import compare, values
from machine import describe
from unbraid.runtime.files import write_atomic
from unbraid.training import compiled

KINDS = {"not compiled": 10**12, "compiled": 0}  # values of MIN_COMPILED_STEPS
METRICS = ("mig", "dci", "factor_vae")


def train_and_score(method: str, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the scores of each kind of training, with one number per run, and its model-steps per second."""
    scores, rates = {}, {}
    seeds = range(options.seeds)
    ub.train(method, options.data, seeds=seeds, steps=10, device="cuda")  # this compiles the kernels of the networks
    for kind, minimum in KINDS.items():
        compiled.MIN_COMPILED_STEPS = minimum
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # because a step that cannot be compiled gives a warning
            runs = ub.train(method, options.data, seeds=seeds, steps=options.steps, device="cuda")
        rates[kind] = options.seeds * options.steps / (time.perf_counter() - started)
        scores[kind] = values(runs, list(METRICS), quiet=True)
    return scores, rates


def main() -> None:
    """Train, score and compare, and write the result after each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", default=["slow_vae"])
    parser.add_argument("--data", default="dsprites")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "bench_compiled.json")
    options = parser.parse_args()
    settings = {"data": options.data, "seeds": options.seeds, "steps": options.steps}
    found: dict[str, Any] = {**describe(), **settings, "methods": {}}
    for method in options.methods:
        scores, rates = train_and_score(method, options)
        before, after = (scores[kind] for kind in KINDS)
        rows = {name: compare(before[name], after[name], "compiled", "not compiled") for name in before}
        each = {kind: {name: array.tolist() for name, array in rows.items()} for kind, rows in scores.items()}
        found["methods"][method] = {"model_steps_per_second": rates, "scores": rows, "values": each}
        for name, row in rows.items():
            print(f"{method} {name:<11} not compiled {row['not compiled']:8.3f} +- {row['not compiled sd']:.3f}   "
                  f"compiled {row['compiled']:8.3f} +- {row['compiled sd']:.3f}   p {row['p']:.2f} "
                  f"(distributions {row['p of distributions']:.2f})", flush=True)  # fmt: skip
        print(f"{method}: {', '.join(f'{kind} {rate:,.0f}' for kind, rate in rates.items())} model-steps/s")
        write_atomic(options.out, (json.dumps(found, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
