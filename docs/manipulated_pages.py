"""The table in docs/manipulated.md, from what benchmarks/bench_manipulation.py measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_pages import filled, tables_of
from metric_pages import ROOT, rows

PAGE = ROOT / "docs" / "manipulated.md"
SETS = ("sprites", "dsprites")


def manipulated_pages() -> dict[Path, str]:
    """The page with a table a dataset that was measured."""
    return {PAGE: filled(PAGE.read_text(), "manipulation", tables_of("bench_manipulation", SETS, table))}


def table(bench: dict[str, Any]) -> str:
    """A row a form of the data: what rotated factors cost, and how well local axes agree with the factors."""
    recipe = bench["recipe"]
    plane = " and ".join(recipe["rotations"][0][0])
    head = (
        f"`{bench['data']}`, {plane} rotated, {bench['steps']:,} steps of m with batches of {bench['batch']} and "
        f"{bench['samples']} samples; {bench['lessons']:,} steps of the new decoders:"
    )
    reaches = next(iter(bench["forms"].values()))["alignment"]
    body = []
    for name, row in bench["forms"].items():
        gap = row["gap"]
        cells = [f"{gap['gap']:.2f} +- {gap['error']:.2f}", f"{gap['log_ratio']:.4f}"]
        for cell in row["alignment"].values():
            cells.append(f"{cell['score']:.3f} ({-cell['less']:+.3f} +- {cell['error']:.3f})")
        body.append([name, *cells])
    heads = [f"alignment, reach {reach} (against the original)" for reach in reaches]
    return head + "\n\n" + rows(["images", "gap, nats an image", "log ratio of the errors", *heads], body)
