"""What methods of pairs and curved spaces recover of planted factors, seed by seed, beside what they are compared with.

Sources of a time series (PCL), factors of a product (PMP), a turn (Diffusion VAE on a circle), and the factors of the
built-in sprites from pairs (Ada-GVAE, SlowVAE). docs/recovery_figure.py draws the result.
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
from unbraid.data import known_sources as planted
from unbraid.methods import PCL, PMP, AdaGVAE, BetaVAE, DiffusionVAE, Method, SlowVAE
from unbraid.methods.pairs import Paired
from unbraid.metrics.mcc import correlation, best_assignment_mean
from unbraid.runs.run import Run

RESULT = Path(__file__).parent / "results" / "bench_recovery.json"
DIGITS = 4  # of what is written
BARE = {"distance": 0.0, "sparsity": 0.0, "consistency": 0.0, "regularisation": 0.0}  # PMP without its losses
CONTESTS: dict[str, list[Method]] = {  # each beside a beta-VAE of the same images; beta 8 is that of SlowVAE's authors
    "few factors change": [Paired(beta=1.0), AdaGVAE(beta=1.0)],
    "factors move a little": [Paired(beta=8.0, weight=2.0, pairs="laplace"), SlowVAE()],
}

Row = dict[str, Any]


def rounded(values: Tensor | np.ndarray[Any, Any]) -> Any:
    """Nested lists of few digits."""
    return np.asarray(values, dtype=np.float64).round(DIGITS).tolist()


def agreement(code: Tensor, sources: Tensor) -> Row:
    """Correlations (sources, codes), absolute, and their mean under the best one-to-one assignment."""
    found = correlation(code.double().numpy(), sources.double().numpy())
    return {"correlations": rounded(found.T), "mcc": round(best_assignment_mean(found), DIGITS)}


def contrast(seeds: Sequence[int], steps: int) -> list[Row]:
    """PCL on five mixed sources, before and after training."""
    data, sources = planted.mixed_time_series(2**15)
    settings: dict[str, Any] = {"batch": 512, "learning_rate": 1e-3, "latents": sources.shape[1], "net": "mlp"}
    rows = []
    for when, length in (("before", 0), ("after", steps)):
        runs = ub.train(PCL(pairs="consecutive"), data, seeds=seeds, steps=length, quiet=True, **settings)
        rows += [{"when": when, "seed": run.spec.seed, **agreement(run.encode(data.table), sources)} for run in runs]
    return rows


def subspaces(seeds: Sequence[int], steps: int) -> list[Row]:
    """PMP on a curved product of three factors, with its losses and as a plain autoencoder."""
    data, factors = planted.curved_product()
    methods = [PMP(subspaces=3, horizon=float(steps), **losses) for losses in ({}, BARE)]  # type: ignore[arg-type]
    runs = ub.train(methods, data, seeds=seeds, steps=steps, learning_rate=2e-3, latents=3, net="mlp", quiet=True)
    rows = []
    for i, run in enumerate(runs):
        codes = {kind: agreement(run.encode(data.table, kind), factors) for kind in PMP.code_kinds}
        rows.append({"losses": i < len(seeds), "seed": run.spec.seed, **codes})
    return rows


def circle(seeds: Sequence[int], steps: int) -> list[Row]:
    """A turning half disc, on a circle (Diffusion VAE) and on a line (beta-VAE)."""
    data, angle = planted.rotating_half_disc()
    images = data.images(slice(None))
    settings: dict[str, Any] = {"steps": steps, "batch": 32, "learning_rate": 1e-3, "net": "mlp", "precision": "fp32"}
    rows = []
    for space, method, latents in (("circle", DiffusionVAE(walk_steps=5), 2), ("line", BetaVAE(beta=1.0), 1)):
        for run in ub.train(method, data, seeds=seeds, latents=latents, quiet=True, **settings):
            code = run.encode(images)
            row: Row = {"space": space, "seed": run.spec.seed, "code": rounded(code), "angle": rounded(angle)}
            row |= {"unevenness": planted.step_unevenness(code), "folding": planted.largest_fold(code)}
            if space == "circle":
                row["correlation"] = abs(planted.circular_correlation(angle, run.encode(images, "angles")[:, 0]))
            rows.append({**row, "reconstruction": run.log[-1]["rec"]})
    return rows


def images_of_pairs(seeds: Sequence[int], steps: int) -> list[Row]:
    """DCI and MIG on sprites: methods of pairs beside a beta-VAE of the same images."""
    rows = []
    for contest, methods in CONTESTS.items():
        settings: dict[str, Any] = {"seeds": seeds, "steps": steps, "learning_rate": 1e-3, "latents": 6, "quiet": True}
        runs = ub.train(methods, "sprites", **settings)
        rows += [{"contest": contest, **scored(run, score)} for run, score in zip(runs, scores_of(runs), strict=True)]
    return rows


def scores_of(runs: list[Run]) -> list[Row]:
    """Of posterior means."""
    return ub.score(runs, ["dci", "mig"], codes=["mean"], quiet=True)


def scored(run: Run, score: Row) -> Row:
    """What is kept of a run and its scores."""
    method = "beta_vae" if isinstance(run.spec.method, Paired) else score["method"]
    kept = {"dci": score["dci.disentanglement"], "mig": score["mig.discrete_mig"]}
    return {"method": method, "label": run.label, "seed": run.spec.seed, **kept}


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
    """A line for every case and measure: the median, and every seed."""
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
    """Train, print and write the result beside this file, part by part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of every run, instead of those of each part")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    result: dict[str, Any] = {**describe(), "steps": {}, "seconds": {}}
    for part, (experiment, usual) in PARTS.items():
        begun, steps = time.perf_counter(), options.steps or usual
        result[part] = experiment(range(options.seeds), steps)
        result["steps"][part], result["seconds"][part] = steps, time.perf_counter() - begun
        print("\n".join(table(part, result[part])), flush=True)
        options.out.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
