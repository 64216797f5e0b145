"""The tables of the manipulations (guides/manipulated.md) and of the study on them (guides/manipulated_results.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from generate import ROOT
from generate.markdown import RESULTS, replace_block, result, table, table_per_dataset
from unbraid.analysis.demystifying import VARIANTS, dataset_variant
from unbraid.analysis.plots import display_name
from unbraid.reproduction import OurResult, reproduce
from unbraid.reproduction.demystifying import COLUMNS, published_numbers
from unbraid.scoring.permutation import p_value, stratified_p_value
from unbraid.studies.demystifying import SEEDS

PAGE = ROOT / "docs" / "guides" / "manipulated.md"
RESULTS_PAGE = ROOT / "docs" / "guides" / "manipulated_results.md"
RATES = {"5e-4": "study_demystifying", "5e-5": "study_demystifying_lower"}  # the study at two learning rates
FULL = "demystifying-dsprites"  # how the names of the parts start that have the study's full number of steps
CLIPPED = "study_demystifying_clip"  # two methods at a learning rate of 5e-4 on clipped noise
DATA = ("sprites", "dsprites")
PLANE = "gap of x and y"  # the rotated factors
SCORES = {**{name: COLUMNS[name] for name in ("MIG", "DCI", "FactorVAE", "SAP")}, PLANE: PLANE}
UNITS = "active.units"
WHOLE = "runs with all latents active"
COMPARED = ("p, original vs. modified", "p, modified vs. noise")


def manipulated_pages() -> dict[Path, str]:
    """Return both pages with their current tables."""
    text = replace_block(PAGE.read_text(), "manipulation", table_per_dataset("bench_manipulation", DATA, costs))
    results = RESULTS_PAGE.read_text()
    for name, part in blocks().items():
        results = replace_block(results, name, part)
    return {PAGE: text, RESULTS_PAGE: results}


def blocks() -> dict[str, str]:
    """Return the tables of the study by the names of their blocks."""
    studies = {"study": study_table(RATES["5e-4"]), "lower": study_table(RATES["5e-5"]), "full": full_table()}
    row = {"beta_vae": beta_vae_row()}
    return {
        **studies,
        "every": every(),
        "parts": parts_table(),
        "clip": clipped(),
        "published": published_table(),
        **row,
    }


def full_table() -> str:
    """Return the comparison with the paper at full length, and means and p-values of all runs.

    The second table has the methods that were trained on all variants.
    """
    runs = runs_of(FULL)
    body = []
    for method in runs["method"].unique():
        by = forms(runs, method)
        if len(by) < len(VARIANTS):
            continue
        if counts := whole(by):
            body.append([WHOLE, display_name(method), *counts, "", ""])
        for score, column in SCORES.items():
            body.append([score, display_name(method), *means(by, column), *compared([by], column)])
    every_run = table(["score, all runs", "method", *VARIANTS, *COMPARED], body)
    return "\n\n".join([study_table(FULL), every_run])


def study_table(name: str) -> str:
    """Return our and the paper's means and standard deviations per score and method, and how many agree."""
    found = reproduce("demystifying2021", results_table(name))
    cells = found.table().query("kind == 'value' and runs > 0")
    body = []
    for (column, method), group in cells.groupby([cells["column"], cells["row"].str.split(", ").str[0]], sort=False):
        by_form = {row["row"].split()[-1]: row for _, row in group.iterrows()}
        pairs = [beside(by_form[form]) if form in by_form else "" for form in VARIANTS]
        body.append([column, display_name(method), *pairs])
    head = ["score", "method", *(f"{form}: ours / paper" for form in VARIANTS)]
    return "\n\n".join([table(head, body), found.summary_text()])


def results_table(name: str) -> pd.DataFrame:
    """Return a results table from the benchmarks, or the runs of the evidence if the name is `FULL`."""
    if name != FULL:
        return pd.read_csv(RESULTS / f"{name}.csv")
    evidence = pd.read_csv(ROOT / "evidence" / "results.csv")
    return evidence[evidence["part"].str.startswith(FULL)].reset_index(drop=True)


def runs_of(name: str) -> pd.DataFrame:
    """Return a committed results table, with the form of each run's data and the gap of the rotated factors."""
    runs = results_table(name).assign(variant=lambda t: [dataset_variant(name)[1] for name in t["data"]])
    return runs.assign(**{PLANE: runs[["gaps.x", "gaps.y"]].mean(axis=1)})


