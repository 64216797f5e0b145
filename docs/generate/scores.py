"""The tables of guides/scores_results.md: scores with both ways to draw rows, and scores of continuous factors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from generate import ROOT
from generate.markdown import number, replace_block, result, table

PAGE = ROOT / "docs" / "guides" / "scores_results.md"
DATA = ("sprites", "cars3d", "dsprites")


def score_result_pages() -> dict[Path, str]:
    """Return the page with its current tables."""
    text = replace_block(PAGE.read_text(), "draws", "\n\n".join(draws_table(name) for name in DATA))
    return {PAGE: replace_block(text, "continuous", continuous_table())}


def score_name(column: str) -> str:
    """Return the name of a score with a link to the page of its metric."""
    metric, _, key = column.partition(".")
    return f"[{metric}](../metrics/{metric}.md) `{key}`"


def draws_table(name: str) -> str:
    """Return the scores of trained runs and of noise on one dataset, with both ways to draw rows."""
    bench = result(f"bench_draws_{name}")
    intro = (
        f"**{name}**: {bench['seeds']} beta-VAEs (beta 2) after {bench['steps']:,} steps, and noise with as many "
        f"latents (commit `{bench['commit'][:12]}`)."
    )
    body = [[score_name(column), *draws_cells(bench, column)] for column in bench["disjoint"]["runs"]]
    return f"{intro}\n\n" + table(
        ["score", "runs: reference", "runs: disjoint", "noise: reference", "noise: disjoint"], body
    )


def draws_cells(bench: dict[str, Any], column: str) -> list[str]:
    """Return one score of the runs and of noise, first with reference draws and then with disjoint ones."""
    return [number(bench[draws][kind][column]) for kind in ("runs", "noise") for draws in ("reference", "disjoint")]


def continuous_table() -> str:
    """Return the scores of factors with m values and of the continuous factors."""
    scores = result("bench_continuous")["scores"]
    body = [[score_name(column), *(number(values[column]) for values in scores.values())] for column in scores["2"]]
    return table(["score", *(f"{m} values" if m.isdigit() else m for m in scores)], body)
