"""What a report says, as plain data: scores with their ceilings and floors, curves, and details of the best runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError, unknown_name
from unbraid.metrics import METRICS, TRAITS, headline
from unbraid.metrics.bounds import bounds
from unbraid.pictures.examples import example_images, is_drawable
from unbraid.pictures.images import to_image
from unbraid.reporting.detail import Examples, run_detail
from unbraid.reporting.images import data_url, figure_picture, png_bytes
from unbraid.reporting.program import decoder_program
from unbraid.reporting.truth import renderer_spec
from unbraid.runs.folder import RunFolder
from unbraid.runs.results import latest_scores
from unbraid.runs.run import Run
from unbraid.runtime import provenance
from unbraid.runtime.progress import Report, progress
from unbraid.runtime.progress import no_report
from unbraid.scoring.score import load_datasets, score, study_protocol
from unbraid.version import __version__

REPORTED = ("mig", "dci", "factor_vae", "sap", "modularity", "unsupervised")
MOST_RUNS = 500  # runs in the table, the best ones
MOST_CURVES = 24  # runs whose training is drawn
CURVE_POINTS = 80  # of a curve
START_EXAMPLES = 12  # examples one may start from
MOST_WEIGHT_BYTES = 900_000  # bytes of weights that fit a page, 1.2 MB as text


@dataclass(frozen=True)
class Content:
    """The page's data and the weights of the decoders in it, by run."""

    facts: dict[str, Any]
    weights: dict[str, bytes] = field(default_factory=dict)


def report_content(
    runs: Sequence[Run],
    title: str,
    *,
    metrics: Iterable[str] = REPORTED,
    rank: str | None = None,
    best: int = 4,
    scoring: bool = True,
    study: Path | None = None,
    quiet: bool = False,
    embed: bool = True,
) -> Content:
    """Scores of all runs, curves of some, and of the `best` by the headline of `rank` what they have learned."""
    sources = load_datasets(runs, quiet=quiet)
    able = [run for run in runs if run.divergence is None]
    scores, notes = read_and_compute_scores(able, sources, list(metrics), scoring, quiet)
    columns = metrics_with_scores(scores)
    names = short_labels(runs)
    ordered = rank_runs(able, scores, rank or next(iter(columns), None))
    facts: dict[str, Any] = {
        "title": title,
        "made": {"version": __version__, "commit": provenance.commit()},
        "metrics": [metric_column(name) for name in columns],
        "rank": rank or next(iter(columns), None),
        "bounds": {name: ceilings_and_floors(source, runs, list(columns)) for name, source in sources.items()},
        "data": {name: describe_data(source) for name, source in sources.items()},
        "runs": [run_row(run, scores.get(run.id, {}), names[run.id]) for run in ordered[:MOST_RUNS]],
        "diverged": [{"label": names[one.id], **one.divergence} for one in runs if one.divergence],
        "analyses": study_analyses(study) if study is not None else [],
        "left_out": len(able) - len(ordered[:MOST_RUNS]),
    }
    weights: dict[str, bytes] = {}
    with progress("looking at runs", max(best, 1)) as report:
        tell: Report = no_report if quiet else report
        entries = {entry["id"]: entry for entry in facts["runs"]}
        for i, run in enumerate(best_of_each_dataset(ordered[:MOST_RUNS])[:best]):
            tell(i, run.label)
            add_detail(entries[run.id], run, sources[run.spec.data], weights if embed else None)
    for run, entry in list(zip(ordered, facts["runs"], strict=False))[:MOST_CURVES]:
        entry["curves"] = training_curves(run)
    return Content({**facts, "notes": notes}, weights)


def read_and_compute_scores(
    runs: Sequence[Run], sources: dict[str, FactorData], metrics: list[str], scoring: bool, quiet: bool
) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Every score kept in a run's folder and, if wanted, those of `metrics` that are missing; and why some are not."""
    for name in metrics:
        if name not in METRICS:
            raise UserError(unknown_name("metric", name, METRICS))
    found: dict[str, dict[str, float]] = {}
    notes = []
    for name, source in sources.items():
        group = [run for run in runs if run.spec.data == name]
        wanted = metrics if source.names else [metric for metric in metrics if metric == "unsupervised"]
        if scoring and group and wanted:
            rows, refused = _score(group, wanted, quiet)
            notes += [f"{metric} has no score on {name}: {reason}" for metric, reason in refused.items()]
            found |= {one["run"]: {k: v for k, v in one.items() if "." in k} for one in rows}
        for run in group:
            kept = latest_scores(RunFolder(run.path, run.spec)) if run.path is not None else {}
            found[run.id] = {**kept, **found.get(run.id, {})}
    return found, notes