def parts() -> dict[tuple[str, str], pd.DataFrame]:
    """Return all runs, grouped by learning rate and by seeds (0-9 and 10-19)."""
    high, low = (runs_of(name) for name in RATES.values())
    first = high["seed"] < SEEDS
    return {("5e-4", "0-9"): high[first], ("5e-4", "10-19"): high[~first], ("5e-5", "0-9"): low}


def forms(runs: pd.DataFrame, method: str) -> dict[str, pd.DataFrame]:
    """Return the runs of a method, grouped by the form of their data (original, modified or noise)."""
    of_it = runs[runs["method"] == method]
    return {form: part for form in VARIANTS if len(part := of_it[of_it["variant"] == form])}


def every() -> str:
    """Return the means of all runs and the p-values in `COMPARED`; runs are permuted within groups only."""
    tables = parts()
    methods = next(iter(tables.values()))["method"].unique()
    found = {m: [by for runs in tables.values() if (by := forms(runs, m))] for m in methods}
    pooled = {m: {form: pd.concat([by[form] for by in strata]) for form in VARIANTS} for m, strata in found.items()}
    body = [[WHOLE, display_name(m), *counts, "", ""] for m, by in pooled.items() if (counts := whole(by))]
    for score, column in SCORES.items():
        for method, strata in found.items():
            body.append([score, display_name(method), *means(pooled[method], column), *compared(strata, column)])
    return table(["score", "method", *VARIANTS, *COMPARED], body)


def parts_table() -> str:
    """Return MIG and DCI of the methods that were trained in every group, one row per group."""
    tables = parts()
    methods = tables["5e-4", "10-19"]["method"].unique()
    body = []
    for score in ("MIG", "DCI"):
        for method in methods:
            for part, runs in tables.items():
                by, column = forms(runs, method), SCORES[score]
                body.append([score, display_name(method), *part, *means(by, column), *compared([by], column)])
    return table(["score", "method", "learning rate", "seeds", *VARIANTS, *COMPARED], body)


def clipped() -> str:
    """Return the means and p-values of reflected and clipped noise at a learning rate of 5e-4, and the paper's."""
    noise, cut = runs_of(RATES["5e-4"]).query("variant == 'noise'"), runs_of(CLIPPED)
    body = []
    for method in cut["method"].unique():
        by = {name: runs[runs["method"] == method] for name, runs in (("reflected", noise), ("clipped", cut))}
        body.append([WHOLE, display_name(method), *whole(by), "", ""])
        for score in ("MIG", "DCI"):
            column = SCORES[score]
            key = (f"{method}, dsprites noise", score)
            theirs = next(cell.value for cell in published_numbers() if (cell.row, cell.column) == key)
            body.append([score, display_name(method), *means(by, column), *compared([by], column), _short(theirs)])
    return table(["score", "method", "reflected", "clipped", "p", "paper, without over-pruned runs"], body)


def beta_vae_row() -> str:
    """Return the scores of beta-VAEs on originals with other trainings, metrics and samples, and the published row."""
    printed = {cell.column: cell for cell in published_numbers() if cell.row == "beta_vae, dsprites original"}
    columns = {name: COLUMNS[name] for name in printed}
    full, fast, slow = (forms(runs_of(name), "beta_vae")["original"] for name in (FULL, *RATES.values()))
    pruned, slowly_pruned = (runs[UNITS] < runs["latents"] for runs in (fast, slow))
    one = pd.DataFrame(result("bench_sample_sizes")["rows"]).set_index("train", drop=False)
    sampled = {column: one.loc[10_000, f"{column}.sampled"] for column in columns.values()}
    rows: dict[str, pd.DataFrame] = {
        "300,000 steps at 1e-4": full,
        "the same runs, DCI with per-tree importances": pd.DataFrame(
            {columns["DCI"]: full["dci.disentanglement_per_tree"]}
        ),
        "50,000 steps at 5e-4, all latents active": fast[~pruned],
        "50,000 steps at 5e-4, over-pruned": fast[pruned],
        "100,000 steps at 5e-5, all latents active": slow[~slowly_pruned],
        "100,000 steps at 5e-5, over-pruned": slow[slowly_pruned],
        "one model, 10,000 training rows": one.loc[[10_000]],
        "the same model, sampled codes": pd.DataFrame([sampled]),
        **{f"the same model, {size:,} training rows": one.loc[[size]] for size in (5_000, 2_000, 1_000)},
    }

    def cell(runs: pd.DataFrame, score: str) -> str:
        ours = OurResult.of(runs[columns[score]]) if columns[score] in runs else None
        return "" if ours is None else f"**{ours.mean:.3f}**" if printed[score].agrees(ours) else f"{ours.mean:.3f}"

    theirs = ["published", "10", *(f"{value.value:.2f} +- {value.spread:.2f}" for value in printed.values())]
    body = [[name, str(len(runs)), *(cell(runs, score) for score in columns)] for name, runs in rows.items()]
    return table(["beta-VAE on originals", "runs", *columns], [theirs, *body])


