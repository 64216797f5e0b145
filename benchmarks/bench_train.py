"""The time of one training step on the CPU, of unbraid and of pythae, each in a process of its own.

Both train a beta-VAE on 64 images of 64x64x1 (dSprites) or 32x32x1 (`sprites`) with encoders and decoders of the same
layers, Bernoulli pixels and Adam. pythae is called as its own trainer calls it: forward, zero_grad, backward, step.
unbraid keeps freed memory, as its training loop does. The two processes take turns: each round times a block of
consecutive steps of each, after a pause in which the threads of the other process stop waiting for work. The ratio is
that of the medians over rounds. Numbers of threads for which the machine has too few cores are skipped.
Run: python benchmarks/bench_train.py [--rounds 6] [--threads 1 2 4]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from pythae.data.datasets import DatasetOutput
from pythae.models import BetaVAE as PythaeBetaVAE
from pythae.models import BetaVAEConfig
from pythae.models.base.base_utils import ModelOutput
from pythae.models.nn import BaseDecoder, BaseEncoder
from torch import Tensor, nn

from machine import describe
from unbraid import data as datasets
from unbraid.accel.allocator import keep_freed_memory
from unbraid.accel.layers import Conv, ConvTranspose
from unbraid.accel.precision import Precision, fastest_precision
from unbraid.methods import BetaVAE
from unbraid.nets.registry import NETS
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

BETA, BATCH, LATENTS, RATE = 4.0, 64, 10, 1e-4
DATASETS = ("dsprites", "sprites")  # images of 64x64x1 and 32x32x1
PAUSE_SECONDS, WARM_UP, STEPS = 0.3, 2, 10  # of each round


def plain(net: nn.Module) -> nn.Sequential:
    """Return a network with the same layers, as classes of PyTorch."""
    layers: list[nn.Module] = []
    for layer in net.children():
        if isinstance(layer, Conv):
            options = (layer.in_channels, layer.out_channels, layer.kernel_size[0], 2, layer.padding[0])
            layers.append(nn.Conv2d(*options))
        elif isinstance(layer, ConvTranspose):
            layers.append(nn.ConvTranspose2d(layer.in_channels, layer.out_channels, 4, 2, 1))
        else:
            layers.append(layer)
    return nn.Sequential(*layers)


class Encoder(BaseEncoder):
    """An encoder of the study as a pythae encoder: a trunk and two linear heads."""

    def __init__(self, trunk: nn.Sequential) -> None:
        super().__init__()
        head = trunk[-1]
        assert isinstance(head, nn.Linear)
        self.trunk = trunk[:-1]
        self.mean, self.logvar = (nn.Linear(head.in_features, LATENTS) for _ in range(2))

    def forward(self, x: Tensor) -> ModelOutput:
        h = self.trunk(x)
        return ModelOutput(embedding=self.mean(h), log_covariance=self.logvar(h))


class Decoder(BaseDecoder):
    """A decoder of the study as a pythae decoder, which returns pixel probabilities."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, z: Tensor) -> ModelOutput:
        return ModelOutput(reconstruction=torch.sigmoid(self.layers(z)))


def pythae_step(net: str, x: Tensor) -> Callable[[], float]:
    """A function that takes one step of the beta-VAE of pythae."""
    torch.manual_seed(0)
    shape = tuple(x.shape[1:])
    config = BetaVAEConfig(input_dim=shape, latent_dim=LATENTS, beta=BETA, reconstruction_loss="bce")
    encoder, decoder = NETS[net](shape, LATENTS)
    model = PythaeBetaVAE(config, encoder=Encoder(plain(encoder)), decoder=Decoder(plain(decoder)))
    model.train()
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    inputs = DatasetOutput(data=x)

    def step() -> float:
        loss = model(inputs).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    return step