def _score(runs: Sequence[Run], metrics: list[str], quiet: bool) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """A row a run with all metrics that take the data, and why the others do not."""
    try:
        return _rows(runs, metrics, quiet), {}
    except ValueError:
        refused = {}
    for metric in metrics:
        try:
            _rows(runs, [metric], quiet)
        except ValueError as reason:
            refused[metric] = str(reason)
    left = [metric for metric in metrics if metric not in refused]
    return (_rows(runs, left, quiet) if left else []), refused


def _rows(runs: Sequence[Run], metrics: list[str], quiet: bool) -> list[dict[str, Any]]:
    """Scores of the codes that each method has first."""
    kinds = dict.fromkeys(run.spec.method.code_kinds[0] for run in runs)
    groups = {kind: [run for run in runs if run.spec.method.code_kinds[0] == kind] for kind in kinds}
    return [row for kind, group in groups.items() for row in score(group, metrics, codes=[kind], quiet=quiet)]


def metrics_with_scores(scores: dict[str, dict[str, float]]) -> list[str]:
    """The metrics that some run has a score of, in the order of the registry, those of the report first."""
    order = [*REPORTED, *(name for name in METRICS if name not in REPORTED)]
    return [name for name in order if any(headline(name) in one for one in scores.values())]


def rank_runs(runs: Sequence[Run], scores: dict[str, dict[str, float]], rank: str | None) -> list[Run]:
    """Best first by one metric; runs without it last, in their own order."""
    if rank is None:
        return list(runs)
    if rank not in METRICS:
        raise UserError(unknown_name("metric", rank, METRICS))
    sign = 1.0 if TRAITS[rank].low_is_good else -1.0

    def place(run: Run) -> tuple[bool, float]:
        value = scores.get(run.id, {}).get(headline(rank), math.nan)
        return not math.isfinite(value), sign * value if math.isfinite(value) else 0.0

    return sorted(runs, key=place)


def best_of_each_dataset(ordered: Sequence[Run]) -> list[Run]:
    """The best run of every dataset, then the second best of each, and so on."""
    place: dict[str, int] = {}
    numbered = []
    for run in ordered:
        place[run.spec.data] = place.get(run.spec.data, -1) + 1
        numbered.append((place[run.spec.data], run))
    return [run for _, run in sorted(numbered, key=lambda pair: pair[0])]


def metric_column(metric: str) -> dict[str, Any]:
    """A column of the score table."""
    first = (METRICS[metric].__doc__ or "").strip().splitlines()[0]
    title = {"unsupervised": "total correlation"}.get(metric, metric.replace("_", " "))
    return {
        "name": metric,
        "column": headline(metric),
        "title": title,
        "help": first,
        "low": TRAITS[metric].low_is_good,
    }


def ceilings_and_floors(data: FactorData, runs: Sequence[Run], metrics: list[str]) -> dict[str, dict[str, float]]:
    """What a perfect code and noise score on the data: every headline's ceiling and floor."""
    if not data.names or not metrics or not data.gridded:
        return {}
    d = max(run.spec.latents for run in runs)
    protocol = study_protocol(runs[0])
    found = bounds(protocol.rows_with_zero_codes(data.sizes, d), metrics, draws=protocol.draws)
    return {
        kind: {headline(name): values[TRAITS[name].headline] for name, values in of.items() if values}
        for kind, of in found.items()
    }


def describe_data(data: FactorData) -> dict[str, Any]:
    """A dataset: factors, examples to start from, and what the page needs to draw it itself."""
    examples = Examples.of(data, START_EXAMPLES)
    pictures: list[str | None] = [None] * len(examples.index)
    if is_drawable(data):
        pictures = [data_url(png_bytes(to_image(image))) for image in example_images(data, examples.index)]
    return {
        "names": list(data.names),
        "sizes": list(data.sizes) if data.gridded else [],
        "shape": list(data.shape),
        "size": len(data),
        "drawable": is_drawable(data),
        "truth": renderer_spec(data),
        "examples": [
            {"index": int(i), "factors": values, "image": picture}
            for i, values, picture in zip(
                examples.index, data.factors(examples.index).tolist() if data.names else [[]] * len(pictures), pictures,
                strict=True,
            )
        ],
    }  # fmt: skip


