"""Milliseconds that the models of VITAE's comparison take for a batch: the objective forward, and with its gradient.

As in the paper's table 5: VAE, beta-VAE, beta-TCVAE and DIP-VAE-II with the MNIST networks, U-VITAE and C-VITAE with
networks of half the units and each of the four transformations, on batches of 512 random images of 28x28. A measurement
draws its noise, but neither reads data nor steps an optimiser. Models take turns, so that whatever else the machine
does meets all of them. On a CPU one thread computes, and its time counts, not that of others; a GPU launches each
operation on its own and, as in training, replays all of them as one CUDA graph.
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


def contestants() -> dict[str, tuple[Method, str]]:
    """Every model of the table with its network."""
    vaes = {"VAE": VAE(), "beta-VAE": BetaVAE(beta=4.0), "beta-TCVAE": BetaTCVAE(), "DIP-VAE-II": DIPVAEII()}
    transforms = get_args(get_type_hints(UVITAE)["transform"])
    warps = {f"{label}, {transform}": kind(transform=transform)
             for label, kind in (("U-VITAE", UVITAE), ("C-VITAE", CVITAE)) for transform in transforms}  # fmt: skip
    whole: dict[str, tuple[Method, str]] = {name: (method, "vitae_mlp") for name, method in vaes.items()}
    return {**whole, **{name: (method, "vitae_mlp_half") for name, method in warps.items()}}


def work(method: Method, name: str, size: int, side: int, device: str) -> dict[str, Callable[[], object]]:
    """The loss of a batch alone, without a gradient, and with the gradient of every parameter."""
    spec = RunSpec(method, "random", latents=LATENTS, net=name, batch=size, steps=STEPS)
    net = build_net(spec, (1, side, side), resolve_net(name)[1]).to(device)
    chance = torch.Generator().manual_seed(0)
    x = torch.rand(size, 1, side, side, generator=chance).to(device)
    batch = Batch(x, POPULATION, None, STEPS)
    seed, step = torch.tensor(0, device=device), torch.tensor(STEPS / 4, device=device)
    parameters = list(net.parameters())

    def loss() -> torch.Tensor:
        return method.objective(net, batch, Noise.of(seed, seed), step)[0]

    @torch.no_grad()
    def forward() -> object:
        return loss()

    def both() -> object:
        return torch.autograd.grad(loss(), parameters)

    return {"forward": forward, "forward and backward": both}


def taken(task: Callable[[], object], device: str) -> float:
    """Milliseconds: by the clock until a GPU is done, or of this process on a CPU."""
    if device == "cuda":
        return milliseconds(task, device)
    begun = time.process_time()
    task()
    return 1000 * (time.process_time() - begun)


def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Medians over turns; the first turn warms up and is not counted."""
    device = options.device
    tasks = {label: work(*what, options.batch, options.side, device) for label, what in contestants().items()}
    if device == "cuda":
        for pair in tasks.values():
            pair.update({f"{what}, replayed": capture_graph(task) for what, task in pair.items()})
    times: dict[str, dict[str, list[float]]] = {label: {what: [] for what in pair} for label, pair in tasks.items()}
    for turn in range(options.repeats + 1):
        for label, pair in tasks.items():
            for what, task in pair.items():
                found = taken(task, device)
                if turn:
                    times[label][what].append(found)
    return {label: {what: statistics.median(found) for what, found in pair.items()} for label, pair in times.items()}


def main() -> None:
    """Measure, print and write the result beside this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--side", type=int, default=28, help="of the images, in pixels")
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