def our_step(net: str, data: datasets.FactorData, precision: Precision, runs: int = 1) -> Callable[[], float]:
    """A function that takes one step of a stack of beta-VAEs of unbraid, including drawing and unpacking images."""
    specs = [
        RunSpec(BetaVAE(beta=BETA), data.name, seed, 10, BATCH, RATE, LATENTS, net, precision=precision)
        for seed in range(runs)
    ]
    stack = Stack(specs, data, NETS[net], threads=min(runs, torch.get_num_threads()))

    def step() -> float:
        stack.advance()
        return float(stack.last[:, 0].mean())

    return step


class StepProcess:
    """A new process that takes training steps and returns the seconds of each. No memory is shared with other steps."""

    def __init__(self, *case: Any) -> None:
        self.pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=prepare, initargs=case)

    def seconds(self) -> float:
        """The mean seconds of the next steps."""
        return self.pool.submit(time_steps).result()


_step: list[Callable[[], float]] = []  # the step of this process


@dataclass(frozen=True)
class Case:
    """One comparison: a dataset, a network, a precision, and the numbers of runs and of CPU threads."""

    data: str
    net: str
    precision: Precision
    runs: int
    threads: int


def prepare(library: str, case: Case) -> None:
    """Build the step that this process takes."""
    torch.set_num_threads(case.threads)
    data = datasets.load(case.data)
    if library == "unbraid":
        keep_freed_memory()
        _step.append(our_step(case.net, data, case.precision, case.runs))
    else:
        _step.append(pythae_step(case.net, data.batch(torch.linspace(0, len(data) - 1, BATCH).long())))


def time_steps() -> float:
    """Take some steps of this process without a pause, and return the mean seconds of a step."""
    time.sleep(PAUSE_SECONDS)
    for _ in range(WARM_UP):
        _step[0]()
    started = time.perf_counter()
    for _ in range(STEPS):
        _step[0]()
    return (time.perf_counter() - started) / STEPS


def compare(case: Case, rounds: int) -> dict[str, float]:
    """The median seconds per model-step of pythae and of unbraid, after one round of warm-up."""
    processes = {name: StepProcess(name, case) for name in ("pythae", "unbraid")}
    times = [{name: process.seconds() for name, process in processes.items()} for _ in range(rounds + 1)][1:]
    for process in processes.values():
        process.pool.shutdown()
    seconds = {name: statistics.median(time[name] for time in times) for name in processes}
    return {"pythae": seconds["pythae"], "unbraid": seconds["unbraid"] / case.runs}


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Make one comparison and print it."""
    found = compare(case, rounds)
    ratio = found["unbraid"] / found["pythae"]
    ms = {name: 1e3 * value for name, value in found.items()}
    side = datasets.load(case.data).shape[-1]
    print(
        f"{side}x{side} {case.net} {case.precision} {case.runs} run(s) {case.threads} thread(s): "
        f"{ms['unbraid']:.1f} ms per step, pythae {ms['pythae']:.1f}, {ratio:.2f}",
        flush=True,
    )
    return {**asdict(case), "side": side, "ms": ms, "ratio": ratio}


def available_threads(wanted: list[int]) -> list[int]:
    """Return the numbers of threads for which the process has enough cores, and print the others."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for threads in wanted:
        if threads > cores:
            print(f"{threads} threads: skipped, because there are only {cores} cores", flush=True)
    return [threads for threads in wanted if threads <= cores]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--stack", type=int, default=4, help="the number of runs of the stack that is measured")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4], help="the numbers of CPU threads")
    parser.add_argument("--data", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--nets", nargs="+", default=["locatello", "burgess"])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "bench_train.json")
    options = parser.parse_args()
    precisions: tuple[Precision, ...] = ("bf16", "fp32")
    threads = available_threads(options.threads)
    cases = itertools.product(threads, options.data, options.nets, precisions, dict.fromkeys((1, options.stack)))
    results = [measure(Case(data, net, precision, runs, n), options.rounds) for n, data, net, precision, runs in cases]
    content = {
        **describe(),
        "threads": threads,
        "rounds": options.rounds,
        "default": fastest_precision("cpu"),
        "steps": results,
    }
    options.out.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
