"""Model-steps per second and kernel launches of small stacks on a GPU, trained one after another and at the same time.

A study with ten seeds per setting has stacks that leave a GPU mostly idle. Each stack is measured alone, first without
and then with a compiled step. After that, several stacks share the GPU, each with its own CUDA stream. Compiling takes
about ten seconds per stack. Writes results/bench_concurrent_stacks.json.
Run: python benchmarks/bench_concurrent_stacks.py [--data dsprites --seeds 10 --seconds 5]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from machine import describe
from unbraid.data import FactorData, load
from unbraid.methods import AE, PCL, BetaTCVAE, BetaVAE, FactorVAE, Method, SlowVAE
from unbraid.runtime.files import write_atomic
from unbraid.training import compiled
from unbraid.training.active import ActiveStack, RunInTraining
from unbraid.training.schedule import stack_groups
from unbraid.training.train import RunDefaults

METHODS: dict[str, Method] = {
    "beta_vae": BetaVAE(beta=8.0), "beta_tcvae": BetaTCVAE(beta=6.0), "slow_vae": SlowVAE(), "pcl": PCL(),
    "factor_vae": FactorVAE(gamma=35.0), "ae": AE(),
}  # fmt: skip
WARM_UP_STEPS = 5  # before the measurement


def advance(stacks: list[ActiveStack]) -> None:
    """Take one step of each stack on its own stream."""
    for active in stacks:
        with active.on_stream():
            active.stack.advance()


def model_steps_per_second(stacks: list[ActiveStack], seconds: float) -> float:
    """Return the model-steps per second of all stacks together, measured for `seconds` seconds."""
    for _ in range(WARM_UP_STEPS):
        advance(stacks)
    torch.cuda.synchronize()
    started, steps = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        for _ in range(20):
            advance(stacks)
        torch.cuda.synchronize()
        steps += 20
    return steps * sum(len(active.stack) for active in stacks) / (time.perf_counter() - started)


def kernel_launches(stacks: list[ActiveStack]) -> int:
    """Return the number of kernels that one step of all stacks launches."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        advance(stacks)
        torch.cuda.synchronize()
    on_gpu = [event.name.lower() for event in profile.events() if event.device_type.name == "CUDA"]
    return sum(not name.startswith(("memcpy", "memset")) for name in on_gpu)


def start(names: list[str], data: FactorData, seeds: int) -> list[ActiveStack]:
    """Return one stack per method. Several stacks have one stream each."""
    defaults = RunDefaults.choose(data)
    settings = {"steps": 10**9, "batch": 64, "learning_rate": 1e-4, "latents": 5}
    specs = [defaults.spec(METHODS[name], seed=seed, **settings) for name in names for seed in range(seeds)]
    (group,) = stack_groups([RunInTraining(spec, None) for spec in specs], data, defaults.builder)
    streams = range(len(group.stacks)) if len(group.stacks) > 1 else [None]
    return [
        ActiveStack.start(runs, data, defaults.builder, stream_index=stream)
        for runs, stream in zip(group.stacks, streams, strict=True)
    ]


def measure_alone(name: str, data: FactorData, seeds: int, seconds: float) -> dict[str, float]:
    """Return the speed and the launches of one stack, without and with a compiled step."""
    found = {}
    for kind, minimum in {"not_compiled": 10**12, "compiled": 0}.items():
        compiled.MIN_COMPILED_STEPS = minimum
        stacks = start([name], data, seeds)
        found[f"{kind}_speed"] = model_steps_per_second(stacks, seconds)
        found[f"{kind}_launches"] = kernel_launches(stacks)
    print(f"{name}, {seeds} runs: " + ", ".join(f"{key} {value:,.0f}" for key, value in found.items()), flush=True)
    return found


def main() -> None:
    """Measure each method alone, then two methods at the same time, three, and so on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="dsprites")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "bench_concurrent_stacks.json")
    options = parser.parse_args()
    data = load(options.data, device="cuda")
    alone = {name: measure_alone(name, data, options.seeds, options.seconds) for name in METHODS}
    stacks = start(list(METHODS), data, options.seeds)
    rows = []
    for count in range(2, len(METHODS) + 1):
        names = list(METHODS)[:count]
        in_turn = count / sum(1 / alone[name]["compiled_speed"] for name in names)
        at_once = model_steps_per_second(stacks[:count], options.seconds)
        rows.append({"methods": names, "in_turn": in_turn, "at_once": at_once, "ratio": at_once / in_turn})
        print(f"{count} stacks of {options.seeds}: {in_turn:,.0f} one after another, {at_once:,.0f} at the same time "
              f"({at_once / in_turn:.2f} x): {', '.join(names)}", flush=True)  # fmt: skip
    settings = {"data": options.data, "seeds": options.seeds, "seconds": options.seconds}
    content = {**describe(), **settings, "alone": alone, "together": rows}
    write_atomic(options.out, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
