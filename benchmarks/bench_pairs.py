"""Compare methods that train on pairs or have curved spaces with a beta-VAE: MIG, DCI, FactorVAE score and SAP.

Every method has the settings of its paper, and all have the same network, batch, learning rate, steps, seeds and 10
latents (11 on the 10-sphere). For methods that train on pairs, a batch of 64 images is 32 pairs. Prints the medians
and quartiles over seeds, and writes results/bench_pairs_DATA.json after every method. Cars3D needs its file, see
`unbraid data get cars3d`.
Run: python benchmarks/bench_pairs.py --device cuda --data dsprites --seeds 16 --steps 25000
"""

from __future__ import annotations

import argparse
import fcntl
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import unbraid as ub
from machine import describe
from unbraid.data import FactorData, load
from unbraid.methods import PCL, PMP, AdaGVAE, BetaVAE, DiffusionVAE, Method, SlowVAE
from unbraid.metrics import headline
from unbraid.metrics.protocol import Protocol
from unbraid.spaces import Sphere

METRICS = ("mig", "dci", "factor_vae", "sap")
PROTOCOL = Protocol()  # of all scores in the results
LATENTS, SPHERE = 10, 11


def contenders(steps: int) -> dict[str, tuple[Method, int, int]]:
    """Return method, steps and latents by label; schedules run over the whole training."""
    low, _ = Sphere(SPHERE).kl_range(-10.0, -1.0)
    sphere = DiffusionVAE(beta=2.5, walk_steps=5, iteration_threshold=steps, c_min=round(low + 0.001, 3), c_max=15.0)
    return {
        "untrained": (BetaVAE(), 0, LATENTS),
        "beta_vae": (BetaVAE(beta=4.0), steps, LATENTS),
        "ada_gvae": (AdaGVAE(), steps, LATENTS),
        "slow_vae": (SlowVAE(), steps, LATENTS),
        "pcl": (PCL(), steps, LATENTS),
        "pmp": (PMP(horizon=float(steps)), steps, LATENTS),
        "diffusion_vae": (sphere, steps, SPHERE),
    }


def headline_scores(runs: list[ub.Run], data: FactorData) -> dict[str, dict[str, list[float]]]:
    """Return the headline scores of every kind of code except samples, one number per run."""
    kinds = [kind for kind in runs[0].spec.method.code_kinds if kind != "sampled"]
    rows = ub.score(runs, METRICS, data=data, codes=kinds, protocol=PROTOCOL, quiet=True)
    found: dict[str, dict[str, list[float]]] = {}
    for i, kind in enumerate(kinds):
        ending = "" if i == 0 else f".{kind}"
        found[kind] = {m: [row[headline(m) + ending] for row in rows] for m in METRICS}
        found[kind]["active"] = [row[f"factor_vae.num_active_dims{ending}"] for row in rows]
    return found


def measure(name: str, method: Method, steps: int, latents: int, data: FactorData, options: Any) -> dict[str, Any]:
    """Train and score the runs of one method."""
    started = time.perf_counter()
    runs = ub.train(
        method, data, seeds=range(options.seeds), steps=steps, latents=latents, learning_rate=options.learning_rate,
        out=None if options.keep is None else options.keep / data.name / name, device=options.device,
    )  # fmt: skip
    trained = time.perf_counter() - started
    finished = [run for run in runs if run.divergence is None]
    last = {term: float(np.median([run.log[-1][term] for run in finished])) for term in (finished[0].log or [{}])[-1]}
    row = {"method": str(method), "latents": latents, "diverged": len(runs) - len(finished), "last": last,
           "scores": headline_scores(finished, data), "training_seconds": trained,
           "scoring_seconds": time.perf_counter() - started - trained}  # fmt: skip
    print_scores(name, row)
    return row


def print_scores(name: str, row: dict[str, Any]) -> None:
    """Print one line per kind of code with medians and quartiles."""
    for kind, scores in row["scores"].items():
        cells = []
        for metric, values in scores.items():
            low, middle, high = np.percentile(values, [25, 50, 75])
            cells.append(f"{metric} {middle:.3f} ({low:.3f} to {high:.3f})")
        print(f"{name:13} {kind:10} " + "  ".join(cells), flush=True)
    print(f"{'':13} trained {row['training_seconds']:.0f} s, scored {row['scoring_seconds']:.0f} s, "
          f"{row['diverged']} diverged", flush=True)  # fmt: skip


def record(options: Any, name: str, label: str, row: dict[str, Any]) -> None:
    """Update the results; methods that were measured with the same settings and commit, in any process, are kept."""
    settings = {"data": name, "seeds": options.seeds, "steps": options.steps, "learning_rate": options.learning_rate}
    content = {**describe(), **settings, "batch": 64, "methods": {}}
    path = options.out / f"bench_pairs_{name}.json"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = json.loads(path.read_text()) if path.exists() else {}
        if all(before.get(key) == content[key] for key in (*settings, "commit")):
            content["methods"] = before["methods"]
        content["methods"][label] = row
        order = [one for one in contenders(options.steps) if one in content["methods"]]
        content["methods"] = {one: content["methods"][one] for one in order}
        path.write_text(json.dumps(content, indent=1) + "\n")
    path.with_suffix(".lock").unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=["dsprites"])
    parser.add_argument("--methods", nargs="*", help="the methods to measure [all]")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--steps", type=int, default=25_000)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--keep", type=Path, help="folder for the runs; an interrupted benchmark resumes from it")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the results")
    options = parser.parse_args()
    for name in options.data:
        data = load(name, device=options.device)
        for label, setting in contenders(options.steps).items():
            if options.methods is None or label in options.methods:
                record(options, name, label, measure(label, *setting, data, options))


if __name__ == "__main__":
    main()
