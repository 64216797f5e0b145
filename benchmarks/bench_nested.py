"""Model-steps per second of methods whose networks are nested in an encoder or a decoder, with and without kernels.

Each measurement is a stack of 5 runs on dSprites with the network locatello, batch 64 and bf16. In the mode "nested",
the networks inside a `NetworkWrapper` are computed in Triton kernels, which is the default. In the mode "before", they
are not replaced and run under `vmap`. Tripod has no nested networks, but a decoder that is computed in float32, which
runs under `vmap` in the mode "before". On a CPU, no kernels are used, and both modes are the same.
Run: python benchmarks/bench_nested.py [--methods deft --modes nested --out part.json]
Try it on a CPU, with small images:
python benchmarks/bench_nested.py --device cpu --data sprites --batch 4 --runs 2 --seconds 0.1 --out x.json
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
from unbraid.data import FactorData, load
from unbraid.methods import METHODS, Method
from unbraid.nets.registry import NETS
from unbraid.runs.spec import RunSpec
from unbraid.training.fused import modules
from unbraid.training.stack import Stack

RESULT = Path(__file__).parent / "results" / "bench_nested.json"
NESTED = ("deft", "groupified_vae", "devae", "commutative_vae", "u_vitae", "c_vitae", "tripod")
MODES = ("nested", "before")


@contextlib.contextmanager
def nested_kernels(used: bool, method: type[Method], precision: str) -> Iterator[None]:
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


def measure(method: str, mode: str, data: FactorData, options: argparse.Namespace) -> dict[str, Any]:
    """The rate of one stack, and how its step is computed."""
    started = time.perf_counter()
    specs = [
        RunSpec(
            METHODS[method](), data.name, seed, options.steps, options.batch, 1e-4, bench_gpu.LATENTS,
            options.net, precision=options.precision,
        )
        for seed in range(options.runs)
    ]  # fmt: skip
    with nested_kernels(mode == "nested", METHODS[method], options.precision):
        stack = Stack(specs, data, NETS[options.net])
    took = seconds_per_step(stack, options.seconds)
    row = {
        "method": method, "mode": mode, "runs": options.runs, "batch": options.batch, "data": data.name,
        "net": options.net, "precision": options.precision, "device": data.device.type,
        "model_steps_per_second": options.runs / took, "milliseconds": took * 1e3,
        "recorded": stack.captured is not None and stack.captured.graph is not None,
        "compiled": stack.compiled is not None, "kernels": list(stack.storage.copied),
        "finite": bool(stack.alive.all()), "start_seconds": time.perf_counter() - started - options.seconds,
    }  # fmt: skip
    print(f"{method:16} {mode:6}: {options.runs / took:9,.0f} model-steps/s, {took * 1e3:8.3f} ms, "
          f"graph {row['recorded']}, compiled {row['compiled']}, kernels {', '.join(stack.storage.copied) or 'none'}",
          flush=True)  # fmt: skip
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", default=list(NESTED), choices=list(METHODS))
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=MODES)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--net", default="locatello")
    parser.add_argument("--data", default="dsprites")
    parser.add_argument("--batch", type=int, default=bench_gpu.BATCH)
    parser.add_argument("--precision", default="bf16", choices=("bf16", "tf32", "fp32"))
    parser.add_argument("--steps", type=int, default=bench_gpu.STEPS_OF_THE_STUDY, help="long runs are compiled")
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each measurement")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    data, machine = load(options.data, device=options.device), describe()
    rows: list[dict[str, Any]] = []
    for method in options.methods:
        for mode in options.modes:
            if data.device.type == "cuda":
                torch.cuda.empty_cache()
            rows.append(measure(method, mode, data, options))
            options.out.write_text(json.dumps({**machine, "stacks": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
