"""Compare the scores of runs trained in bf16 (or tf32) with those of runs trained in fp32, with the same seeds.

Prints the mean and standard deviation of every score for both, the difference of the means divided by its standard
error (Welch's t), and the p value of a two-sided permutation test. Run: python benchmarks/bench_precision.py --seeds 8
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import ks_2samp, permutation_test, ttest_ind

import unbraid as ub
from machine import describe
from unbraid.metrics import headline
from unbraid.metrics.protocol import Protocol

METRICS = ("mig", "sap", "modularity", "factor_vae", "unsupervised")


def values(runs: list[ub.Run], metrics: list[str], quiet: bool) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """The headline score of each metric and the last logged terms, each with one number per run."""
    rows = ub.score(runs, metrics, codes=["mean"], protocol=Protocol(table=32_768), quiet=quiet)
    found = {name: np.array([row[headline(name)] for row in rows]) for name in metrics}
    return {**found, **{term: np.array([run.log[-1][term] for run in runs]) for term in ("rec", "kl")}}


def compare(
    full: np.ndarray[Any, Any], half: np.ndarray[Any, Any], name: str, reference: str = "fp32"
) -> dict[str, float]:
    """Means, standard deviations, Welch's t, and the p values of a permutation and a Kolmogorov-Smirnov test."""
    test = permutation_test((full, half), lambda a, b: a.mean() - b.mean(), n_resamples=20_000, rng=0)
    return {
        reference: float(full.mean()), f"{reference} sd": float(full.std(ddof=1)),
        name: float(half.mean()), f"{name} sd": float(half.std(ddof=1)),
        "t": float(ttest_ind(half, full, equal_var=False).statistic), "p": float(test.pvalue),
        "p of distributions": float(ks_2samp(full, half).pvalue),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="sprites")
    parser.add_argument("--method", default="beta_vae")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--keep", type=Path, help="folder for the runs, with which an interrupted benchmark resumes")
    parser.add_argument("--metrics", nargs="*", default=list(METRICS))
    parser.add_argument("--against", nargs="*", default=["bf16"], choices=("bf16", "tf32"), help="compared with fp32")
    parser.add_argument("--out", type=Path, help="results file [results/bench_precision_DATA.json]")
    options = parser.parse_args()
    method = ub.methods.METHODS[options.method]()
    scores, rates = {}, {}
    for precision in ("fp32", *options.against):
        started = time.perf_counter()
        runs = ub.train(
            method, options.data, seeds=range(options.seeds), steps=options.steps, precision=precision,
            learning_rate=options.learning_rate, device=options.device,
            out=None if options.keep is None else options.keep / precision,
        )  # fmt: skip
        rates[precision] = options.seeds * options.steps / (time.perf_counter() - started)
        print(f"{precision}: {rates[precision]:,.0f} model-steps/s", flush=True)
        scores[precision] = values(runs, options.metrics, quiet=False)
    print(f"{options.method} on {options.data}, {options.seeds} seeds, {options.steps} steps, {options.device}")
    table: dict[str, Any] = {}
    for other in options.against:
        table[other] = {name: compare(scores["fp32"][name], scores[other][name], other) for name in scores["fp32"]}
        for name, row in table[other].items():
            print(f"{name:<13} fp32 {row['fp32']:8.3f} +- {row['fp32 sd']:.3f}   {other} {row[other]:8.3f} +- "
                  f"{row[f'{other} sd']:.3f}   t {row['t']:+.2f}   p {row['p']:.2f} "
                  f"(distributions {row['p of distributions']:.2f})")  # fmt: skip
    path = options.out or Path(__file__).parent / "results" / f"bench_precision_{options.data}.json"
    settings = {key: str(value) for key, value in vars(options).items() if key not in ("out", "keep")}
    content = {**describe(), "threads": torch.get_num_threads(), "settings": settings, "scores": table}
    each = {precision: {name: found.tolist() for name, found in rows.items()} for precision, rows in scores.items()}
    content |= {"values": each, "model_steps_per_second": rates}
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
