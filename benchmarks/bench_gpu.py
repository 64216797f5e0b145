"""Model-steps per second on a GPU: every method at several stack sizes, compared with a PyTorch loop of one model.

A model-step is one step of one run: drawing a batch, forward and backward pass, Adam and logging, with batch 64, images
of 64x64 pixels and the network of the study. Stacks are timed by CUDA events over repeated steps. `train` is the rate
of `unbraid.train` with files, logs, checkpoints and progress, computed from the times of a short and a long training.
The plain loop is eager PyTorch with its own Adam and the data on the GPU.
Run: python benchmarks/bench_gpu.py [--methods beta_vae --runs 128 --seconds 0.2]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import unbraid as ub
from machine import describe
from unbraid.accel.precision import Precision
from unbraid.data import FactorData, load
from unbraid.methods import METHODS
from unbraid.nets.registry import NETS
from unbraid.runs.spec import RunSpec
from unbraid.training.active import RunInTraining
from unbraid.training.loop import MAX_CHECKPOINT_FRACTION, write_checkpoints
from unbraid.training.stack import Stack
from unbraid.training.train import CHECKPOINT_SECONDS

RESULT = Path(__file__).parent / "results" / "bench_gpu.json"
STUDY = ("beta_vae", "annealed_vae", "factor_vae", "beta_tcvae", "dip_vae_i", "dip_vae_ii")
MODELS_PER_METHOD = 12_600 / len(STUDY)
STEPS_OF_THE_STUDY = 300_000
BATCH, LATENTS = 64, 10


def seconds_per_step(stack: Stack, budget: float) -> float:
    """The median time of a step, after the steps in which kernels compile and the graph is captured."""
    for _ in range(5):
        stack.advance()
    torch.cuda.synchronize()
    times: list[float] = []
    started = time.perf_counter()
    while time.perf_counter() - started < budget or len(times) < 10:
        first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(5):
            stack.advance()
        second.record()
        second.synchronize()
        times.append(first.elapsed_time(second) / 5e3)
    return statistics.median(times)


@contextlib.contextmanager
def quick_start() -> Iterator[None]:
    """Fill parameters from one pool of random numbers: initialising 256 critics takes longer than timing them."""
    pool = 0.04 * torch.randn(1 << 21)
    originals = {name: getattr(nn.init, name) for name in ("kaiming_uniform_", "xavier_uniform_", "uniform_")}

    def fill(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        return tensor.data.copy_(pool[: tensor.numel()].view_as(tensor))

    try:
        for name in originals:
            setattr(nn.init, name, fill)
        yield
    finally:
        for name, function in originals.items():
            setattr(nn.init, name, function)


def make_stack(
    method: str, runs: int, data: FactorData, net: str, precision: Precision, steps: int = STEPS_OF_THE_STUDY,
    batch: int = BATCH,
) -> Stack:  # fmt: skip
    """A stack of runs with different seeds."""
    specs = [
        RunSpec(METHODS[method](), data.name, seed, steps, batch, 1e-4, LATENTS, net, precision=precision)
        for seed in range(runs)
    ]
    return Stack(specs, data, NETS[net])


def measure(method: str, runs: int, data: FactorData, net: str, precision: Precision, budget: float) -> dict[str, Any]:
    """The rate and the memory of one stack."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    started = time.perf_counter()
    with quick_start():
        stack = make_stack(method, runs, data, net, precision)
    took = seconds_per_step(stack, budget)
    peak = (torch.cuda.max_memory_reserved() - before) / 2**20
    row = {
        "method": method, "runs": runs, "data": data.name, "net": net, "precision": precision,
        "model_steps_per_second": runs / took, "milliseconds": took * 1e3, "mebibytes_a_run": peak / runs,
        "recorded": stack.captured is not None and stack.captured.graph is not None,
        "start_seconds": time.perf_counter() - started - budget,
    }  # fmt: skip
    print(f"{method:13} {runs:4} runs {data.name:18} {net:9} {precision}: {runs / took:9,.0f} model-steps/s, "
          f"{took * 1e3:7.3f} ms, {peak / runs:5.0f} MiB per run, graph {row['recorded']}", flush=True)  # fmt: skip
    return row


