"""Measure how well methods that train on pairs or have curved spaces recover known factors, compared with baselines.

The factors are the sources of a time series (PCL), the factors of a product (PMP), a rotation angle (Diffusion VAE on
a circle), and the factors of the built-in sprites from pairs (Ada-GVAE, SlowVAE). docs/figures/recovery.py draws the
result.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from torch import Tensor

import unbraid as ub
from machine import describe
from unbraid.data import known_sources
from unbraid.methods import PCL, PMP, AdaGVAE, BetaVAE, DiffusionVAE, Method, SlowVAE
from unbraid.methods.pairs import Paired
from unbraid.metrics.mcc import absolute_correlations, best_assignment_mean
from unbraid.runs.run import Run

RESULT = Path(__file__).parent / "results" / "bench_recovery.json"
DIGITS = 4  # of the written numbers
NO_LOSSES = {"distance": 0.0, "sparsity": 0.0, "consistency": 0.0, "regularisation": 0.0}  # PMP without its losses
CONTESTS: dict[str, list[Method]] = {  # each with a beta-VAE on the same images; beta 8 is from the authors of SlowVAE
    "few factors change": [Paired(beta=1.0), AdaGVAE(beta=1.0)],
    "factors move a little": [Paired(beta=8.0, weight=2.0, pairs="laplace"), SlowVAE()],
}

Row = dict[str, Any]


def rounded_list(values: Tensor | np.ndarray[Any, Any]) -> Any:
    """Return values as nested lists with few digits."""
    return np.asarray(values, dtype=np.float64).round(DIGITS).tolist()


def agreement(code: Tensor, sources: Tensor) -> Row:
    """Return the absolute correlations (sources, codes) and their mean under the best one-to-one assignment."""
    found = absolute_correlations(code.double().numpy(), sources.double().numpy())
    return {"correlations": rounded_list(found.T), "mcc": round(best_assignment_mean(found), DIGITS)}


def contrast(seeds: Sequence[int], steps: int) -> list[Row]:
    """Train PCL on five mixed sources and compare before and after training."""
    data, sources = known_sources.mixed_time_series(2**15)
    settings: dict[str, Any] = {"batch": 512, "learning_rate": 1e-3, "latents": sources.shape[1], "net": "mlp"}
    rows = []
    for when, length in (("before", 0), ("after", steps)):
        runs = ub.train(PCL(pairs="consecutive"), data, seeds=seeds, steps=length, quiet=True, **settings)
        rows += [{"when": when, "seed": run.spec.seed, **agreement(run.encode(data.table), sources)} for run in runs]
    return rows


def subspaces(seeds: Sequence[int], steps: int) -> list[Row]:
    """Train PMP on a curved product of three factors, with its losses and as a plain autoencoder."""
    data, factors = known_sources.curved_product()
    methods = [PMP(subspaces=3, horizon=float(steps), **losses) for losses in ({}, NO_LOSSES)]  # type: ignore[arg-type]
    runs = ub.train(methods, data, seeds=seeds, steps=steps, learning_rate=2e-3, latents=3, net="mlp", quiet=True)
    rows = []
    for i, run in enumerate(runs):
        codes = {kind: agreement(run.encode(data.table, kind), factors) for kind in PMP.code_kinds}
        rows.append({"losses": i < len(seeds), "seed": run.spec.seed, **codes})
    return rows


def circle(seeds: Sequence[int], steps: int) -> list[Row]:
    """Encode a rotating half disc on a circle (Diffusion VAE) and on a line (beta-VAE)."""
    data, angle = known_sources.rotating_half_disc()
    images = data.images(slice(None))
    settings: dict[str, Any] = {"steps": steps, "batch": 32, "learning_rate": 1e-3, "net": "mlp", "precision": "fp32"}
    rows = []
    for space, method, latents in (("circle", DiffusionVAE(walk_steps=5), 2), ("line", BetaVAE(beta=1.0), 1)):
        for run in ub.train(method, data, seeds=seeds, latents=latents, quiet=True, **settings):
            code = run.encode(images)
            row: Row = {"space": space, "seed": run.spec.seed, "code": rounded_list(code), "angle": rounded_list(angle)}
            row |= {
                "unevenness": known_sources.step_unevenness(code),
                "folding": known_sources.largest_neighbour_angle(code),
            }
            if space == "circle":
                row["correlation"] = abs(known_sources.circular_correlation(angle, run.encode(images, "angles")[:, 0]))
            rows.append({**row, "reconstruction": run.log[-1]["rec"]})
    return rows


def images_of_pairs(seeds: Sequence[int], steps: int) -> list[Row]:
    """Compare methods that train on pairs of sprites with a beta-VAE on the same images, by DCI and MIG."""
    rows = []
    for contest, methods in CONTESTS.items():
        settings: dict[str, Any] = {"seeds": seeds, "steps": steps, "learning_rate": 1e-3, "latents": 6, "quiet": True}
        runs = ub.train(methods, "sprites", **settings)
        rows += [
            {"contest": contest, **result_row(run, score)} for run, score in zip(runs, score_means(runs), strict=True)
        ]
    return rows


def score_means(runs: list[Run]) -> list[Row]:
    """Score the posterior means of runs."""
    return ub.score(runs, ["dci", "mig"], codes=["mean"], quiet=True)


def result_row(run: Run, score: Row) -> Row:
    """Return what is written about a run: its method, label, seed and scores."""
    method = "beta_vae" if isinstance(run.spec.method, Paired) else score["method"]
    scores = {"dci": score["dci.disentanglement"], "mig": score["mig.discrete_mig"]}
    return {"method": method, "label": run.label, "seed": run.spec.seed, **scores}


PARTS: dict[str, tuple[Callable[[Sequence[int], int], list[Row]], int]] = {
    "pcl": (contrast, 4_000),
    "pmp": (subspaces, 2_500),
    "circle": (circle, 800),
    "pairs": (images_of_pairs, 1_500),
}
SHOWN = {
    "pcl": (("when",), ("mcc",)),
    "pmp": (("losses",), ("sum", "components")),
    "circle": (("space",), ("correlation", "unevenness", "folding", "reconstruction")),
    "pairs": (("contest", "method"), ("dci", "mig")),
}


def table(part: str, rows: list[Row]) -> list[str]:
    """Return one line for every case and measure, with the median and the value of every seed."""
    cases, measures = SHOWN[part]
    lines = []
    for case in dict.fromkeys(tuple(str(row[key]) for key in cases) for row in rows):
        of_case = [row for row in rows if tuple(str(row[key]) for key in cases) == case]
        for measure in [m for m in measures if m in of_case[0]]:
            found = [row[measure] for row in of_case]
            values = [v["mcc"] if isinstance(v, dict) else v for v in found]
            each = " ".join(f"{v:.3f}" for v in values)
            lines.append(f"{part:7} {', '.join(case):36} {measure:15} median {median(values):8.3f}   seeds {each}")
    return lines


def main() -> None:
    """Train, print and write the results part by part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="steps of every run [those of each part]")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    result: dict[str, Any] = {**describe(), "steps": {}, "seconds": {}}
    for part, (experiment, default) in PARTS.items():
        started, steps = time.perf_counter(), options.steps or default
        result[part] = experiment(range(options.seeds), steps)
        result["steps"][part], result["seconds"][part] = steps, time.perf_counter() - started
        print("\n".join(table(part, result[part])), flush=True)
        options.out.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
