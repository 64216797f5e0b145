"""Train two methods on built-in data, score them and an untrained baseline, and draw the best method.

The page at the end also shows a model that comes with unbraid. This takes about a minute.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from unbraid.cli.parser import Parser
from unbraid.cli.values import path, whole_number
from unbraid.data import FactorData, load
from unbraid.methods import VAE, BetaTCVAE, BetaVAE, Method
from unbraid.metrics import headline
from unbraid.metrics.information import discretise, entropy, mutual_information
from unbraid.metrics.protocol import Protocol
from unbraid.pictures.traversal import traverse
from unbraid.reporting.page import report
from unbraid.runs.run import Run
from unbraid.runtime.tables import table
from unbraid.scoring.bounds_rows import bounds_rows, run_samples
from unbraid.scoring.score import score
from unbraid.training.train import train
from unbraid.zoo.catalogue import copy, find_model

STEPS = 1_600
SETTINGS: dict[str, Any] = {"data": "sprites", "learning_rate": 1e-3, "latents": 6}
DEMO_METRICS = ("mig", "dci", "modularity", "factor_vae", "unsupervised")
BASELINE: Method = VAE()
ZOO_MODEL = "dsprites/slow_vae/best"
METHODS: list[Method] = [BetaVAE(beta=8.0), BetaTCVAE(beta=8.0, estimator="stratified")]


def information_rows(run: Run, data: FactorData) -> list[list[Any]]:
    """Return one row per factor: its two most informative latents, and the information in each latent.

    The information is given as a fraction of the factor's entropy.
    """
    index = np.arange(len(data))
    codes, factors = run.encode(data.images(index)).cpu().numpy(), data.factors(index).cpu().numpy()
    fractions = mutual_information(discretise(codes), factors) / entropy(factors)
    rows = []
    for j, name in enumerate(data.names):
        best, second = np.argsort(fractions[:, j])[::-1][:2]
        rows.append(
            [name, f"latent {best}", float(fractions[best, j]), f"latent {second}", float(fractions[second, j])]
        )
    return rows


def copied_model(folder: Path) -> Path:
    """Copy a model that comes with unbraid to a folder of runs, unless it is already there. Return the folder."""
    if not (folder / find_model(ZOO_MODEL).run_folder.spec.id).exists():
        copy(ZOO_MODEL, folder)
    return folder


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument(
        "--out", type=path, default=Path("demo"), metavar="FOLDER", help="folder for the runs and pictures [demo]"
    )
    parser.add_argument("--steps", type=whole_number(), default=STEPS, help=f"number of training steps [{STEPS}]")
    options = parser.parse_all(arguments)
    start = time.monotonic()
    folder = options.out / "runs"
    data = load("sprites")
    print(f"Data: {data}")
    print(f"Training {len(METHODS)} methods for {options.steps} steps. An untrained encoder is the baseline.")
    runs = train(BASELINE, steps=0, out=folder, add=True, **SETTINGS)
    runs += train(METHODS, steps=options.steps, out=folder, add=True, **SETTINGS)
    rows = score(runs, DEMO_METRICS, codes=["mean"])
    bounds = bounds_rows(run_samples(runs, Protocol(), True), list(DEMO_METRICS), Protocol(), True)
    print("\nScores of the posterior means. The last rows are the scores of a perfect code and of pure noise. A score")
    print("is good only if it is well above that of noise. The total correlation is good if it is low:")
    body = [[row["label"], *(row[headline(name)] for name in DEMO_METRICS)] for row in [*rows, *bounds]]
    print(table(["run", *("total corr." if name == "unsupervised" else name for name in DEMO_METRICS)], body))
    best = max(range(1, len(runs)), key=lambda i: rows[i]["mig.discrete_mig"])
    print(f"\nThe two latents of {runs[best].label} that contain most information about each factor,")
    print("as a fraction of the factor's entropy:")
    print(table(["factor", "best", "fraction", "second", "fraction"], information_rows(runs[best], data)))
    pictures = traverse(runs[best], data, out=options.out).paths
    model = copied_model(options.out / "zoo")
    page = report([folder, model], options.out / "report.html", metrics=DEMO_METRICS, scoring=False, quiet=True)
    print(f"\nFinished after {time.monotonic() - start:.0f} s. The runs are in {folder}.")
    print(f"Pictures of the latents: {' '.join(map(str, pictures))}")
    print(f"Open {page} in a browser and move the sliders. Beside these runs it shows {ZOO_MODEL},")
    print(f"which comes with unbraid and was trained for {find_model(ZOO_MODEL).run_folder.spec.steps:,} steps.")
    print(f"Commands to try next: unbraid score {quote(str(folder))}   unbraid train beta_vae --help   unbraid list")
