"""The tables in docs/manipulated.md: manipulations before any VAE sees them, and a study beside the published one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from gpu_pages import filled, tables_of
from metric_pages import ROOT, result, rows

from unbraid.analysis.demystifying import VARIANTS, method_name, permutation, variant
from unbraid.reproduction import reproduce
from unbraid.reproduction.demystifying import COLUMNS

PAGE = ROOT / "docs" / "manipulated.md"
STUDY = ROOT / "benchmarks" / "results" / "study_demystifying.csv"
SETS = ("sprites", "dsprites")
PLANE = "gap of x and y"  # the rotated factors
EVERY = "The same with the runs that were discarded, ours alone:"


def manipulated_pages() -> dict[Path, str]:
    """The page with a table a dataset that was measured, the study's, and what published rows are off by."""
    text = filled(PAGE.read_text(), "manipulation", tables_of("bench_manipulation", SETS, table))
    return {PAGE: filled(filled(text, "study", study_table()), "published", published_table())}


def study_table() -> str:
    """Ours and the paper's means and standard deviations, a row a score and method, and what came of the comparison."""
    found = reproduce("demystifying2021", pd.read_csv(STUDY))
    cells = found.table().query("kind == 'value' and runs > 0")
    body = []
    for (column, method), group in cells.groupby([cells["column"], cells["row"].str.split(", ").str[0]], sort=False):
        by_form = {row["row"].split()[-1]: row for _, row in group.iterrows()}
        pairs = [_beside(by_form[form]) for form in VARIANTS if form in by_form]
        body.append([column, method_name(method), *pairs])
    head = ["score", "method", *(f"{form}: ours / paper" for form in VARIANTS)]
    more = rows(["score", "method", *VARIANTS, "p, modified against noise"], every())
    return "\n\n".join([rows(head, body), found.said(), EVERY, more])


def every() -> list[list[str]]:
    """Means and standard deviations of ours with over-pruned runs, and the p of a permutation test."""
    table = pd.read_csv(STUDY).assign(variant=lambda t: [variant(name)[1] for name in t["data"]])
    table[PLANE] = table[["gaps.x", "gaps.y"]].mean(axis=1)
    body = []
    for label, column in {"MIG": COLUMNS["MIG"], "DCI": COLUMNS["DCI"], PLANE: PLANE}.items():
        for method in table["method"].unique():
            scores = {form: part[column] for form, part in table[table["method"] == method].groupby("variant")}
            cells = [f"{scores[form].mean():.3f} +- {scores[form].std():.3f}".replace("0.", ".") for form in VARIANTS]
            p = permutation(scores["modified"].to_numpy(), scores["noise"].to_numpy())
            body.append([label, method_name(method), *cells, f"{p:.3f}".replace("0.", ".")])
    return body


def _beside(cell: Any) -> str:
    """One cell: ours, the paper's, how many runs were discarded, and a mark where they differ."""
    ours = f"{cell['ours']:.2f} +- {cell['ours_spread']:.2f} ({cell['runs']:.0f})"
    mark = " **differ**" if cell["verdict"] == "differ" else ""
    return f"{ours} / {cell['paper']:.2f} +- {cell['paper_spread']:.2f}{mark}".replace("0.", ".")


def published_table() -> str:
    """How far every published row is off the lines of our runs, in standard deviations about them."""
    related = result("bench_published")["related"]
    places = sorted(next(iter(related.values()))["off"], key=lambda name: VARIANTS.index(name.split()[-1]))
    names = sorted(places, key=lambda name: name.split(",")[0])

    def cells(name: str) -> Iterator[str]:
        for fit in related.values():
            yield f"{fit['off'][name]:+.1f}" if name in fit["off"] else ""

    body = [[name.replace(", dsprites", ","), *cells(name)] for name in names]
    last = ["*variance explained by the MIG*", *(f"{fit['explained']:.0%}" for fit in related.values())]
    return rows(["published row", *related], [*body, last])


def _with(bench: dict[str, Any]) -> str:
    """The batches of the new decoders, where they are not those of the manipulation."""
    batch, samples = bench.get("lesson_batch", bench["batch"]), bench.get("lesson_samples", bench["samples"])
    same = (batch, samples) == (bench["batch"], bench["samples"])
    return "" if same else f" with batches of {batch} and {samples} samples"


def table(bench: dict[str, Any]) -> str:
    """A row a form of the data: what rotated factors cost, and how well local axes agree with the factors."""
    recipe = bench["recipe"]
    plane = " and ".join(recipe["rotations"][0][0])
    head = (
        f"`{bench['data']}`, {plane} rotated, {bench['steps']:,} steps of m with batches of {bench['batch']} and "
        f"{bench['samples']} samples; {bench['lessons']:,} steps of the new decoders{_with(bench)}:"
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
