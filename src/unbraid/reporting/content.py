"""The data of a report page: the table of runs, training curves, datasets, and details of the best runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from unbraid.data.dataset import FactorData
from unbraid.data.loading import DataLike
from unbraid.errors import UserError
from unbraid.metrics.protocol import resolve_metric_names
from unbraid.pictures.examples import example_images, is_drawable
from unbraid.pictures.images import to_image
from unbraid.reporting.bounds_table import ceilings_and_floors, number_protocols, run_protocols, sample_notes
from unbraid.reporting.curves import training_curves
from unbraid.reporting.detail import Examples, run_detail
from unbraid.reporting.images import Picture, figure_picture
from unbraid.reporting.program import decoder_program
from unbraid.reporting.runs_table import (
    REPORT_METRICS,
    best_of_each_dataset,
    metric_column,
    metrics_with_scores,
    rank_runs,
    read_and_compute_scores,
    run_row,
    short_labels,
)
from unbraid.reporting.truth import renderer_spec
from unbraid.runs.collapse import collapse_notes
from unbraid.runs.results_update import updated_results
from unbraid.runs.run import Run
from unbraid.runs.same_model import same_model_notes
from unbraid.runtime import provenance
from unbraid.runtime.progress import progress
from unbraid.scoring.score import load_datasets
from unbraid.version import __version__

MAX_RUNS = 500  # maximum number of runs in the table
MAX_CURVES = 36  # maximum number of training curves, which is the number of line styles in page.js
START_EXAMPLES = 12  # number of examples from which the sliders can start
MAX_WEIGHT_BYTES = 900_000  # maximum size of a decoder's weights on a page (1.2 MB after base64 encoding)


@dataclass(frozen=True)
class Content:
    """The data of a page.

    Attributes:
        facts: The data that the page reads as JSON, except that pictures are not encoded yet (see `images.Picture`).
        weights: The weights of the decoders that the page runs, by the id of the run.
    """

    facts: dict[str, Any]
    weights: dict[str, bytes] = field(default_factory=dict)


def report_content(
    runs: Sequence[Run],
    title: str,
    *,
    metrics: str | Iterable[str] = REPORT_METRICS,
    rank: str | None = None,
    best: int = 4,
    scoring: bool = True,
    study: Path | None = None,
    quiet: bool = False,
    embed: bool = True,
    data: DataLike | None = None,
) -> Content:
    """Collect the data of a page.

    Args:
        runs: The runs on the page.
        title: The title of the page.
        metrics: Metrics whose missing scores are computed.
        rank: The metric by which runs are ranked. None selects the first metric that any run has a score for.
        best: Number of runs that are shown in detail.
        scoring: Whether to compute missing scores.
        study: The folder of a study whose analyses are shown, or None.
        quiet: If True, do not show progress.
        embed: Whether the page contains the decoders. Otherwise a server runs them.
        data: The dataset of all runs. By default, the dataset of each run is loaded by its name.
    """
    datasets = load_datasets(runs, data, quiet)
    trained = [run for run in runs if run.divergence is None]
    with updated_results(trained):
        scores, notes = read_and_compute_scores(trained, datasets, resolve_metric_names(metrics), scoring, quiet)
    columns, labels = metrics_with_scores(scores), short_labels(runs)
    rank = rank or next(iter(columns), None)
    ranked = rank_runs(trained, scores, rank)
    protocols, numbers = run_protocols(trained), number_protocols(trained)
    if len(numbers) > 1:
        labels |= {run.id: f"{labels[run.id]}, {protocols[run.id].draws} draws" for run in trained}
    listed, curves = ranked[:MAX_RUNS], training_curves(ranked, labels)
    facts: dict[str, Any] = {
        "title": title,
        "made": {"version": __version__, "commit": provenance.git_commit()},
        "metrics": [metric_column(name) for name in columns],
        "rank": rank,
        "bounds": {
            name: ceilings_and_floors(data, [run for run in trained if run.spec.data == name], columns, numbers)
            for name, data in datasets.items()
        },
        "data": {name: describe_data(data) for name, data in datasets.items()},
        "runs": [run_row(run, scores.get(run.id, {}), labels[run.id], numbers[protocols[run.id]]) for run in listed],
        "diverged": [{"label": labels[run.id], **run.divergence} for run in runs if run.divergence],
        "analyses": study_analyses(study) if study is not None else [],
        "left_out": len(trained) - len(listed),
        "curves": curves[:MAX_CURVES],
        "curves_left_out": len(curves[MAX_CURVES:]),
        "notes": [
            *(sample_notes(datasets, trained) if columns else []),
            *notes,
            *collapse_notes(trained),
            *same_model_notes(trained),
        ],
    }
    weights: dict[str, bytes] = {}
    rows = {row["id"]: row for row in facts["runs"]}
    with progress("describing runs", max(best, 1), quiet) as report_progress:
        for i, run in enumerate(best_of_each_dataset(listed)[:best]):
            report_progress(i, run.label)
            add_detail(rows[run.id], run, datasets[run.spec.data], weights if embed else None)
    return Content(facts, weights)


def describe_data(data: FactorData) -> dict[str, Any]:
    """Describe a dataset: its factors, some examples, and what the page needs to render its images."""
    examples = Examples.choose(data, START_EXAMPLES)
    pictures: list[Picture | None] = [None] * len(examples.index)
    if is_drawable(data):
        pictures = [Picture(to_image(image)) for image in example_images(data, examples.index)]
    factors = [_factor_texts(data, row) for row in data.factor_values(examples.index).tolist()]
    return {
        "names": list(data.names),
        "sizes": list(data.sizes) if data.gridded else [],
        "continuous": list(data.continuous),
        "missing": data.missing_labels,
        "shape": list(data.shape),
        "size": len(data),
        "drawable": is_drawable(data),
        "truth": renderer_spec(data),
        "examples": [
            {"index": int(i), "factors": values, "image": picture}
            for i, values, picture in zip(examples.index, factors, pictures, strict=True)
        ],
    }


def _factor_texts(data: FactorData, values: Sequence[float]) -> list[int | float | str]:
    """Return factor values for the page: integers, continuous values with four digits, or "missing"."""
    return [
        "missing" if math.isnan(value) else float(f"{value:.4g}") if name in data.continuous else int(value)
        for name, value in zip(data.names, values, strict=True)
    ]


def add_detail(row: dict[str, Any], run: Run, data: FactorData, weights: dict[str, bytes] | None) -> None:
    """Add the details of a run to its row, and the weights of its decoder to `weights`.

    If the page cannot run the decoder, the row contains the reason. If `weights` is None, a server runs the decoder.
    `row["decoder"]` then contains only the number of latents and the shape of a decoded example.
    """
    row["detail"] = run_detail(run, data, Examples.choose(data, START_EXAMPLES))
    row["decoder"] = None
    if run.net.decoder is None:
        row["why"] = "This method trains an encoder only, so there is no decoder."
    elif weights is None:
        row["decoder"] = {"latents": run.spec.latents, "shape": picture_shape(data)}
    else:
        try:
            program = decoder_program(run.net, data.shape, run.spec.latents)
            if len(program.weights) > MAX_WEIGHT_BYTES:
                size = f"{len(program.weights) / 1e6:.1f} MB"
                raise UserError(f"The decoder has {size} of weights, which is too large for a page.")
            row["decoder"], weights[run.id] = program.spec, program.weights
        except UserError as error:
            row["why"] = f"{error} To move its latents, run: unbraid explore {run.path or 'FOLDER'}"


def picture_shape(data: FactorData) -> list[int]:
    """Return the shape of an example on the page: the shape of its picture, or of the vector if it cannot be drawn."""
    if not is_drawable(data):
        return list(data.shape)
    return list(example_images(data, torch.zeros(1, dtype=torch.long))[0].shape)


def study_analyses(folder: Path) -> list[dict[str, Any]]:
    """Return every analysis with its question, and either its answer and figure or the reason why it was skipped."""
    from unbraid.analysis import ANALYSES, analyse

    reasons: dict[str, str] = {}
    results = analyse(folder, on_skip=reasons.__setitem__)
    entries = []
    for name, analysis in ANALYSES.items():
        if name in reasons:
            answer: dict[str, Any] = {"reason": reasons[name]}
        else:
            result = results[name]
            figure = figure_picture(result.figure, f"{analysis.question} {result.text}")
            answer = {"text": result.text, "figure": figure}
        entries.append({"name": name, "question": analysis.question, **answer})
    return entries
