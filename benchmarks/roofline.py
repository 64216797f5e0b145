"""Bytes, arithmetic and the limit of a model-step on one H200, computed from the shapes of arrays.

Nothing is measured here. `step_traffic` counts the bytes and the multiplications of each kernel. This script adds them
up, and divides them by the two ceilings: the rate of a copy in device memory and the rate of a matrix product.
The limit is the number of model-steps per second at which the kernels would run if they reached the ceilings.
Measured rates are in results/bench_gpu_stacks.json and results/bench_gpu_colour.json.
Run: python benchmarks/roofline.py
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from machine import describe
from step_traffic import Kernel, model_step

RESULT = Path(__file__).parent / "results" / "roofline.json"
BYTES_PER_SECOND, FLOP_PER_SECOND = 4.3e12, 790e12
SOURCE = (
    "They were measured on one NVIDIA H200 with PyTorch 2.11 during development: the first with a copy in device "
    "memory, reads plus writes, the second with a matrix product in bf16. No benchmark of this repository repeats "
    "these two measurements."
)


class Case(NamedTuple):
    """A kind of step. `aim` is the aim for 128 runs, in model-steps per second."""

    title: str
    method: str
    channels: int
    aim: int


CASES = {
    "beta_vae": Case("beta-VAE", "beta_vae", 1, 36_000),
    "beta_vae_colour": Case("beta-VAE, 3 channels", "beta_vae", 3, 28_000),
    "factor_vae": Case("FactorVAE", "factor_vae", 1, 16_000),
}
RUNS = (1, 16, 40, 128)
BATCH = 64


def totals(kernels: list[Kernel]) -> dict[str, float]:
    """Return the sums over kernels, and their times at the two ceilings in seconds."""
    size, flop = sum(kernel.bytes for kernel in kernels), sum(kernel.flop for kernel in kernels)
    return {"bytes": size, "flop": flop, "needed_flop": sum(kernel.needed for kernel in kernels),
            "seconds_bytes": size / BYTES_PER_SECOND, "seconds_flop": flop / FLOP_PER_SECOND}  # fmt: skip


def limit(kernels: list[Kernel]) -> float:
    """Return the model-steps per second at the ceiling that limits the whole step."""
    total = totals(kernels)
    return 1 / max(total["seconds_bytes"], total["seconds_flop"])


def array_rows(kernels: list[Kernel]) -> list[dict[str, Any]]:
    """Return the bytes of each array, and how many kernels read and write it, with the largest first."""
    read, written, size = Counter[str](), Counter[str](), Counter[str]()
    for kernel in kernels:
        read.update({array.name for array in kernel.reads})
        written.update({array.name for array in kernel.writes})
        for array in kernel.reads + kernel.writes:
            size[array.name] += array.size
    return [
        {"array": name, "bytes": count, "reads": read[name], "writes": written[name]}
        for name, count in size.most_common()
    ]


def kernel_row(kernel: Kernel) -> dict[str, Any]:
    """Return the counts of a kernel."""
    return {"kernel": kernel.name, "group": kernel.group, "layer": kernel.layer, "bytes": kernel.bytes,
            "flop": kernel.flop, "needed_flop": kernel.needed}  # fmt: skip


def case_counts(method: str, channels: int) -> dict[str, Any]:
    """Return the counts of one kind of step: for several stack sizes, and in detail for the largest."""
    by_runs = {str(runs): model_step(method, channels, runs, BATCH) for runs in RUNS}
    kernels = by_runs[str(RUNS[-1])]
    groups = dict.fromkeys(kernel.group for kernel in kernels)
    return {
        "runs": {runs: {**totals(found), "limit": limit(found)} for runs, found in by_runs.items()},
        "groups": {group: totals([kernel for kernel in kernels if kernel.group == group]) for group in groups},
        "arrays": array_rows(kernels),
        "kernels": [kernel_row(kernel) for kernel in kernels],
    }


def print_case(title: str, found: dict[str, Any]) -> None:
    """Print the kernels of one kind of step, and its limit."""
    print(f"\n{title}, {RUNS[-1]} runs, per model-step")
    print(f"{'kernel':32} {'layer':10} {'MB':>8} {'GFLOP':>7} {'FLOP/byte':>9} {'us':>6}")
    for row in found["kernels"]:
        seconds = max(row["bytes"] / BYTES_PER_SECOND, row["flop"] / FLOP_PER_SECOND)
        print(f"{row['kernel']:32} {row['layer']:10} {row['bytes'] / 1e6:8.3f} {row['flop'] / 1e9:7.3f} "
              f"{row['flop'] / row['bytes']:9.1f} {seconds * 1e6:6.2f}")  # fmt: skip
    total = found["runs"][str(RUNS[-1])]
    print(f"total {total['bytes'] / 1e6:.1f} MB, {total['flop'] / 1e9:.2f} GFLOP: at most {total['limit']:,.0f} "
          "model-steps per second")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    found = {}
    for name, case in CASES.items():
        found[name] = {**case._asdict(), **case_counts(case.method, case.channels)}
        print_case(case.title, found[name])
    ceilings = {"bytes_per_second": BYTES_PER_SECOND, "flop_per_second": FLOP_PER_SECOND, "source": SOURCE}
    result = {**describe(), "batch": BATCH, "ceilings": ceilings, "cases": found}
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
