"""Measure the milliseconds per batch of the models in the comparison of VITAE: the objective, and with its gradient.

The setup is that of table 5 of the paper: VAE, beta-VAE, beta-TCVAE and DIP-VAE-II with the MNIST networks, U-VITAE and
C-VITAE with half the units and each of the four transformations, on batches of 512 random images of 28x28 pixels. A
measurement includes the noise, but neither reading data nor the optimiser. Models take turns, so that other load on the
machine affects all of them. On a CPU the time of this process with one thread is measured. On a GPU operations are
launched one by one and, as in training, replayed as one CUDA graph.
Run: python benchmarks/bench_vitae_times.py [--device cuda]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_type_hints

import torch

from bench_warp import RESULTS, capture_graph, milliseconds
from machine import describe
from unbraid.methods import CVITAE, DIPVAEII, UVITAE, VAE, BetaTCVAE, BetaVAE, Method
from unbraid.methods.method import Batch
from unbraid.nets.registry import resolve_net
from unbraid.noise import Noise
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec

LATENTS, POPULATION, STEPS = 4, 60_000, 234_375


def contenders() -> dict[str, tuple[Method, str]]:
    """Return every model of the table with its network."""
    vaes = {"VAE": VAE(), "beta-VAE": BetaVAE(beta=4.0), "beta-TCVAE": BetaTCVAE(), "DIP-VAE-II": DIPVAEII()}
    transforms = get_args(get_type_hints(UVITAE)["transform"])
    warps = {f"{label}, {transform}": kind(transform=transform)
             for label, kind in (("U-VITAE", UVITAE), ("C-VITAE", CVITAE)) for transform in transforms}  # fmt: skip
    full_size: dict[str, tuple[Method, str]] = {name: (method, "vitae_mlp") for name, method in vaes.items()}
    return {**full_size, **{name: (method, "vitae_mlp_half") for name, method in warps.items()}}


def make_tasks(method: Method, name: str, size: int, side: int, device: str) -> dict[str, Callable[[], object]]:
    """Return functions that compute the loss of a batch without a gradient, and with the gradient of all parameters."""
    spec = RunSpec(method, "random", latents=LATENTS, net=name, batch=size, steps=STEPS)
    net = build_net(spec, (1, side, side), resolve_net(name)[1]).to(device)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(size, 1, side, side, generator=generator).to(device)
    batch = Batch(x, POPULATION, None, STEPS)
    seed, step = torch.tensor(0, device=device), torch.tensor(STEPS / 4, device=device)
    parameters = list(net.parameters())

    def loss() -> torch.Tensor:
        return method.objective(net, batch, Noise.from_seed(seed, seed), step)[0]

    @torch.no_grad()
    def forward() -> object:
        return loss()

    def both() -> object:
        return torch.autograd.grad(loss(), parameters)

    return {"forward": forward, "forward and backward": both}


def time_task(task: Callable[[], object], device: str) -> float:
    """Return milliseconds: of wall-clock time on a GPU, of process time on a CPU."""
    if device == "cuda":
        return milliseconds(task, device)
    started = time.process_time()
    task()
    return 1000 * (time.process_time() - started)


def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return medians over repetitions; the first repetition is a warm-up and is not counted."""
    device = options.device
    tasks = {label: make_tasks(*what, options.batch, options.side, device) for label, what in contenders().items()}
    if device == "cuda":
        for pair in tasks.values():
            pair.update({f"{what}, replayed": capture_graph(task) for what, task in pair.items()})
    times: dict[str, dict[str, list[float]]] = {label: {what: [] for what in pair} for label, pair in tasks.items()}
    for repetition in range(options.repeats + 1):
        for label, pair in tasks.items():
            for what, task in pair.items():
                found = time_task(task, device)
                if repetition:
                    times[label][what].append(found)
    return {label: {what: statistics.median(found) for what, found in pair.items()} for label, pair in times.items()}


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--side", type=int, default=28, help="width and height of the images, in pixels")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, help="default: results/bench_vitae_times_{device}.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = [os.getloadavg()[0]]
    times = measure(options)
    load.append(os.getloadavg()[0])
    for label, pair in times.items():
        print(f"{label:32} " + "  ".join(f"{what} {found:9.3f} ms" for what, found in pair.items()), flush=True)
    settings = {key: getattr(options, key) for key in ("device", "batch", "side", "repeats")}
    out = options.out or RESULTS / f"bench_vitae_times_{options.device}.json"
    out.write_text(json.dumps({**describe(), **settings, "load": load, "milliseconds": times}, indent=1) + "\n")


if __name__ == "__main__":
    main()
