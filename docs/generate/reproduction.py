"""The page guides/reproduction_results.md: every published cell, our result and the verdict. README has the count."""

from __future__ import annotations

import fnmatch
import functools
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from generate import ROOT
from generate.markdown import RESULTS, replace_block, result, table
from unbraid.cli.reproduce import format_mean, published_text
from unbraid.reproduction import RULE, TARGETS
from unbraid.reproduction.agreement import Cell, OurResult, PublishedSign, make_cell
from unbraid.reproduction.baselines import CRITIC_REFERENCE, critic_row, published_critic

PAGE = ROOT / "docs" / "guides" / "reproduction_results.md"
EVIDENCE = ROOT / "evidence"
SHORT = {"demystifying2021": "study_demystifying", "locatello2019": "study_dsprites"}  # tables of shorter trainings
CRITIC_RATE, CRITIC_BATCH = 1e-4, 64  # the settings of FactorVAE
SOURCES = {"published": "published", "ours": "on our images"}  # of losses of published models
HEAD = ["source", "cell", "score", "published", "ours", "runs", "steps", "length", "verdict", "note"]


@dataclass(frozen=True)
class Line:
    """One row of the table: a published cell with our result.

    Attributes:
        study: The name of the study.
        reference: The paper.
        cell: The published number or sign, with our result.
        length: "full" if our runs have the known settings of the study, "short" if they are shorter, or "none".
        steps: The numbers of training steps of our runs.
    """

    study: str
    reference: str
    cell: Cell
    length: str
    steps: str = ""

    @property
    def verdict(self) -> str:
        """The verdict: "agree", "differ", "open" or "not trained"."""
        return "not trained" if self.cell.verdict == "missing" else self.cell.verdict

    @property
    def note(self) -> str:
        """The explanation of a difference, or "open", or what is missing."""
        if self.verdict == "differ" and self.length == "full":
            return explanation(self.study, self.cell)
        return self.cell.why or (self.cell.ours.note if self.cell.ours else "")


@functools.cache
def notes() -> list[dict[str, Any]]:
    """Return the explanations of differences in evidence/notes.toml."""
    listed: list[dict[str, Any]] = tomllib.loads((EVIDENCE / "notes.toml").read_text())["note"]
    return listed


def explains(note: dict[str, Any], study: str, cell: Cell) -> bool:
    """Return whether a note is about a cell. Its fields `row` and `column` may have wildcards."""
    published = cell.published
    patterns = (note["row"], published.row), (note["column"], published.column)
    return note["study"] == study and all(fnmatch.fnmatchcase(name, pattern) for pattern, name in patterns)


def explanation(study: str, cell: Cell) -> str:
    """Return the explanation of a difference, or the word "open" if there is none."""
    return next((note["text"] for note in notes() if explains(note, study, cell)), "open")


@functools.cache
def evidence_runs() -> pd.DataFrame:
    """Return the runs of the evidence that have the settings of their study, with the study as a new column."""
    plan = tomllib.loads((EVIDENCE / "plan.toml").read_text())
    runs = pd.read_csv(EVIDENCE / "results.csv")
    parts = {part: entry for part in runs["part"].unique() for entry in plan["part"] if has_name(entry, part)}
    compared = [part for part in parts if parts[part].get("compare", True)]
    runs = runs[runs["part"].isin(compared)]
    return runs.assign(study=[parts[part]["study"] for part in runs["part"]])


def has_name(entry: dict[str, Any], part: str) -> bool:
    """Return whether an entry of the plan, whose name may have words in braces, has a part with this name.

    >>> has_name({"name": "a-{data}", "vary": {"data": ["x_y"]}}, "a-x-y")
    True
    """
    names = [entry["name"]]
    for key, values in entry.get("vary", {}).items():
        names = [name.replace(f"{{{key}}}", value.replace("_", "-")) for name in names for value in values]
    return part in names


def cells_of(study: str, runs: pd.DataFrame) -> dict[tuple[str, str], tuple[Cell, str]]:
    """Return the cells of a study with a result from these runs, and the numbers of their steps."""
    target = TARGETS[study]
    if not len(runs):
        return {}
    chosen = target.select(runs.reset_index(drop=True))
    results = target.ours(chosen) if len(chosen) else {}
    found = {}
    for published in target.published:
        result = results.get((published.row, published.column), "no such runs")
        if isinstance(result, OurResult):
            method = published.row.replace(",", " ").replace(":", " ").split()[0]
            own = chosen[chosen["method"] == method] if method in set(chosen["method"]) else chosen
            steps = ", ".join(f"{value:,}" for value in sorted(set(own["steps"].astype(int))))
            found[published.row, published.column] = (make_cell(published, result), steps)
    return found


