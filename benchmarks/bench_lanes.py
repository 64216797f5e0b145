"""Small stacks one after the other and at the same time: model-steps a second of several methods with few seeds each.

A study with ten seeds a setting has stacks that leave a GPU mostly idle. In lanes they share it. Writes
results/bench_lanes.json. Run: python benchmarks/bench_lanes.py [--data dsprites --seeds 10 --seconds 5]
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
from unbraid.training.schedule import RunInTraining, StackGroup, convoys
from unbraid.training.train import Choice

METHODS: dict[str, Method] = {
    "beta_vae": BetaVAE(beta=8.0), "beta_tcvae": BetaTCVAE(beta=6.0), "factor_vae": FactorVAE(gamma=35.0),
    "slow_vae": SlowVAE(), "pcl": PCL(), "ae": AE(),
}  # fmt: skip
WARM = 5  # steps before the clock starts


def rate(convoy: StackGroup, seconds: float) -> float:
    """Model-steps a second."""
    for _ in range(WARM):
        convoy.advance(lambda voyage: None)
    torch.cuda.synchronize()
    begun, taken = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        for _ in range(20):
            convoy.advance(lambda voyage: None)
        torch.cuda.synchronize()
        taken += 20
    return taken * sum(len(voyage.stack) for voyage in convoy.voyages) / (time.perf_counter() - begun)


def measured(names: list[str], data: FactorData, seeds: int, seconds: float) -> float:
    """Of all these methods at the same time."""
    choice = Choice.of(data)
    settings = {"steps": 10**9, "batch": 64, "learning_rate": 1e-4, "latents": 5}
    specs = [choice.spec(METHODS[name], seed=seed, **settings) for name in names for seed in range(seeds)]
    (convoy,) = convoys([RunInTraining(spec, None) for spec in specs], data, choice.builder)
    return rate(convoy, seconds)


def main() -> None:
    """Each method alone, then more and more of them together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="dsprites")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "bench_lanes.json")
    options = parser.parse_args()
    data = load(options.data, device="cuda")
    alone = {name: measured([name], data, options.seeds, options.seconds) for name in METHODS}
    rows = []
    for count in range(2, len(METHODS) + 1):
        names = list(METHODS)[:count]
        in_turn = count / sum(1 / alone[name] for name in names)
        at_once = measured(names, data, options.seeds, options.seconds)
        rows.append({"methods": names, "in_turn": in_turn, "at_once": at_once, "ratio": at_once / in_turn})
        print(f"{count} stacks of {options.seeds}: {in_turn:,.0f} in turn, {at_once:,.0f} at the same time "
              f"({at_once / in_turn:.2f} x): {', '.join(names)}", flush=True)  # fmt: skip
    settings = {"data": options.data, "seeds": options.seeds, "seconds": options.seconds}
    content = {**describe(), **settings, "alone": alone, "together": rows}
    write_atomic(options.out, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
