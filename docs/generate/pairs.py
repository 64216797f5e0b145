"""The tables of docs/guides/pairs_and_spaces.md, measured by benchmarks/bench_recovery.py and bench_pairs.py."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from generate import ROOT
from generate.markdown import replace_block, result, table, table_per_dataset

PAGE = ROOT / "docs" / "guides" / "pairs_and_spaces.md"
METRICS = {"mig": "MIG", "dci": "DCI", "factor_vae": "FactorVAE", "sap": "SAP"}
DATA = ("dsprites", "cars3d")

Row = Mapping[str, Any]
STEP = "longest step between the codes of neighbouring angles, divided by the average step (1 is best)"
FOLD = "largest difference between the angles of neighbouring codes, in radians (0 is best)"


class Recovered(NamedTuple):
    """One row of the table of recovered factors.

    Attributes:
        task: The method and its task.
        measure: What is measured.
        baseline: The name of the baseline.
        part: The part of the result, or the contest in its part "pairs".
        field: The field that tells the method from its baseline.
        before: The value of the field for the baseline.
        after: The value of the field for the method.
        read: Reads the measure from a row of the result.
        digits: The number of decimals.
    """

    task: str
    measure: str
    baseline: str
    part: str
    field: str
    before: object
    after: object
    read: Callable[[Row], float]
    digits: int


RECOVERED: Sequence[Recovered] = [Recovered(*row) for row in (
    ("PCL, five sources of a time series", "MCC", "untrained", "pcl", "when", "before", "after",
     lambda row: row["mcc"], 2),
    ("PMP, a curved product (a nonlinear embedding of three factors)", "MCC of subspaces", "PMP without its losses",
     "pmp", "losses", False, True, lambda row: row["components"]["mcc"], 2),
    ("the same", "MCC of the coordinates of the sum", "the same", "pmp", "losses", False, True,
     lambda row: row["sum"]["mcc"], 2),
    ("Diffusion VAE on a circle, a rotating shape", STEP, "VAE with one latent", "circle", "space", "line", "circle",
     lambda row: row["unevenness"], 1),
    ("the same", FOLD, "the same", "circle", "space", "line", "circle", lambda row: row["folding"], 2),
    ("Ada-GVAE, sprites, `pairs`", "DCI", "beta-VAE", "few factors change", "method", "beta_vae", "ada_gvae",
     lambda row: row["dci"], 2),
    ("the same", "MIG", "beta-VAE", "few factors change", "method", "beta_vae", "ada_gvae",
     lambda row: row["mig"], 2),
    ("SlowVAE, sprites, `laplace`", "DCI", "beta-VAE", "factors move a little", "method", "beta_vae", "slow_vae",
     lambda row: row["dci"], 2),
    ("the same", "MIG", "beta-VAE", "factors move a little", "method", "beta_vae", "slow_vae",
     lambda row: row["mig"], 2),
)]  # fmt: skip


def pair_pages() -> dict[Path, str]:
    """Return the page with its current tables."""
    text = replace_block(PAGE.read_text(), "recovery", recovery_table())
    return {PAGE: replace_block(text, "pairs", table_per_dataset("bench_pairs", DATA, medians))}


def recovery_table() -> str:
    """Return how well factors are recovered: the median and the value of each seed, and a sentence on the circle."""
    bench = result("bench_recovery")
    body = []
    for line in RECOVERED:
        rows = bench.get(line.part) or [row for row in bench["pairs"] if row["contest"] == line.part]
        cells = []
        for value in (line.before, line.after):
            values = [line.read(row) for row in rows if row[line.field] == value]
            each = " ".join(f"{one:.{line.digits}f}" for one in values)
            cells.append(f"{statistics.median(values):.{line.digits}f} ({each})")
        body.append([line.task, line.measure, f"{line.baseline}: {cells[0]}", cells[1]])
    head = ["method and task", "measure", "baseline: median (each seed)", "the method: median (each seed)"]
    lowest = min(row["correlation"] for row in bench["circle"] if row["space"] == "circle")
    angles = (
        f"On the circle, the angles of the codes have a correlation of at least {int(1000 * lowest) / 1000:.3f} with"
    )
    return f"{table(head, body)}\n\n{angles} the angles of the shape."


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