def plain_loop(data: FactorData, net: str, steps: int = 300) -> float:
    """The model-steps per second of one model in eager PyTorch."""
    encoder, decoder = (_ordinary(part).cuda() for part in NETS[net](data.shape, LATENTS))
    optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-4)
    pool = data.images(torch.randint(0, len(data), (20_000,)))

    def step() -> None:
        x = pool[torch.randint(0, len(pool), (BATCH,), device="cuda")].float() / 255
        optimiser.zero_grad()
        mean, logvar = encoder(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        rec = nn.functional.binary_cross_entropy_with_logits(decoder(z), x, reduction="none").sum((1, 2, 3)).mean()
        (rec + 4 * 0.5 * (mean**2 + logvar.exp() - 1 - logvar).sum(1).mean()).backward()
        optimiser.step()

    for _ in range(30):
        step()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    rate = steps / (time.perf_counter() - started)
    print(f"plain loop, one model, {data.name}, {net}: {rate:.0f} model-steps/s", flush=True)
    return rate


def _ordinary(net: nn.Module) -> nn.Module:
    """Return a network with the same layers, as classes of PyTorch."""
    layers: list[nn.Module] = []
    for layer in net.children():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            kind = nn.Conv2d if isinstance(layer, nn.Conv2d) else nn.ConvTranspose2d
            layers.append(kind(layer.in_channels, layer.out_channels, layer.kernel_size[0], 2, int(layer.padding[0])))
        else:
            layers.append(layer)
    return nn.Sequential(*layers)


def train_rate(method: str, runs: int, data: FactorData, steps: int) -> dict[str, float]:
    """Return the rate of `unbraid.train` with all files, and the times of a short and a long training."""
    spent = {}
    for length in (steps // 4, steps):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            ub.train(METHODS[method](), data, seeds=range(runs), steps=length, out=folder, device="cuda")
            spent[length] = time.perf_counter() - started
    short, long = spent.items()
    rate = runs * (long[0] - short[0]) / (long[1] - short[1])
    print(f"unbraid.train {method}, {runs} runs, {long[0]} steps: {rate:,.0f} model-steps/s", flush=True)
    return {"model_steps_per_second": rate, "steps": long[0], "seconds": long[1], "short_seconds": short[1]}


def checkpoint(method: str, runs: int, data: FactorData, net: str) -> dict[str, float]:
    """The time to write a checkpoint of a whole stack, and its share of the running time."""
    stack = make_stack(method, runs, data, net, "bf16")
    stack.advance()
    torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        in_training = [RunInTraining.open(spec, Path(folder), NETS[net]) for spec in stack.specs]
        started = time.perf_counter()
        write_checkpoints(stack, in_training)
        cost = time.perf_counter() - started
        size = sum(file.stat().st_size for file in Path(folder).glob("*/checkpoint.safetensors"))
    pause = max(CHECKPOINT_SECONDS, cost / MAX_CHECKPOINT_FRACTION)
    print(f"checkpoint of {runs} runs: {size / 1e9:.2f} GB in {cost:.2f} s, {cost / (pause + cost):.1%} of the time")
    return {"seconds": cost, "bytes": size, "share": cost / (pause + cost)}


def compare_with_alone(runs: int, seeds: int, steps: int, data: FactorData) -> dict[str, Any]:
    """Train the same specs in a large stack and alone, and compare the last logged terms."""
    settings: dict[str, Any] = {"steps": steps, "device": "cuda", "quiet": True}
    many = ub.train(METHODS["beta_vae"](), data, seeds=range(runs), **settings)[:seeds]
    alone = [ub.train(METHODS["beta_vae"](), data, seeds=[seed], **settings)[0] for seed in range(seeds)]
    found: dict[str, Any] = {"runs": runs, "seeds": seeds, "steps": steps}
    for term in ("rec", "kl"):
        pairs = [(a.log[-1][term], b.log[-1][term]) for a, b in zip(many, alone, strict=True)]
        gaps = [a - b for a, b in pairs]
        spread = statistics.stdev(b for _, b in pairs)
        found[term] = {
            "together": [a for a, _ in pairs], "alone": [b for _, b in pairs], "spread_of_runs": spread,
            "mean_difference": statistics.mean(gaps),
            "standard_error": statistics.stdev(gaps) / len(gaps) ** 0.5,
        }  # fmt: skip
        print(f"{term} after {steps} steps, {seeds} runs in a stack of {runs} minus alone: "
              f"{statistics.mean(gaps):+.3f} +- {found[term]['standard_error']:.3f}, spread of runs {spread:.3f}",
              flush=True)  # fmt: skip
    return found


def profile_kernels(method: str, runs: int, data: FactorData, net: str) -> list[dict[str, Any]]:
    """The milliseconds of each kind of kernel in one step."""
    stack = make_stack(method, runs, data, net, "bf16")
    for _ in range(5):
        stack.advance()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        stack.advance()
        torch.cuda.synchronize()
    events = sorted(recorded.key_averages(), key=lambda e: -e.self_device_time_total)
    rows = [{"kernel": e.key[:90], "ms": e.self_device_time_total / 1e3, "launches": e.count} for e in events]
    print(f"{method}, {runs} runs: {sum(r['ms'] for r in rows):.3f} ms in {sum(r['launches'] for r in rows)} launches")
    for row in rows[:40]:
        print("   {ms:8.3f} ms x{launches:4d} {kernel}".format(**row), flush=True)
    return rows


def projection(rates: dict[str, float]) -> float:
    """The GPU-days of the study of 12,600 models at the measured rate of each method."""
    return sum(MODELS_PER_METHOD * STEPS_OF_THE_STUDY / rates[name] for name in STUDY) / 86_400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", default=list(STUDY), choices=list(METHODS))
    parser.add_argument("--runs", nargs="*", type=int, default=[1, 16, 64, 128, 256])
    parser.add_argument("--net", default="locatello")
    parser.add_argument("--data", nargs="*", default=["dsprites"])
    parser.add_argument("--precision", nargs="*", default=["bf16"])
    parser.add_argument("--seconds", type=float, default=0.5, help="duration of each measurement")
    parser.add_argument("--train-steps", type=int, default=0, help="also time unbraid.train for this many steps")
    parser.add_argument("--profile", nargs="*", default=[], help="methods whose kernels are listed, at 128 runs")
    parser.add_argument("--checkpoint", action="store_true", help="also time a checkpoint of 128 runs")
    parser.add_argument(
        "--company", type=int, default=0, metavar="STEPS", help="also compare 8 runs alone and among 128"
    )
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    found: dict[str, Any] = {"stacks": [], "plain_loop": {}, "kernels": {}, "train": {}}
    for name in options.data:
        data = load(name, device="cuda")
        found["plain_loop"][name] = plain_loop(data, options.net)
        for precision in options.precision:
            for method in options.methods:
                for runs in options.runs:
                    row = measure(method, runs, data, options.net, precision, options.seconds)
                    row["times_plain_loop"] = row["model_steps_per_second"] / found["plain_loop"][name]
                    found["stacks"].append(row)
        for method in options.profile:
            found["kernels"][method] = profile_kernels(method, 128, data, options.net)
        if options.train_steps:
            found["train"][name] = train_rate("beta_vae", 128, data, options.train_steps)
    data = load(options.data[0], device="cuda")
    if options.checkpoint:
        found["checkpoint"] = checkpoint("beta_vae", 128, data, options.net)
    if options.company:
        found["company"] = compare_with_alone(128, 8, options.company, data)
    rates = {row["method"]: row["model_steps_per_second"] for row in found["stacks"] if row["runs"] == 128}
    if set(STUDY) <= set(rates):
        found["study_gpu_days"] = projection(rates)
        print(f"12,600 models of 300,000 steps: {found['study_gpu_days']:.2f} GPU-days")
    result = {**describe(), "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, **found}
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
