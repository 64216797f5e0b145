"""Model-steps per second of small stacks, with kernels and under `vmap`, of networks that had no kernels at first.

These are networks inside a `NetworkWrapper`, the decoder of Tripod, which is computed in float32, and networks of runs
with the precision fp32. In the mode "kernels", they are computed in Triton kernels, which is the default. In the mode
"vmap", they are not replaced. `CASES` has the methods, their precisions and the sizes of their stacks. All runs are on
dSprites with the network locatello and batch 64. On a CPU, no kernels are used, and both modes are the same.
Run: python benchmarks/bench_nested.py [--methods deft --modes kernels --out part.json]
Try it on a CPU, with small images:
python benchmarks/bench_nested.py --device cpu --data sprites --batch 4 --seconds 0.1 --out x.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import bench_gpu
from machine import describe
from unbraid.accel.precision import Precision
from unbraid.data import FactorData, load
from unbraid.methods import METHODS, Method
from unbraid.training.fused import modules
from unbraid.training.stack import Stack

RESULT = Path(__file__).parent / "results" / "bench_nested.json"
# Methods, the precisions of their runs, and the sizes of their stacks.
CASES: tuple[tuple[str, Precision, int], ...] = (
    ("deft", "bf16", 5),
    ("groupified_vae", "bf16", 5),
    ("devae", "bf16", 5),
    ("commutative_vae", "bf16", 5),
    ("u_vitae", "bf16", 5),
    ("c_vitae", "bf16", 5),
    ("tripod", "bf16", 5),
    ("beta_vae", "fp32", 16),
)
MODES = ("kernels", "vmap")
STEPS = 1_000  # fewer steps than those of runs whose steps are compiled


@contextlib.contextmanager
def kernels(used: bool, method: type[Method], precision: str) -> Iterator[None]:
    """Build stacks with or without kernels for networks inside a `NetworkWrapper` and for networks in float32."""

    def whole(name: str, child: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        yield name, child

    original, plain = modules.networks_inside, method.networks_without_kernels
    try:
        if not used:
            modules.networks_inside = whole
            method.networks_without_kernels = ("encoder", "decoder") if precision == "fp32" else method.float32_networks
        yield
    finally:
        modules.networks_inside, method.networks_without_kernels = original, plain


def seconds_per_step(stack: Stack, budget: float) -> float:
    """The median time of a step, after the first steps, in which a GPU compiles kernels and captures the graph."""
    if stack.data.device.type == "cuda":
        return bench_gpu.seconds_per_step(stack, budget)
    stack.advance()
    times: list[float] = []
    while sum(times) < budget:
        started = time.perf_counter()
        stack.advance()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def measure(
    case: tuple[str, Precision, int], mode: str, data: FactorData, options: argparse.Namespace, commit: str | None
) -> dict[str, Any]:
    """The rate of one stack, and how its step is computed."""
    started = time.perf_counter()
    method, precision, runs = case
    with kernels(mode == "kernels", METHODS[method], precision):
        stack = bench_gpu.make_stack(method, runs, data, options.net, precision, options.steps, options.batch)
    took = seconds_per_step(stack, options.seconds)
    row = {
        "method": method, "mode": mode, "runs": runs, "batch": options.batch, "steps": options.steps,
        "data": data.name, "net": options.net, "precision": precision, "device": data.device.type,
        "model_steps_per_second": runs / took, "milliseconds": took * 1e3,
        "recorded": stack.captured is not None and stack.captured.graph is not None,
        "compiled": stack.compiled is not None, "kernels": list(stack.storage.copied),
        "finite": bool(stack.alive.all()), "start_seconds": time.perf_counter() - started - options.seconds,
        "commit": commit,
    }  # fmt: skip
    print(f"{method:16} {mode:7}: {runs / took:9,.0f} model-steps/s, {took * 1e3:8.3f} ms, "
          f"graph {row['recorded']}, compiled {row['compiled']}, kernels {', '.join(stack.storage.copied) or 'none'}",
          flush=True)  # fmt: skip
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", choices=[case[0] for case in CASES], help="default: all")
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=MODES)
    parser.add_argument("--net", default="locatello")
    parser.add_argument("--data", default="dsprites")
    parser.add_argument("--batch", type=int, default=bench_gpu.BATCH)
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of a run; long runs are compiled")
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each measurement")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    data, machine = load(options.data, device=options.device), describe()
    rows: list[dict[str, Any]] = []
    cases = [case for case in CASES if not options.methods or case[0] in options.methods]
    for case in cases:
        for mode in options.modes:
            if data.device.type == "cuda":
                torch.cuda.empty_cache()
            rows.append(measure(case, mode, data, options, machine["commit"]))
            options.out.write_text(json.dumps({**machine, "stacks": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
