"""Sheets that show several models: samples from the prior, reconstructions of the same examples, and traversals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.noise import Noise
from unbraid.pictures.comparison import add_title, place_in_rows, place_side_by_side, reconstructions
from unbraid.pictures.examples import check_drawable, decoded_images, start_example
from unbraid.pictures.images import labelled_grid, tile_scale, write_picture
from unbraid.pictures.traversal import check_decoder, check_grid_arguments, decode_traversal, draw_grid
from unbraid.runs.labels import run_labels
from unbraid.runs.prior import prior_latents
from unbraid.runs.run import Run
from unbraid.runs.run_data import run_data
from unbraid.runs.spec import method_name

MAX_TITLE_COLUMNS = 8  # maximum number of columns of a panel of samples


def draw_samples(
    runs: Sequence[Run], out: str | Path, *, data: str | FactorData | None = None, count: int = 64, seed: int = 0
) -> Path:
    """Write a PNG file with one panel per run that shows decoded samples from its prior.

    Runs with a standard normal prior and the same number of latents decode the same samples.

    Args:
        runs: Runs with a decoder and a prior.
        out: The path of the file.
        data: A dataset with examples of the decoded shape, or its name. By default the dataset of each run.
        count: The number of samples per run.
        seed: The random seed.

    Returns:
        The path.

    Raises:
        UserError: If there are no runs, if a run has no decoder or no prior, or if its data cannot be drawn.
    """
    check_runs(runs)
    if count < 1:
        raise UserError(f"The number of samples must be at least 1. Got {count} instead.")
    columns = min(max(1, math.ceil(math.sqrt(count))), MAX_TITLE_COLUMNS)
    panels, labels = [], run_labels(run.spec for run in runs)
    for run in runs:
        source = run_data(run, data, run.device)
        check_drawable(source)
        images = decoded_images(run.decode(prior_latents(run, count, seed)), source)
        rows = [("", images[i : i + columns]) for i in range(0, count, columns)]
        panels.append(add_title(labelled_grid(rows, tile_scale(*images[0].shape[1:])), labels[run.id]))
    return write_picture(out, place_side_by_side(panels))


def draw_reconstructions(
    runs: Sequence[Run],
    out: str | Path,
    *,
    data: str | FactorData | None = None,
    examples: int = 10,
    seed: int | None = None,
) -> Path:
    """Write a PNG file with a row of examples and one row of their reconstructions per run.

    Args:
        runs: Runs with a decoder, on the same dataset.
        out: The path of the file.
        data: A dataset or its name, such as "mnist?part=test". By default the dataset of the runs.
        examples: The number of examples.
        seed: The random seed with which examples are drawn. By default they are spread evenly over the data.

    Returns:
        The path.

    Raises:
        UserError: If there are no runs, if a run has no decoder, if the runs have different datasets and `data` is not
            given, or if the data cannot be drawn.
    """
    check_runs(runs)
    names = list(dict.fromkeys(run.spec.data for run in runs))
    if data is None and len(names) > 1:
        raise UserError(
            f"A sheet of reconstructions needs runs on one dataset. Got {', '.join(names)} instead. Choose runs on one "
            "of them, or name the data with --data (data=...)."
        )
    source = run_data(runs[0], data, runs[0].device)
    check_drawable(source)
    index = choose_examples(source, examples, seed)
    rows = [("examples", decoded_images(source.batch(index), source))]
    for run, label in zip(runs, row_labels(runs), strict=True):
        rows.append((label, decoded_images(reconstructions(run, source, index), source)))
    return write_picture(out, labelled_grid(rows, tile_scale(*rows[0][1][0].shape[1:])))


def draw_traversals(
    runs: Sequence[Run],
    out: str | Path,
    *,
    data: str | FactorData | None = None,
    titles: Sequence[str] | None = None,
    example: int | None = None,
    span: float = 2.0,
    columns: int = 9,
) -> Path:
    """Write a PNG file with one panel per run that shows the effect of each of its latents.

    Args:
        runs: Runs with a decoder.
        out: The path of the file.
        data: A dataset or its name. By default the dataset of each run.
        titles: One title per run. By default their labels, with the settings in which the runs differ.
        example: The index of the example to start from. By default the one in the middle of the data.
        span: The largest position. Positions run from -span to span (see `traverse`).
        columns: The number of positions.

    Returns:
        The path.

    Raises:
        UserError: If there are no runs, if a run has no decoder, if its data cannot be drawn, or if an argument is not
            valid.
    """
    check_runs(runs)
    check_grid_arguments(span, columns)
    positions = torch.linspace(-span, span, columns)
    panels = []
    labels = run_labels(run.spec for run in runs)
    for run, title in zip(runs, titles or [labels[run.id] for run in runs], strict=True):
        source = run_data(run, data, run.device)
        chosen = start_example(source, example)
        traversal = decode_traversal(run, source, chosen, positions).as_images(source)
        panels.append(add_title(draw_grid(traversal, tile_scale(*traversal.decoded.shape[3:])), title))
    return write_picture(out, place_in_rows(panels, math.ceil(math.sqrt(len(panels)))))


def check_runs(runs: Sequence[Run]) -> None:
    """Raise a UserError if there are no runs, or if one of them has no decoder."""
    if not runs:
        raise UserError("A sheet needs at least one trained run with a decoder. Got none instead.")
    for run in runs:
        check_decoder(run)


def choose_examples(data: FactorData, examples: int, seed: int | None) -> Tensor:
    """Return the indices of examples that are spread evenly over the data, or that are drawn with a seed."""
    if examples < 1:
        raise UserError(f"The number of examples must be at least 1. Got {examples} instead.")
    if seed is None:
        return torch.linspace(0, len(data) - 1, examples + 2, device=data.device).long()[1:-1]
    key = torch.tensor(seed, device=data.device)
    return data.draw(Noise.from_seed(key, torch.zeros_like(key)), examples)


def row_labels(runs: Sequence[Run]) -> list[str]:
    """Return one label per run: its method, the hyperparameter that sweeps vary, and its seed.

    If several runs would have the same label, the id of each of them replaces the seed.
    """
    heads = []
    for run in runs:
        swept = run.spec.method.swept_field()
        strength = "" if swept is None else f"\n{swept}={run.spec.method.strength:g}"
        heads.append(f"{method_name(run.spec.method)}{strength}")
    seeds = ["" if run.spec.seed is None else f"\nseed={run.spec.seed}" for run in runs]
    labels = [head + seed for head, seed in zip(heads, seeds, strict=True)]
    return [
        f"{head}\n{run.id}" if labels.count(label) > 1 else label
        for head, run, label in zip(heads, runs, labels, strict=True)
    ]


def one_run_per_setting(runs: Sequence[Run]) -> list[Run]:
    """From each group of runs that differ only in the seed, return the run with the lowest seed."""
    first: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.spec.sort_key()):
        first.setdefault(run.spec.settings_key(), run)
    chosen = {id(run) for run in first.values()}
    return [run for run in runs if id(run) in chosen]
