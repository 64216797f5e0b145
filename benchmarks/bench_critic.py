"""Estimate the total correlation of Gaussians with the critic of FactorVAE, beside the true and the published values.

The Gaussians have D dimensions. Dimension i of the first half and dimension i of the second half have correlation rho,
and all other pairs are independent. The true total correlation is -(D / 4) log(1 - rho^2). For each D and rho, several
critics are trained at once. The estimate is the mean of D_0(z) - D_1(z) over new samples.

    python benchmarks/bench_critic.py --device cuda
    python benchmarks/bench_critic.py --device cuda --settings devae_code

The published values are means of 10 critics after 2,000 iterations. Their batch size and learning rate are not given.
The settings "factor_vae" are those of FactorVAE's paper. The settings "devae_code" are those of FactorVAE in the DeVAE
authors' code of September 2022: github.com/erow/disentanglement_lib, commit 8a0e8ab, in the folder
disentanglement_lib/methods, files unsupervised/model.py, unsupervised/train.py and shared/architectures.py. That code
has no script for the table, so it is not known whether the table was made with these settings.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from machine import describe
from unbraid.nets.mlp import critic
from unbraid.reproduction.baselines import CRITIC
from unbraid.runtime.files import write_atomic

RESULTS = Path(__file__).parent / "results"
TEST_SAMPLES = 4_096


@dataclass(frozen=True)
class Settings:
    """How critics are trained. `asdict` returns the part that is written to the result file.

    Attributes:
        batch: Number of samples of the joint distribution in a batch. Each batch has as many samples of the product.
        rate: Learning rate of Adam.
        betas: Betas of Adam.
        clip: Probabilities are clipped to [clip, 1 - clip] in the loss. 0 clips nothing.
        same_batch: Whether samples of the product are the shuffled samples of the joint. Otherwise they are drawn anew.
        slope: Slope of the leaky ReLU for negative inputs.
        glorot: Whether critics are initialised by Glorot's scheme. Otherwise they keep the initial values of PyTorch.
    """

    batch: int
    rate: float
    betas: tuple[float, float]
    clip: float = 0.0
    same_batch: bool = False
    slope: float = 0.2
    glorot: bool = True


SETTINGS = {
    "factor_vae": Settings(64, 1e-4, (0.5, 0.9)),
    "devae_code": Settings(256, 1e-3, (0.9, 0.999), clip=1e-6, same_batch=True, slope=0.01, glorot=False),
}


def build(dimensions: int, settings: Settings) -> nn.Module:
    """Build a critic with the initial weights and the activation that the settings name."""
    net = critic(dimensions)
    for layer in net.modules():
        if isinstance(layer, nn.LeakyReLU):
            layer.negative_slope = settings.slope
        elif isinstance(layer, nn.Linear) and not settings.glorot:
            layer.reset_parameters()
    return net


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
    dimensions: int, rho: float, critics: int, steps: int, settings: Settings, device: str
) -> dict[str, list[float] | float]:
    """Train critics and return the estimates of each, on new samples and on the last batch, and the seconds taken."""
    torch.manual_seed(0)
    generator = torch.Generator(device).manual_seed(dimensions + round(1000 * rho))
    modules = [build(dimensions, settings).to(device) for _ in range(critics)]
    parameters, _ = stack_module_state(modules)
    template = copy.deepcopy(modules[0]).to("meta")
    logits = vmap(lambda values, z: functional_call(template, values, (z,)))
    optimiser = torch.optim.Adam(parameters.values(), settings.rate, betas=settings.betas, fused=True)
    started = time.perf_counter()
    for _ in range(steps):
        joint, product = draw_batch(critics, dimensions, rho, settings, generator)
        loss = critic_loss(logits(parameters, joint), logits(parameters, product), settings.clip)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    new = draw(critics, TEST_SAMPLES, dimensions, rho, generator)
    with torch.no_grad():
        found, last = (difference(logits(parameters, z)) for z in (new, joint))
    return {"estimates": found, "last_batch": last, "seconds": time.perf_counter() - started}


def draw_batch(
    critics: int, dimensions: int, rho: float, settings: Settings, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw a batch of samples of the joint distribution and one of the product of its marginals."""
    joint = draw(critics, settings.batch, dimensions, rho, generator)
    other = joint if settings.same_batch else draw(critics, settings.batch, dimensions, rho, generator)
    return joint, shuffle(other, generator)


def difference(output: Tensor) -> list[float]:
    """Return the mean over samples of the difference of the two logits, for each critic."""
    values: list[float] = (output[..., 0] - output[..., 1]).mean(1).tolist()
    return values


def critic_loss(joint: Tensor, product: Tensor, clip: float) -> Tensor:
    """Return the sum over critics of the cross-entropy: samples of the joint have class 0, of the product class 1."""
    logs = [output.log_softmax(-1)[..., label] for label, output in enumerate((joint, product))]
    if clip:
        low, high = math.log(clip), math.log1p(-clip)
        logs = [log.clamp(low, high) for log in logs]
    return -0.5 * sum((log.mean(1).sum() for log in logs), torch.zeros((), device=joint.device))


def chosen(options: argparse.Namespace) -> list[Settings]:
    """Return the named settings with each batch size and learning rate of the command line."""
    base = SETTINGS[options.settings]
    batches, rates = options.batch or [base.batch], options.rate or [base.rate]
    return [replace(base, batch=batch, rate=rate) for batch in batches for rate in rates]


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--settings", choices=SETTINGS, default="factor_vae")
    parser.add_argument("--critics", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--batch", type=int, nargs="+")
    parser.add_argument("--rate", type=float, nargs="+")
    parser.add_argument("--cells", nargs="+", metavar="D,RHO", help="the cells to estimate, by default all")
    parser.add_argument("--precision", default="high", help='float32 products: "highest", "high" or "medium"')
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    """Estimate every published cell, print the table and write the results."""
    options = parse()
    torch.set_float32_matmul_precision(options.precision)  # "high" is TensorFloat-32 on GPUs
    cells = [cell for cell in CRITIC if not options.cells or f"{cell[0]},{cell[1]}" in options.cells]
    rows: list[dict[str, Any]] = []
    print(f"{'D':>5} {'rho':>4} {'batch':>6} {'rate':>6} {'true':>8} {'published':>9} {'ours':>8} {'std':>6} {'s':>5}")
    for settings in chosen(options):
        for dimensions, rho in cells:
            found = estimate(dimensions, rho, options.critics, options.steps, settings, options.device)
            row = {"dimensions": dimensions, "rho": rho, **asdict(settings)}
            row |= {"true": true_total_correlation(dimensions, rho), "published": CRITIC[dimensions, rho], **found}
            rows.append(row)
            print(line(row), flush=True)
    head = {"critics": options.critics, "steps": options.steps, "precision": options.precision}
    text = json.dumps({**describe(), "settings": options.settings, **head, "rows": rows}, indent=1)
    suffix = "" if options.settings == "factor_vae" else f"_{options.settings}"
    write_atomic(options.out or RESULTS / f"bench_critic{suffix}.json", (text + "\n").encode())


def line(row: dict[str, Any]) -> str:
    """Return the printed line of a cell."""
    values = torch.tensor(row["estimates"])
    mean, std = values.mean().item(), values.std().item() if len(values) > 1 else math.nan
    start = f"{row['dimensions']:>5} {row['rho']:>4} {row['batch']:>6} {row['rate']:>6g} {row['true']:>8.2f}"
    return f"{start} {row['published']:>9.2f} {mean:>8.2f} {std:>6.2f} {row['seconds']:>5.1f}"


if __name__ == "__main__":
    main()
