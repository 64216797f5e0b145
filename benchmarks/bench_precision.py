"""Do runs trained in bf16 score as runs trained in fp32? The same seeds either way, side by side.

Prints mean and standard deviation of every score for both, the difference of the means in units of its standard error
(Welch's t), and the p value of a two-sided permutation test. Run: python benchmarks/bench_precision.py --seeds 8
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import permutation_test, ttest_ind

import unbraid as ub
from machine import describe
from unbraid.metrics import TRAITS
from unbraid.metrics.protocol import Protocol

HEADLINES = {name: TRAITS[name].headline for name in ("mig", "sap", "modularity", "factor_vae", "unsupervised")}


def values(runs: list[ub.Run], quiet: bool) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """Every headline score and the last logged terms, one number a run."""
    rows = ub.score(runs, list(HEADLINES), codes=["mean"], protocol=Protocol(table=32_768), quiet=quiet)
    found = {name: np.array([row[f"{name}.{key}"] for row in rows]) for name, key in HEADLINES.items()}
    return {**found, **{term: np.array([run.log[-1][term] for run in runs]) for term in ("rec", "kl")}}


def compare(full: np.ndarray[Any, Any], half: np.ndarray[Any, Any]) -> dict[str, float]:
    """Means, deviations, Welch's t and the permutation p of two samples."""
    test = permutation_test((full, half), lambda a, b: a.mean() - b.mean(), n_resamples=20_000, rng=0)
    return {
        "fp32": float(full.mean()), "fp32 sd": float(full.std(ddof=1)),
        "bf16": float(half.mean()), "bf16 sd": float(half.std(ddof=1)),
        "t": float(ttest_ind(half, full, equal_var=False).statistic), "p": float(test.pvalue),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="sprites")
    parser.add_argument("--method", default="beta_vae")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="results file [results/bench_precision_DATA.json]")
    options = parser.parse_args()
    method = ub.methods.METHODS[options.method]()
    scores = {}
    for precision in ("fp32", "bf16"):
        runs = ub.train(
            method, options.data, seeds=range(options.seeds), steps=options.steps, precision=precision,
            learning_rate=options.learning_rate, device=options.device,
        )  # fmt: skip
        scores[precision] = values(runs, quiet=False)
    table = {name: compare(scores["fp32"][name], scores["bf16"][name]) for name in scores["fp32"]}
    print(f"{options.method} on {options.data}, {options.seeds} seeds, {options.steps} steps, {options.device}")
    for name, row in table.items():
        print(f"{name:<13} fp32 {row['fp32']:8.3f} +- {row['fp32 sd']:.3f}   bf16 {row['bf16']:8.3f} +- "
              f"{row['bf16 sd']:.3f}   t {row['t']:+.2f}   p {row['p']:.2f}")  # fmt: skip
    path = options.out or Path(__file__).parent / "results" / f"bench_precision_{options.data}.json"
    settings = {key: str(value) for key, value in vars(options).items() if key != "out"}
    content = {**describe(), "threads": torch.get_num_threads(), "settings": settings, "scores": table}
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