def study_lines(study: str) -> Iterator[Line]:
    """Yield one line per published cell of a study: the result at full length, else that of shorter trainings."""
    full, target = evidence_runs(), TARGETS[study]
    long = cells_of(study, full[full["study"] == study])
    short = cells_of(study, pd.read_csv(RESULTS / f"{SHORT[study]}.csv")) if study in SHORT else {}
    for published in target.published:
        key = published.row, published.column
        length, found = ("full", long[key]) if key in long else ("short", short.get(key))
        cell, steps = found or (Cell(published, why="no runs yet"), "")
        yield Line(study, target.reference, cell, length if found else "none", steps)


def critic_lines() -> Iterator[Line]:
    """Yield the total correlations of Gaussians that a critic estimates."""
    path = RESULTS / "bench_critic.json"
    bench = json.loads(path.read_text()) if path.exists() else {"rows": [], "steps": 0}
    ours = {
        critic_row(row["dimensions"], row["rho"]): OurResult.of(row["estimates"])
        for row in bench["rows"]
        if (row["rate"], row["batch"]) == (CRITIC_RATE, CRITIC_BATCH)
    }
    for published in published_critic():
        found = ours.get(published.row)
        length = "full" if found and bench["steps"] >= 2_000 else "short" if found else "none"
        cell = make_cell(published, found or "no runs yet")
        yield Line("critic", CRITIC_REFERENCE, cell, length, f"{bench['steps']:,}" if found else "")


@functools.cache
def lines() -> list[Line]:
    """Return all published cells."""
    return [*(line for study in TARGETS for line in study_lines(study)), *critic_lines()]


def count(length: str, verdict: str) -> int:
    """Return how many cells with a length have a verdict."""
    return sum(line.length == length and line.verdict == verdict for line in lines())


def count_text() -> str:
    """Return the count of cells as sentences."""
    agree, differ = count("full", "agree"), count("full", "differ")
    differing = [line for line in lines() if line.verdict == "differ" and line.length == "full"]
    unexplained = sum(line.note.startswith("open") for line in differing)
    open_signs = sum(line.verdict == "open" for line in lines())
    waiting = sum(line.verdict == "not trained" for line in lines())
    share = f" ({agree / (agree + differ):.0%})" if agree + differ else ""
    short = count("short", "agree"), count("short", "differ")
    return (
        f"Published cells: {len(lines())}. Compared at full length: {agree + differ}. Of these, "
        f"**agree: {agree}{share}, differ: {differ}**. Of the {differ} that differ, {differ - unexplained} agree in "
        "another experiment of ours with different settings, for example with fewer steps, and "
        f"{unexplained} are unexplained. "
        "Signs that are not compared, because the published numbers do not "
        f"determine them: {open_signs}. Cells with results of shorter trainings only, which are not counted above: "
        f"{sum(short)} (agree: {short[0]}, differ: {short[1]}). "
        f"Cells without runs: {waiting}."
    )


def cells_table() -> str:
    """Return the table of all published cells."""
    return table(HEAD, (row(line) for line in lines()))


def row(line: Line) -> list[str]:
    """Return one row of the table."""
    published, ours = line.cell.published, line.cell.ours
    spread = ours.spread if ours else None
    mean = format_mean(ours.mean, spread, 3) if ours else ""
    value = published_text(published)
    if isinstance(published, PublishedSign) and published.value is not None:
        value = f"{'> 0' if published.sign > 0 else '< 0'} ({published.value:.2f})"
    cells = [
        line.reference, published.row, published.column, value, mean, str(ours.count) if ours else "", line.steps,
        line.length, line.verdict, line.note,
    ]  # fmt: skip
    return [cell.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;").replace("+-", "±") for cell in cells]


def weights_text() -> str:
    """Return the losses of published models on our images, beside the published losses."""
    bench = result("bench_published_weights")
    terms = {"reconstruction": "reconstruction", "kl": "KL"}
    body = [
        [row["model"], *(f"{row[source][term]:.2f}" for term in terms for source in SOURCES)] for row in bench["models"]
    ]
    heads = ["model", *(f"{title}, {where}" for title in terms.values() for where in SOURCES.values())]
    largest = [max(abs(row["ours"][t] / row["published"][t] - 1) for row in bench["models"]) for t in terms]
    return (
        "The table has the published losses of the last epoch of training, and the losses of the published weights on "
        f"{bench['samples']:,} images of `{bench['data']}`, in nats per image "
        f"(`benchmarks/bench_published_weights.py`).\n\n{table(heads, body)}\n\n"
        f"The largest relative differences are {largest[0]:.1%} of the reconstruction and {largest[1]:.1%} of the KL."
    )


def reproduction_pages() -> dict[Path, str]:
    """Return the page with its current count, rule and tables."""
    text = PAGE.read_text()
    blocks = {"count": count_text(), "rule": RULE, "weights": weights_text(), "cells": cells_table()}
    for name, content in blocks.items():
        text = replace_block(text, name, content)
    return {PAGE: text}