def short_labels(runs: Sequence[Run]) -> dict[str, str]:
    """Names of runs, by id: the method, its strength, and settings that tell runs on the same data apart."""
    flat = {run.id: run.spec.flat() for run in runs}
    swept = {one.spec.flat()["method"]: one.spec.method.swept_field() for one in runs}
    names = {}
    for method in dict.fromkeys(one["method"] for one in flat.values()):
        members = {name: one for name, one in flat.items() if one["method"] == method}
        keys = _telling(list(members.values()), swept[method])
        for name, one in members.items():
            told = [f"{key}={one[key]:g}" if isinstance(one[key], float) else f"{key}={one[key]}" for key in keys]
            names[name] = " ".join(["untrained" if one["steps"] == 0 else method, *told])
    return names


def _telling(rows: Sequence[dict[str, Any]], strength: str | None) -> list[str]:
    """The strength, and each further setting that runs alike in data and the settings before it differ in."""
    kept = [strength] if strength is not None else []
    for key in rows[0]:
        groups: dict[str, set[str]] = {}
        for one in rows:
            groups.setdefault(str([one["data"], *(one[k] for k in kept)]), set()).add(str(one.get(key)))
        if any(len(values) > 1 for values in groups.values()):
            kept.append(key)
    return kept


def run_row(run: Run, scores: dict[str, float], label: str) -> dict[str, Any]:
    """A run's line in the table."""
    settings = run.spec.flat()
    finite = {k: v for k, v in scores.items() if isinstance(v, int | float) and math.isfinite(v)}
    return {
        "id": run.id,
        "label": label,
        "method": settings.pop("method"),
        "settings": settings,
        "data": run.spec.data,
        "latents": run.spec.latents,
        "scores": {k: finite[k] for k in (headline(name) for name in METRICS) if k in finite},
    }


def training_curves(run: Run) -> dict[str, list[float | None]]:
    """The logged terms at about `CURVE_POINTS` steps."""
    if not run.log:
        return {}
    rows = [run.log[i] for i in np.unique(np.linspace(0, len(run.log) - 1, CURVE_POINTS).round().astype(int))]
    terms = dict.fromkeys(key for one in rows for key in one)
    return {key: [_finite(one.get(key)) for one in rows] for key in terms}


def _finite(value: Any) -> float | None:
    return float(f"{value:.5g}") if isinstance(value, int | float) and math.isfinite(value) else None


def add_detail(entry: dict[str, Any], run: Run, data: FactorData, weights: dict[str, bytes] | None) -> None:
    """What the run has learned and, where it fits, its decoder; the reason where it does not."""
    entry["detail"] = run_detail(run, data, Examples.of(data, START_EXAMPLES))
    entry["decoder"] = None
    if run.net.decoder is None:
        entry["why"] = "This method trains an encoder only: there is nothing to decode codes with."
    elif weights is None:
        entry["decoder"] = {"latents": run.spec.latents, "shape": picture_shape(data)}
    else:
        try:
            made = decoder_program(run.net, data.shape, run.spec.latents)
            if len(made.weights) > MOST_WEIGHT_BYTES:
                size = f"{len(made.weights) / 1e6:.1f} MB"
                raise UserError(f"The decoder has {size} of weights, more than a page holds.")
            entry["decoder"], weights[run.id] = made.spec, made.weights
        except UserError as reason:
            entry["why"] = f"{reason} Move its latents with: unbraid explore {run.path or 'FOLDER'}"


def picture_shape(data: FactorData) -> list[int]:
    """The shape of an example as it is shown: meshes as pictures of them."""
    shown = example_images(data, torch.zeros(1, dtype=torch.long))[0] if is_drawable(data) else None
    return list(data.shape if shown is None else shown.shape)


def study_analyses(folder: Path) -> list[dict[str, Any]]:
    """Every question the results table of a study can answer, with its figure, and why the others are not answered."""
    from unbraid.analysis import ANALYSES
    from unbraid.runs.results import load_results

    table, found = load_results(folder), []
    for name, analysis in ANALYSES.items():
        try:
            result = analysis.run(table)
        except UserError as reason:
            answer: dict[str, Any] = {"reason": " ".join(str(reason).split())}
        else:
            picture = figure_picture(result.figure, f"{analysis.question} {result.text}")
            answer = {"text": result.text, "figure": picture}
        found.append({"name": name, "question": analysis.question, **answer})
    return found
