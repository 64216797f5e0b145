"""Estimate the total correlation of Gaussians with the critic of FactorVAE, beside the true and the published values.

The Gaussians have D dimensions. Dimension i of the first half and dimension i of the second half have correlation rho,
and all other pairs are independent. The true total correlation is -(D / 4) log(1 - rho^2). For each D and rho, several
critics are trained at once with FactorVAE's own settings. The estimate is the mean of D_0(z) - D_1(z) over new samples.

    python benchmarks/bench_critic.py --device cuda

The published values are means of 10 critics after 2,000 iterations. Their batch size and learning rate are not given.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from machine import describe
from unbraid.nets.mlp import critic
from unbraid.reproduction.baselines import CRITIC
from unbraid.runtime.files import write_atomic

RESULT = Path(__file__).parent / "results" / "bench_critic.json"
TEST_SAMPLES = 4_096


def true_total_correlation(dimensions: int, rho: float) -> float:
    """Return the total correlation of the Gaussian in nats."""
    return -dimensions / 4 * math.log(1 - rho**2)


def draw(critics: int, count: int, dimensions: int, rho: float, generator: torch.Generator) -> Tensor:
    """Draw samples for each critic, of shape (critics, count, dimensions)."""
    normal = torch.randn(critics, count, dimensions, generator=generator, device=generator.device)
    first, second = normal.chunk(2, dim=-1)
    return torch.cat([first, rho * first + math.sqrt(1 - rho**2) * second], dim=-1)


def shuffle(z: Tensor, generator: torch.Generator) -> Tensor:
    """Permute each dimension over the batch independently."""
    order = torch.rand(z.shape, generator=generator, device=z.device).argsort(dim=1)
    return z.gather(1, order)


def estimate(
    dimensions: int, rho: float, critics: int, steps: int, batch: int, rate: float, device: str
) -> tuple[list[float], float]:
    """Train critics and return the estimate of each and the seconds that it took."""
    torch.manual_seed(0)
    generator = torch.Generator(device).manual_seed(dimensions + round(1000 * rho))
    modules = [critic(dimensions).to(device) for _ in range(critics)]
    parameters, _ = stack_module_state(modules)
    template = copy.deepcopy(modules[0]).to("meta")
    logits = vmap(lambda values, z: functional_call(template, values, (z,)))
    optimiser = torch.optim.Adam(parameters.values(), rate, betas=(0.5, 0.9), fused=device.startswith("cuda"))
    started = time.perf_counter()
    for _ in range(steps):
        joint = draw(critics, batch, dimensions, rho, generator)
        product = shuffle(draw(critics, batch, dimensions, rho, generator), generator)
        loss = critic_loss(logits(parameters, joint), logits(parameters, product))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        output = logits(parameters, draw(critics, TEST_SAMPLES, dimensions, rho, generator))
    values = (output[..., 0] - output[..., 1]).mean(1)
    return values.tolist(), time.perf_counter() - started


def critic_loss(joint: Tensor, product: Tensor) -> Tensor:
    """Return the sum over critics of the cross-entropy: samples of the joint have class 0, of the product class 1."""
    cross_entropy = nn.functional.cross_entropy
    zeros, ones = (torch.full(joint.shape[:2], label, device=joint.device) for label in (0, 1))
    losses = [cross_entropy(z.flatten(0, 1), labels.flatten()) for z, labels in ((joint, zeros), (product, ones))]
    return 0.5 * len(joint) * (losses[0] + losses[1])


def main() -> None:
    """Estimate every published cell, print the table and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--critics", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--batch", type=int, nargs="+", default=[64])
    parser.add_argument("--rate", type=float, nargs="+", default=[1e-4])
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")  # TensorFloat-32 on GPUs
    rows: list[dict[str, Any]] = []
    print(f"{'D':>5} {'rho':>4} {'batch':>6} {'rate':>6} {'true':>8} {'published':>9} {'ours':>8} {'std':>6} {'s':>5}")
    for batch, rate in ((batch, rate) for batch in options.batch for rate in options.rate):
        for (dimensions, rho), published in CRITIC.items():
            found, seconds = estimate(dimensions, rho, options.critics, options.steps, batch, rate, options.device)
            true, values = true_total_correlation(dimensions, rho), torch.tensor(found)
            mean, std = values.mean().item(), values.std().item()
            line = f"{dimensions:>5} {rho:>4} {batch:>6} {rate:>6g} {true:>8.2f} {published:>9.2f} {mean:>8.2f}"
            print(f"{line} {std:>6.2f} {seconds:>5.1f}", flush=True)
            cell = {"dimensions": dimensions, "rho": rho, "batch": batch, "rate": rate, "true": true}
            rows.append({**cell, "published": published, "estimates": found, "seconds": seconds})
    text = json.dumps({**describe(), "critics": options.critics, "steps": options.steps, "rows": rows}, indent=1)
    write_atomic(options.out, (text + "\n").encode())


if __name__ == "__main__":
    main()
