"""Train two methods beside an untrained baseline on built-in data, score them, draw the best: about a minute."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unbraid.cli.parser import Parser
from unbraid.cli.printing import table
from unbraid.data import FactorData, load
from unbraid.methods import VAE, BetaTCVAE, BetaVAE, Method
from unbraid.metrics import TRAITS
from unbraid.metrics.information import discretise, entropy, mutual_information
from unbraid.pictures.traversal import traverse
from unbraid.reporting.page import report
from unbraid.runs.run import Run
from unbraid.scoring.score import score
from unbraid.training.train import train

STEPS = 1_600
SETTINGS: dict[str, Any] = {"data": "sprites", "learning_rate": 1e-3, "latents": 6}
SHOWN = ("mig", "dci", "modularity", "factor_vae", "unsupervised")
BASELINE: Method = VAE()
METHODS: list[Method] = [BetaVAE(beta=8.0), BetaTCVAE(beta=8.0, estimator="stratified")]


def information(run: Run, data: FactorData) -> list[list[Any]]:
    """For every factor: the latent that tells most of it, what share of its entropy that is, and the next best."""
    index = np.arange(len(data))
    codes, factors = run.encode(data.images(index)).cpu().numpy(), data.factors(index).cpu().numpy()
    told = mutual_information(discretise(codes), factors) / entropy(factors)
    rows = []
    for j, name in enumerate(data.names):
        best, second = np.argsort(told[:, j])[::-1][:2]
        rows.append([name, f"latent {best}", float(told[best, j]), f"latent {second}", float(told[second, j])])
    return rows


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for runs and pictures [demo]")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"training steps [{STEPS}]")
    options = parser.parse_all(arguments)
    begun = time.monotonic()
    data = load("sprites")
    print(f"Data: {data}")
    print(f"Training {len(METHODS)} methods for {options.steps} steps; an untrained encoder is scored beside them.")
    runs = train(BASELINE, steps=0, out=options.out / "runs", add=True, **SETTINGS)
    runs += train(METHODS, steps=options.steps, out=options.out / "runs", add=True, **SETTINGS)
    rows = score(runs, SHOWN, codes=["mean"])
    print("\nScores of the posterior means (higher is better, but for the total correlation):")
    body = [[row["label"], *(row[f"{name}.{TRAITS[name].headline}"] for name in SHOWN)] for row in rows]
    print(table(["run", *("total corr." if name == "unsupervised" else name for name in SHOWN)], body))
    best = max(range(1, len(runs)), key=lambda i: rows[i]["mig.discrete_mig"])
    print(f"\nWhere {runs[best].label} keeps each factor (share of the factor's entropy a latent tells):")
    print(table(["factor", "best", "tells", "next", "tells"], information(runs[best], data)))
    png, gif = traverse(runs[best], data, out=options.out)
    page = report(options.out / "runs", options.out / "report.html", metrics=SHOWN, quiet=True)
    print(f"\n{time.monotonic() - begun:.0f} s. Runs: {options.out / 'runs'}   Pictures: {png} {gif}")
    print(f"Now open {page} in a browser and move the sliders.")
    print(f"Next: unbraid score {options.out / 'runs'}   unbraid train beta_vae --help   unbraid list")