def means(by: dict[str, pd.DataFrame], column: str) -> list[str]:
    """Return the mean of a score for each form."""
    return [_short(part[column].mean()) for part in by.values()]


def compared(strata: Iterable[dict[str, pd.DataFrame]], column: str) -> list[str]:
    """Return the p-value of each form against the next one; runs are permuted within a stratum only."""
    scores = [[part[column].to_numpy() for part in by.values()] for by in strata]
    pairs = [[(one[i], one[i + 1]) for one in scores] for i in range(len(scores[0]) - 1)]
    found = [p_value(*pair[0]) if len(pair) == 1 else stratified_p_value(pair) for pair in pairs]
    return ["< 0.001" if p < 0.001 else _short(p) for p in found]


def whole(by: dict[str, pd.DataFrame]) -> list[str]:
    """Return how many runs have all latents active, for each form; nothing for methods without a posterior."""
    if any(part[UNITS].isna().any() for part in by.values()):
        return []
    return [f"{(part[UNITS] >= part['latents']).sum()} of {len(part)}" for part in by.values()]


def _short(value: float) -> str:
    return f"{value:.3f}"


def beside(cell: Any) -> str:
    """Return one cell: our value with its number of runs, the paper's, and a mark where they differ."""
    ours = f"{cell['ours']:.2f} +- {cell['ours_spread']:.2f} ({cell['runs']:.0f})"
    mark = " **differ**" if cell["verdict"] == "differ" else ""
    return f"{ours} / {cell['paper']:.2f} +- {cell['paper_spread']:.2f}{mark}"


def published_table() -> str:
    """Return how far each published row is from the regression lines of our runs, in standard deviations."""
    related = result("bench_published")["related"]
    places = sorted(next(iter(related.values()))["off"], key=lambda name: VARIANTS.index(name.split()[-1]))
    names = sorted(places, key=lambda name: name.split(",")[0])

    def cells(name: str) -> Iterator[str]:
        for fit in related.values():
            yield f"{fit['off'][name]:+.1f}" if name in fit["off"] else ""

    body = [[name.replace(", dsprites", ","), *cells(name)] for name in names]
    last = ["*variance explained by the MIG*", *(f"{fit['explained']:.0%}" for fit in related.values())]
    heads = [name.replace("today's", "current") for name in related]
    return table(["published row", *heads], [*body, last])


def _with(bench: dict[str, Any]) -> str:
    """Return the batch size and samples of the new decoders if they differ from those that the manipulation used."""
    batch, samples = bench.get("lesson_batch", bench["batch"]), bench.get("lesson_samples", bench["samples"])
    same = (batch, samples) == (bench["batch"], bench["samples"])
    return "" if same else f" with batches of {batch} and {samples} samples"


def costs(bench: dict[str, Any]) -> str:
    """Return, for each form of the data, the cost of rotated factors and the alignment of the local axes."""
    recipe = bench["recipe"]
    plane = " and ".join(recipe["rotations"][0][0])
    head = (
        f"`{bench['data']}`, with {plane} rotated. m was trained for {bench['steps']:,} steps with batches of "
        f"{bench['batch']} and {bench['samples']} samples, and the new decoders for {bench['lessons']:,} steps"
        f"{_with(bench)}:"
    )
    reaches = next(iter(bench["forms"].values()))["alignment"]
    body = []
    for name, row in bench["forms"].items():
        gap = row["gap"]
        cells = [f"{gap['gap']:.2f} +- {gap['error']:.2f}", f"{gap['log_ratio']:.4f}"]
        for cell in row["alignment"].values():
            cells.append(f"{cell['score']:.3f} ({0.0 - cell['less']:+.3f} +- {cell['error']:.3f})")
        body.append([name, *cells])
    heads = [f"alignment, reach {reach} (change from the original)" for reach in reaches]
    return head + "\n\n" + table(["images", "gap, nats per image", "log ratio of the errors", *heads], body)
