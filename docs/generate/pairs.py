"""The comparison in docs/guides/pairs_and_spaces.md, measured by benchmarks/bench_pairs.py."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from generate import ROOT
from generate.markdown import replace_block, table, table_per_dataset

PAGE = ROOT / "docs" / "guides" / "pairs_and_spaces.md"
METRICS = {"mig": "MIG", "dci": "DCI", "factor_vae": "FactorVAE", "sap": "SAP"}
DATA = ("dsprites", "cars3d")


def pair_pages() -> dict[Path, str]:
    """Return the page with its current tables."""
    return {PAGE: replace_block(PAGE.read_text(), "pairs", table_per_dataset("bench_pairs", DATA, medians))}


def medians(bench: dict[str, Any]) -> str:
    """Return the medians over seeds, with the best value of each column in bold."""
    lines = [
        (name, kind, {metric: statistics.median(scores[metric]) for metric in METRICS})
        for name, row in bench["methods"].items()
        for kind, scores in row["scores"].items()
    ]
    best = {metric: max(values[metric] for _, _, values in lines) for metric in METRICS}
    body = [
        [f"`{name}`", kind, *(f"**{v:.3f}**" if v == best[metric] else f"{v:.3f}" for metric, v in values.items())]
        for name, kind, values in lines
    ]
    seconds = sum(row["training_seconds"] + row["scoring_seconds"] for row in bench["methods"].values())
    head = (
        f"**{bench['data']}**: medians over {bench['seeds']} seeds after {bench['steps']:,} steps with a learning rate "
        f"of {bench['learning_rate']:g}. Training and scoring took {seconds / 60:.0f} minutes in total on one "
        f"{bench['machine']['devices'][0]}."
    )
    return head + "\n\n" + table(["method", "code", *METRICS.values()], body)
