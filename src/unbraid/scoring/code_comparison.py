"""Compare the codes of pairs of runs: similarity, linear maps, and codes of one run decoded by the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unbraid.data.dataset import FactorData
from unbraid.data.loading import DataLike
from unbraid.errors import UserError
from unbraid.metrics.protocol import Array
from unbraid.metrics.similarity import debiased_cka, fit_linear_map, linear_cka, linear_r2, procrustes_distance
from unbraid.runs.labels import run_labels
from unbraid.runs.only import Only
from unbraid.runs.run import Run
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.progress import ProgressCallback, progress
from unbraid.runtime.tables import html_table, wide_table
from unbraid.scoring.encoding import encode_table
from unbraid.scoring.reconstruction import decoding_error
from unbraid.scoring.score import load_datasets, scorable_runs
from unbraid.scoring.selection import draw_examples

MAX_DECODED = 1_000  # maximum number of examples to decode for each pair of runs
MIN_EXAMPLES = 8  # linear maps are fitted to half of the examples, and debiased CKA needs four examples
COLUMNS = {
    "CKA": "cka",
    "debiased CKA": "debiased_cka",
    "Procrustes": "procrustes",
    "R2 forward": "r2_forward",
    "R2 backward": "r2_backward",
    "error forward": "error_forward",
    "second's own": "error_second",
    "error backward": "error_backward",
    "first's own": "error_first",
}
NOTES = (
    "R2: how well a linear map predicts the codes of the second run from those of the first (forward) or the reverse "
    "(backward), on examples to which it was not fitted.",
    "error: mean squared error of reconstructions. Forward means that the decoder of the second run decodes codes of "
    "the first after the linear map, and backward means the reverse. 'own' is the error with the run's own codes.",
)
RunsLike = str | Path | Run | Iterable[str | Path | Run]


class CodeComparison(list[dict[str, Any]]):
    """A list with one row per pair of runs. Notebooks and `print` show it as a table."""

    def columns(self) -> dict[str, list[Any]]:
        """Return the columns of the table by title."""
        names = {"first": "first_label", "second": "second_label", **COLUMNS}
        cells = {title: [row[key] for row in self] for title, key in names.items()}
        return {title: ["-" if value is None else value for value in values] for title, values in cells.items()}

    def sentences(self) -> list[str]:
        """Return sentences with the means over all pairs, if there are several, and with the meaning of the columns."""
        values = {title: [row[key] for row in self if row[key] is not None] for title, key in COLUMNS.items()}
        means = [f"{title} {fmean(numbers):.3f}" for title, numbers in values.items() if numbers]
        summary = [f"Means over {len(self)} pairs of runs: {', '.join(means)}."] if len(self) > 1 and means else []
        return [*summary, *NOTES]

    def __str__(self) -> str:
        columns = self.columns()
        first: dict[str, Sequence[Any]] = {title: columns.pop(title) for title in ("first", "second")}
        return "\n".join([wide_table(first, columns), *self.sentences()])

    def _repr_html_(self) -> str:
        columns = self.columns()
        return html_table(list(columns), zip(*columns.values(), strict=True), self.sentences())


class EncodedExamples(NamedTuple):
    """Examples that are encoded by one run. All runs encode the same examples.

    Attributes:
        run: The run.
        codes: Codes of the default kind, (n, d).
        latents: Latents that the decoder takes, (n, d), or None if there is no decoder.
        error: Mean squared error with which the run reconstructs the examples that are decoded (see `split_examples`),
            or None if there is no decoder.
    """

    run: Run
    codes: Array
    latents: Array | None
    error: float | None


@explain_unknown_arguments()
def compare_codes(
    first: RunsLike,
    second: RunsLike | None = None,
    *,
    data: DataLike | None = None,
    examples: int = 10_000,
    seed: int = 0,
    quiet: bool = False,
    trust: bool = False,
    only: Only = None,
) -> list[dict[str, Any]]:
    """Compare the codes of runs in pairs, on the same examples and without labels.

    Three numbers are similarities of the codes of all examples: `linear_cka`, `debiased_cka` and
    `procrustes_distance`. None of them changes if codes are rotated, so they do not say whether single latents agree.
    Use `select` to compare single latents. Two linear maps, from the codes of one run to those of the other and back,
    are fitted to half of the examples and tested on the other half. The test examples are also decoded: the decoder of
    one run receives the codes of the other after the linear map, as in stitching (Lenc and Vedaldi, 2015,
    arXiv:1411.5908). At most 1,000 examples are decoded. Mapped codes are decoded without further changes, even if the
    latent space of a method is curved or discrete.

    Args:
        first: One run, several runs, or one or several folders of runs.
        second: The runs with which those of `first` are compared. By default the runs of `first` are compared with each
            other. A run is never compared with itself.
        data: The dataset to encode. By default the dataset of the runs, which must be the same for all of them.
        examples: Maximum number of examples to encode.
        seed: Random seed for the choice of examples.
        quiet: Whether to hide the progress bar.
        trust: Whether to run code that a folder names: methods and networks outside unbraid (see `load_runs`).
        only: Which runs to compare, by their settings, such as "method=beta_vae,beta=8" (see `load_runs`). By default
            all.

    Returns:
        One flat dictionary per pair, with `first`, `second` (ids), `first_label`, `second_label`, and

        - `cka`, `debiased_cka` and `procrustes`,
        - `r2_forward` and `r2_backward` (`linear_r2` from the first to the second run, and back),
        - `error_forward`, the mean squared error per pixel if the decoder of the second run decodes the mapped codes of
          the first, and `error_second`, the error if the same decoder decodes the codes of its own run,
        - `error_backward` and `error_first`, the same with the runs exchanged.

        A number that is not defined is None, for example errors without a decoder. Notebooks and `print` show the list
        as a table.

    Raises:
        UserError: If there is no pair of different runs, if the runs have different datasets, if the examples do
            not have the shape that a network needs, or if there are fewer than 8 examples.

    >>> import unbraid as ub
    >>> runs = ub.train("vae", data="toy", seeds=range(2), steps=5, quiet=True)
    >>> [row] = ub.compare_codes(runs, examples=200, quiet=True)
    >>> 0 <= row["cka"] <= 1
    True
    """
    left = scorable_runs(first, data, trust, only)
    right = left if second is None else scorable_runs(second, data, trust, only)
    pairs = list(combinations(left, 2)) if second is None else [(a, b) for a, b in product(left, right) if a.id != b.id]
    if not pairs:
        raise UserError(
            "A comparison of codes needs at least two different runs. Got fewer. Train more seeds, or pass another "
            "folder."
        )
    runs = list({run.id: run for pair in pairs for run in pair}.values())
    dataset = _shared_data(runs, data, quiet)
    index = draw_examples(dataset, examples, seed)
    if len(index) < MIN_EXAMPLES:
        raise UserError(f"A comparison of codes needs at least {MIN_EXAMPLES} examples. Got {len(index)} instead.")
    with progress("comparing", len(runs) + len(pairs), quiet) as report:
        return _compare_pairs(pairs, runs, dataset, index, report)


def _compare_pairs(
    pairs: Sequence[tuple[Run, Run]], runs: Sequence[Run], data: FactorData, index: Tensor, report: ProgressCallback
) -> CodeComparison:
    """Encode the examples with each run once, and return one row per pair."""
    encoded, labels = {}, run_labels([run.spec for run in runs])
    for done, run in enumerate(runs):
        report(done, f"encoding with {run.label}")
        encoded[run.id] = encode_examples(run, data.to(run.device), index)
    rows = CodeComparison()
    for done, (a, b) in enumerate(pairs):
        report(len(runs) + done)
        names = {"first": a.id, "second": b.id, "first_label": labels[a.id], "second_label": labels[b.id]}
        rows.append({**names, **compare_pair(encoded[a.id], encoded[b.id], data, index)})
    return rows


def _shared_data(runs: Sequence[Run], data: DataLike | None, quiet: bool) -> FactorData:
    """Return the dataset that all runs encode.

    Raise a UserError if the runs have different datasets, or if the examples do not have the input shape of a run.
    """
    datasets = load_datasets(runs, data, quiet)
    if data is None and len(datasets) > 1:
        raise UserError(
            f"Runs whose codes are compared must encode the same data. Got runs on {', '.join(datasets)}. Pass the "
            "dataset as data=, or choose other runs."
        )
    dataset = next(iter(datasets.values()))
    for run in runs:
        if run.net.shape is not None and tuple(run.net.shape) != tuple(dataset.shape):
            raise UserError(
                f"The data must have examples of the shape {tuple(run.net.shape)}, like the data of the run {run.id}. "
                f"Got the shape {tuple(dataset.shape)} of {dataset.name!r} instead. Choose other data or other runs."
            )
    return dataset


def split_examples(count: int) -> tuple[slice, slice, slice]:
    """Return the examples to which linear maps are fitted, those on which they are tested, and those to decode."""
    half = count // 2
    return slice(half), slice(half, None), slice(half, half + MAX_DECODED)


@torch.no_grad()
def encode_examples(run: Run, data: FactorData, index: Tensor) -> EncodedExamples:
    """Encode the examples at `index`, and reconstruct some of them if there is a decoder."""
    rows = index.to(data.device)
    q = encode_table(run, data, rows)
    codes = run.codes(q).double().cpu().numpy()
    if run.net.decoder is None:
        return EncodedExamples(run, codes, None, None)
    latents = run.spec.method.point_latents(run.net, q)
    decoded = split_examples(len(rows))[2]
    error = decoding_error(run, data, rows[decoded], latents[decoded])
    return EncodedExamples(run, codes, latents.double().cpu().numpy(), error)


def compare_pair(a: EncodedExamples, b: EncodedExamples, data: FactorData, index: Tensor) -> dict[str, float | None]:
    """Return the numbers of `compare_codes` for one pair of runs."""
    fit, test, _ = split_examples(len(index))
    numbers = {
        "cka": linear_cka(a.codes, b.codes),
        "debiased_cka": debiased_cka(a.codes, b.codes),
        "procrustes": procrustes_distance(a.codes, b.codes),
        "r2_forward": linear_r2(a.codes[fit], b.codes[fit], a.codes[test], b.codes[test]),
        "r2_backward": linear_r2(b.codes[fit], a.codes[fit], b.codes[test], a.codes[test]),
        "error_forward": stitching_error(a, b, data, index),
        "error_second": b.error,
        "error_backward": stitching_error(b, a, data, index),
        "error_first": a.error,
    }
    return {name: value if value is not None and math.isfinite(value) else None for name, value in numbers.items()}


def stitching_error(source: EncodedExamples, target: EncodedExamples, data: FactorData, index: Tensor) -> float | None:
    """Return the mean squared error if the decoder of `target` decodes the codes of `source` after a linear map.

    The map predicts the latents from which `target` reconstructs the examples. The result is None if `target` has no
    decoder.
    """
    if target.latents is None:
        return None
    fit, _, decoded = split_examples(len(index))
    mapped = fit_linear_map(source.codes[fit], target.latents[fit])(source.codes[decoded])
    latents = torch.as_tensor(mapped, dtype=torch.float32)
    return decoding_error(target.run, data, index[decoded], latents)
