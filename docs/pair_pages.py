"""The comparison in docs/pairs_and_spaces.md, from what benchmarks/bench_pairs.py measured."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from gpu_pages import filled, tables_of
from metric_pages import ROOT, rows

PAGE = ROOT / "docs" / "pairs_and_spaces.md"
METRICS = {"mig": "MIG", "dci": "DCI", "factor_vae": "FactorVAE", "sap": "SAP"}
SETS = ("dsprites", "cars3d")


def pair_pages() -> dict[Path, str]:
    """The page with its table made anew."""
    return {PAGE: filled(PAGE.read_text(), "pairs", tables_of("bench_pairs", SETS, table))}


def table(bench: dict[str, Any]) -> str:
    """Medians over seeds, the best of every column in bold."""
    lines = [
        (name, kind, {metric: statistics.median(scores[metric]) for metric in METRICS})
        for name, row in bench["methods"].items()
        for kind, scores in row["scores"].items()
    ]
    best = {metric: max(medians[metric] for _, _, medians in lines) for metric in METRICS}
    body = [
        [f"`{name}`", kind, *(f"**{v:.3f}**" if v == best[metric] else f"{v:.3f}" for metric, v in medians.items())]
        for name, kind, medians in lines
    ]
    seconds = sum(row["training_seconds"] + row["scoring_seconds"] for row in bench["methods"].values())
    head = (
        f"**{bench['data']}**, {bench['seeds']} seeds, {bench['steps']:,} steps, learning rate "
        f"{bench['learning_rate']:g}, medians ({seconds / 60:.0f} minutes in all on one "
        f"{bench['machine']['devices'][0]}):"
    )
    return head + "\n\n" + rows(["method", "code", *METRICS.values()], body)
