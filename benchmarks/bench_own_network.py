"""Model-steps per second of a network of a user's own on a GPU: a stack of runs, compared with a PyTorch loop of one.

The network has residual blocks and batch normalisation and gets images of 128x128x3, so none of its layers has a kernel
of the library: it runs under `vmap`, in one CUDA graph per step. The plain loop trains the same network with eager
PyTorch, its own Adam and the data on the GPU, in float32 and with autocast to bfloat16. Rates are medians over
repeated measurements. Writes results/bench_own_network.json.
Run: python benchmarks/bench_own_network.py [--runs 1 4 16 --device cuda --seconds 2]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from machine import describe
from unbraid.accel.precision import Precision
from unbraid.data import FactorData, load
from unbraid.data.own.arrays import from_arrays
from unbraid.methods import BetaVAE
from unbraid.runs.spec import RunSpec
from unbraid.runtime.files import write_atomic
from unbraid.training.stack import Stack

RESULT = Path(__file__).parent / "results" / "bench_own_network.json"
SIDE, BATCH, LATENTS, IMAGES = 128, 64, 10, 2_000


class Residual(nn.Module):
    """Two convolutions with batch normalisation, whose result is added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.layers(x))


def residual_pair(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    """Return an encoder that halves the side of the image five times, and a decoder that doubles it five times."""
    widths = [32, 32, 64, 64, 64]
    down: list[nn.Module] = []
    for before, after in zip([shape[0], *widths], widths, strict=False):
        down += [nn.Conv2d(before, after, 4, 2, 1), nn.BatchNorm2d(after), nn.ReLU(), Residual(after)]
    side = shape[1] // 2 ** len(widths)
    encoder = nn.Sequential(*down, nn.Flatten(), nn.Linear(widths[-1] * side**2, 2 * latents))
    up: list[nn.Module] = [nn.Linear(latents, widths[-1] * side**2), nn.Unflatten(1, (widths[-1], side, side))]
    for before, after in zip(widths[::-1], [*widths[-2::-1], widths[0]], strict=True):
        up += [Residual(before), nn.ConvTranspose2d(before, after, 4, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
    return encoder, nn.Sequential(*up, nn.Conv2d(widths[0], shape[0], 3, padding=1))


def large_images(device: str) -> FactorData:
    """Return rendered shapes, enlarged to 128x128 pixels."""
    small = load("shapes3d_rendered")
    images = small.images(torch.randint(0, len(small), (IMAGES,), generator=torch.Generator().manual_seed(0)))
    large = nn.functional.interpolate(images.float(), SIDE, mode="bilinear").to(torch.uint8)
    return from_arrays(large.numpy()).to(device)


def rate(step: Callable[[], None], device: str, runs: int, seconds: float) -> float:
    """Return the median number of model-steps per second of a function that takes one step of `runs` models."""
    for _ in range(5):  # kernels are chosen and the graph is captured
        step()
    times: list[float] = []
    _wait(device)
    started = time.perf_counter()
    while time.perf_counter() - started < seconds or len(times) < 3:
        first = time.perf_counter()
        for _ in range(5):
            step()
        _wait(device)
        times.append((time.perf_counter() - first) / 5)
    return runs / statistics.median(times)


def _wait(device: str) -> None:
    """Wait until the work of a GPU is done."""
    if device == "cuda":
        torch.cuda.synchronize()


def plain_loop(data: FactorData, device: str, autocast: bool, seconds: float) -> float:
    """Return the model-steps per second of one model in eager PyTorch."""
    encoder, decoder = (part.to(device) for part in residual_pair(data.shape, LATENTS))
    optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-4)
    pool = data.images(torch.arange(len(data), device=data.device))

    def step() -> None:
        x = pool[torch.randint(0, len(pool), (BATCH,), device=device)].float() / 255
        optimiser.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            mean, logvar = encoder(x).float().chunk(2, -1)
            logits = decoder(mean + torch.randn_like(mean) * (0.5 * logvar).exp()).float()
        rec = nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="none").sum((1, 2, 3)).mean()
        (rec + 4 * 0.5 * (mean**2 + logvar.exp() - 1 - logvar).sum(1).mean()).backward()
        optimiser.step()

    return rate(step, device, 1, seconds)


def stack_rate(runs: int, data: FactorData, precision: Precision, device: str, seconds: float) -> float:
    """Return the model-steps per second of a stack of runs that differ by their seeds."""
    specs = [
        RunSpec(BetaVAE(), data.name, seed, 10**6, BATCH, 1e-4, LATENTS, "residual", precision=precision)
        for seed in range(runs)
    ]
    stack = Stack(specs, data, residual_pair)
    return rate(stack.advance, device, runs, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="*", type=int, default=[1, 4, 16])
    parser.add_argument("--precision", nargs="*", default=["bf16", "fp32"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of each measurement")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    data = large_images(options.device)
    found: dict[str, Any] = {"plain_loop": {}, "stacks": []}
    for precision in options.precision:
        plain = plain_loop(data, options.device, precision == "bf16", options.seconds)
        found["plain_loop"][precision] = plain
        print(f"plain loop, {precision}: {plain:.1f} model-steps/s", flush=True)
        for runs in options.runs:
            speed = stack_rate(runs, data, precision, options.device, options.seconds)
            row = {"runs": runs, "precision": precision, "model_steps_per_second": speed, "ratio": speed / plain}
            found["stacks"].append(row)
            print(f"{runs} runs, {precision}: {speed:.1f} model-steps/s, {speed / plain:.2f} times", flush=True)
            write_atomic(options.out, (json.dumps({**describe(), "batch": BATCH, **found}, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
