"""Which definition of importance published DCI scores use, and why one published row has low FactorVAE and SAP scores.

The scores of a run are correlated. Over our runs on dSprites, a line is fitted to DCI, to the FactorVAE score and to
SAP, each as a function of MIG. Every published row also has a MIG, so the lines predict its other scores. The benchmark
prints the difference between published and predicted scores, in standard deviations of our runs about the line. If the
paper uses the same definition as we do, all differences are near 0.

It then prints scores by number of active latents and, with --runs, the scores of means and of samples of the same runs.
Without --runs, the earlier scores of means and samples are kept, with their own commit. The results are written to
results/bench_published.json.

Run: python benchmarks/bench_published.py [--tables benchmarks/results/study_demystifying*.csv] [--runs FOLDER]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import unbraid as ub
from machine import describe
from unbraid.methods import BetaVAE
from unbraid.reproduction.demystifying import published_numbers
from unbraid.runs.folder import find_runs
from unbraid.runs.run import open_run
from unbraid.runtime.files import write_atomic

RESULTS = Path(__file__).parent / "results"
MIG = "mig.discrete_mig"
SCORES = {  # our column, and the column of the paper with which it is compared
    "DCI, today's importances": ("dci.disentanglement_mean", "DCI"),
    "DCI, per-tree importances": ("dci.disentanglement_per_tree", "DCI"),
    "FactorVAE score": ("factor_vae.eval_accuracy", "FactorVAE"),
    "SAP": ("sap.SAP_score", "SAP"),
}
VAES = ("beta_vae", "beta_tcvae", "factor_vae", "slow_vae")


def published() -> pd.DataFrame:
    """Return the means of the paper on dSprites, one row per method and form of the data."""
    cells = [cell for cell in published_numbers() if ", dsprites " in cell.row]
    return pd.DataFrame([(c.row, c.column, c.value) for c in cells]).pivot(index=0, columns=1, values=2)


def fit_line(runs: pd.DataFrame, column: str) -> dict[str, float]:
    """Return the least-squares line of a score as a function of MIG, and the standard deviation of runs about it."""
    slope, start = np.polyfit(runs[MIG], runs[column], 1)
    rest = runs[column] - slope * runs[MIG] - start
    return {"slope": slope, "start": start, "spread": float(rest.std(ddof=2)),
            "explained": 1 - float(rest.var() / runs[column].var())}  # fmt: skip


def related(runs: pd.DataFrame) -> dict[str, Any]:
    """Return the line of each score, and the deviation of every published row from it."""
    rows, lines = published(), {}
    for name, (column, theirs) in SCORES.items():
        fit = fit_line(runs, column)
        known = rows[theirs].dropna()
        off = (known - fit["slope"] * rows.loc[known.index, "MIG"] - fit["start"]) / fit["spread"]
        lines[name] = {**fit, "off": off.round(3).to_dict()}
        worst = off.abs().sort_values(ascending=False).index[:3]
        largest = ", ".join(f"{row} {off[row]:+.1f}" for row in worst)
        print(
            f"{name:26} R^2 {fit['explained']:.2f}, |off| median {off.abs().median():4.1f}, largest: {largest}",
            flush=True,
        )
    return lines


def by_units(runs: pd.DataFrame) -> list[dict[str, Any]]:
    """Return mean scores by method, dataset and number of active latents."""
    columns = [MIG, *(column for column, _ in SCORES.values())]
    by = runs.dropna(subset=["active.units"]).groupby(["method", "data", "active.units"])
    found = by[columns].mean().round(4).assign(runs=by.size()).reset_index()
    print(found.to_string(index=False))
    rows: list[dict[str, Any]] = found.to_dict("records")
    return rows


def by_codes(folder: Path) -> list[dict[str, Any]]:
    """Return the scores of posterior means and of samples of beta-VAEs on the original data."""
    data = ub.data.load("dsprites")
    wanted = [one for one in find_runs(folder) if one.spec.data == data.name and type(one.spec.method) is BetaVAE]
    runs = [open_run(one, data) for one in wanted]
    scores = ub.score(runs, ["mig", "dci", "factor_vae", "sap"], data=data, codes=["mean", "sampled"])
    found = []
    for name, (column, _) in {"MIG": (MIG, ""), **SCORES}.items():
        values = {kind: [row[column + end] for row in scores] for kind, end in (("mean", ""), ("sampled", ".sampled"))}
        found.append({"score": name, "runs": len(runs), **{kind: float(np.mean(v)) for kind, v in values.items()}})
        print(f"{name:26} of means {found[-1]['mean']:.3f}, of samples {found[-1]['sampled']:.3f}", flush=True)
    return found


def main() -> None:
    """Fit the lines, print the comparison and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=Path, nargs="+", default=sorted(RESULTS.glob("study_demystifying*.csv")))
    parser.add_argument("--runs", type=Path, help="folder with runs whose means and samples are scored")
    options = parser.parse_args()
    table = pd.concat([pd.read_csv(path) for path in options.tables], ignore_index=True)
    vaes = table[table["method"].isin(VAES) & table["data"].str.startswith("dsprites")]
    out = RESULTS / "bench_published.json"
    before = json.loads(out.read_text()) if out.exists() else {}
    tables = [path.name for path in options.tables]
    content = {**describe(), "tables": tables, "runs": len(vaes), "related": related(vaes), "units": by_units(vaes),
               "codes": before.get("codes")}  # fmt: skip
    if options.runs:
        content["codes"] = {**describe(), "scores": by_codes(options.runs)}
    write_atomic(out, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
