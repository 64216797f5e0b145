"""The tables of PMP in docs/papers: medians of stored runs, and the state of the runs that evidence/ plans."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pandas import DataFrame

from generate import ROOT
from generate.markdown import RESULTS, number, table
from unbraid.analysis.plots import display_name
from unbraid.analysis.pmp import pmp_ablation, pmp_comparison
from unbraid.analysis.results_table import Result, score_name
from unbraid.errors import UserError

sys.path.append(str(ROOT / "evidence"))
PREFIX = "pmp-"  # prefix of the names of those parts of the evidence that train PMP
SPRITES = "study_pmp_sprites"  # the results table of the short training on a CPU


def sprites_medians() -> str:
    """Return the medians of the short training on sprites, and the sentence of the analysis."""
    found = pmp_comparison(pd.read_csv(RESULTS / f"{SPRITES}.csv"))
    return f"{medians(found)}\n\n{found.text}"


def medians(found: Result) -> str:
    """Return the table of `pmp_comparison` or `pmp_ablation`."""
    metrics = [name for name in found.table if name not in ("data", "method", "removed", "runs")]
    rows = [
        [row["data"], display_name(row["method"]), str(row["runs"]), *(number(row[name]) for name in metrics)]
        for _, row in found.table.iterrows()
    ]
    return table(["data", "method", "runs", *map(score_name, metrics)], rows)


def planned_runs() -> DataFrame:
    """Return one row per planned run of PMP: its id, dataset, method with its variant, steps, and the study's steps."""
    import parts

    rows: list[dict[str, Any]] = []
    for part in parts.read_plan().values():
        if part.name.startswith(PREFIX):
            full = {run.index: run.spec.steps for run in parts.all_runs(part.study)}
            for run, identity in zip(part.runs, part.run_ids, strict=True):
                method = f"{run.facts()['method']} ({run.variant})" if run.variant else run.facts()["method"]
                steps = {"steps": run.spec.steps, "full": full[run.index]}
                rows.append({"run": identity, "data": run.spec.data, "method": method, **steps})
    return DataFrame(rows)


def evidence_state(finished: set[str]) -> str:
    """Return one row per dataset and method of the planned runs, with the number of finished runs."""
    rows = []
    keys = ["data", "method", "steps", "full"]
    for (data, method, steps, full), group in planned_runs().groupby(keys, sort=False):
        length = f"{steps:,}" if steps == full else f"{steps:,} of {full:,}"
        done = len(set(group["run"]) & finished)
        rows.append([str(data), display_name(str(method)), length, f"{len(group)}", f"{done}"])
    return table(["data", "method", "steps", "planned runs", "finished runs"], rows)


def evidence_tables(collected: DataFrame) -> str:
    """Return the state of the planned runs, and the medians of those that are among the collected runs."""
    runs = collected[collected["part"].str.startswith(PREFIX)].reset_index(drop=True)
    state = evidence_state(set(runs["run"]))
    if runs.empty:
        return f"{state}\n\n**None of these runs has been trained yet**, so there are no scores to show."
    return "\n\n".join([state, *itertools.chain.from_iterable(answers(runs))])


def answers(runs: DataFrame) -> Iterator[list[str]]:
    """Yield the table and the sentence of each analysis that the runs permit, or the reason why it cannot be done."""
    for analysis in (pmp_comparison, pmp_ablation):
        try:
            found = analysis(runs)
        except UserError as error:
            yield [str(error)]
        else:
            yield [medians(found), found.text]
