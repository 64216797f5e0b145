"""The evaluation of the VITAE studies: likelihood bounds, and the separation of appearance from perspective.

The scores are stored with the other scores of each run. They are therefore also columns of the study's results table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from unbraid.data.dataset import FactorData, factor_index
from unbraid.data.loading import load_data
from unbraid.data.moving import MOVES, MovedImages
from unbraid.errors import UserError
from unbraid.metrics.protocol import Array, Values, score_versions
from unbraid.runs.folder import RunFolder
from unbraid.runs.results import read_sweep_positions, write_results
from unbraid.runs.run import Run, load_runs
from unbraid.runs.scores import add_scores, find_score, read_scores
from unbraid.runs.spec import method_name
from unbraid.runtime.progress import progress
from unbraid.scoring.appearance import appearance_accuracy, appearance_columns, predictability, separation
from unbraid.scoring.likelihood import likelihood_bounds

PERSPECTIVE_FACTORS = (
    *MOVES,
    "pose",
    "scale",
    "orientation",
    "x",
    "y",
)  # in all datasets of unbraid, the factors that describe position or pose
REVISION = "0.1.0"  # the version of unbraid that last changed the numbers of these scores
MIN_EXAMPLES = 100  # with fewer examples, the separation is not reliable
N_NEIGHBOUR_EXAMPLES = (
    10_000  # number of training examples in which nearest neighbours of decoded appearances are searched
)
TITLES = {"bounds.elbo": "ELBO", "bounds.iwae": "IWAE", "separation.score": "separation", "upright.accuracy": "upright"}
Factors = dict[str, Array]


@dataclass(frozen=True)
class AppearanceSettings:
    """Settings for the evaluation of runs.

    Attributes:
        examples: Number of test examples, at least 100.
        samples: Number of importance samples per example.
        perspective: Names of the factors to treat as perspective. None selects those in `PERSPECTIVE_FACTORS`.
        seed: Random seed for the choice of examples and for the importance samples.
    """

    examples: int = 3_000
    samples: int = 50
    perspective: tuple[str, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, minimum in {"examples": MIN_EXAMPLES, "samples": 1}.items():
            if (value := getattr(self, name)) < minimum:
                raise UserError(f"The number of {name} must be at least {minimum}. Got {value} instead.")

    def choose_rows(self, data: FactorData) -> Int[Tensor, " n"]:
        """Choose examples at random and return their sorted indices, of shape (n,).

        The choice is random because evenly spaced examples of a grid would omit some values of the factors.
        """
        order = np.random.default_rng(self.seed).permutation(len(data))
        return torch.from_numpy(np.sort(order[: self.examples]))

    def split_factors(self, data: FactorData, rows: Int[Tensor, " n"]) -> tuple[Factors, Factors]:
        """Return two dictionaries, the factors of appearance and of perspective. Each maps names to arrays (n,).

        Continuous factors and the movements of moved images are returned as real numbers instead of bins.
        """
        for name in self.perspective or ():
            factor_index(data, name)  # raises an error if there is no such factor
        names = PERSPECTIVE_FACTORS if self.perspective is None else self.perspective
        values: Factors = dict(zip(data.names, data.factors(rows).cpu().numpy().T, strict=True))
        exact = data.factor_values(rows).cpu().numpy() if data.continuous else None
        values |= {name: exact[:, data.names.index(name)] for name in data.continuous if exact is not None}
        if isinstance(data, MovedImages):
            values |= dict(zip(MOVES, data.moves[rows].cpu().numpy().T, strict=True))
        perspective = {name: values.pop(name) for name in data.names if name in names}
        return values, perspective


def held_out_name(name: str) -> str:
    """Return the name of the dataset on which runs trained on `name` are evaluated.

    This is the test part of the dataset, or the dataset itself if it has no parts.

    >>> held_out_name("mnist?pad=0&part=train"), held_out_name("sprites")
    ('mnist?pad=0&part=test', 'sprites')
    """
    return name.replace("part=train", "part=test")


def evaluate_run(run: Run, learn: FactorData, test: FactorData, settings: AppearanceSettings) -> dict[str, Values]:
    """Evaluate a run and return its scores by metric.

    Args:
        run: The run.
        learn: The dataset on which the run was trained.
        test: The dataset on which it is evaluated.
        settings: The settings for the evaluation.

    Returns:
        A dictionary with up to three entries. "bounds" contains the likelihood bounds and the number of parameters.
        "separation" contains the separation score, and how well the appearance latents, the perspective latents and all
        latents predict each factor. It is present if the data have factors of both appearance and perspective.
        "upright" contains the accuracy with which decoded appearances predict the first factor of appearance (see
        `appearance_accuracy`). It is present if the dataset has a test part and factors of appearance.
    """
    rows = settings.choose_rows(test)
    bounds = likelihood_bounds(run, test, index=rows, samples=settings.samples, seed=settings.seed, quiet=True)
    scores: dict[str, Values] = {"bounds": bounds}
    scores["bounds"]["parameters"] = sum(p.numel() for p in run.net.parameters())
    appearance, perspective = settings.split_factors(test, rows)
    if appearance and perspective:
        codes = run.encode(test.images(rows)).cpu().numpy()
        scores["separation"] = separation_values(codes, appearance, perspective, run)
    if appearance and held_out_name(learn.name) != learn.name:
        neighbours, factor = AppearanceSettings(N_NEIGHBOUR_EXAMPLES).choose_rows(learn), next(iter(appearance))
        classes = settings.split_factors(learn, neighbours)[0][factor]
        examples = (learn.images(neighbours), classes), (test.images(rows), appearance[factor])
        scores["upright"] = {"accuracy": appearance_accuracy(run, *examples)}
    return scores


def separation_values(codes: Array, appearance: Factors, perspective: Factors, run: Run) -> Values:
    """Return the separation score, and how well three groups of latents predict each factor.

    The groups are the appearance latents, the perspective latents, and all latents.
    """
    result = separation(codes, appearance, perspective, appearance_columns(run))
    values = {"score": result.score}
    for name, factor in {**appearance, **perspective}.items():
        by_appearance, by_perspective = result.predictability[name]
        values[f"{name}.appearance"] = by_appearance
        values[f"{name}.perspective"] = by_perspective
        values[f"{name}.whole"] = predictability(codes, factor)
    return values


def read_or_evaluate(run: Run, learn: FactorData, test: FactorData, settings: AppearanceSettings) -> dict[str, Values]:
    """Return the scores of `evaluate_run`. Stored scores are read; missing scores are computed and stored."""
    perspective = None if settings.perspective is None else list(settings.perspective)
    key = {
        "codes": run.spec.method.code_kinds[0], "data": test.name, "examples": settings.examples,
        "samples": settings.samples, "perspective": perspective, "seed": settings.seed,
        "source": getattr(test, "fingerprint", None),
        "versions": score_versions(REVISION, ("torch", "scikit-learn")),
    }  # fmt: skip
    assert run.path is not None
    folder = RunFolder(run.path, run.spec)
    records = [record for record in read_scores(folder.path) if find_score([record], key)]
    if not records:
        scores = evaluate_run(run, learn, test, settings)
        records = [{"metric": name, **key, "values": values} for name, values in scores.items()]
        add_scores(folder.path, records)
    return {record["metric"]: record["values"] for record in records}


def appearance_table(
    folder: str | Path,
    settings: AppearanceSettings = AppearanceSettings(),
    device: str = "cpu",
    quiet: bool = False,
    *,
    trust: bool = False,
) -> list[dict[str, Any]]:
    """Evaluate the runs of a study and return one row per setting, in the order of the study.

    Runs have the same setting if they differ in the seed only. The scores are stored in the folders of the runs, and
    the results table is rewritten to include them.

    Args:
        folder: The folder of the study, or any folder of runs with decoders.
        settings: The settings for the evaluation.
        device: "cpu" or "cuda".
        quiet: If True, do not show progress.
        trust: Whether to run code that the folder names: methods and networks outside unbraid (see `load_runs`).

    Returns:
        One row per setting, with the keys `data`, `method`, `label` (the method with its hyperparameters) and `runs`
        (the number of runs), and one key per score. A score is a list with one value per seed. Examples of its key are
        `bounds.elbo`, `bounds.iwae`, `separation.score` and `separation.FACTOR.appearance`.

    Raises:
        UserError: If no run in the folder is fully trained.
    """
    runs = [run for run in load_runs(folder, device=device, trust=trust) if run.divergence is None]
    if not runs:
        raise UserError(f"No run in {folder} is fully trained. Run the command of the study again to resume it.")
    scores: dict[str, dict[str, Values]] = {}
    for name in dict.fromkeys(run.spec.data for run in runs):
        learn, test = (load_data(part, device, quiet) for part in (name, held_out_name(name)))
        members = [run for run in runs if run.spec.data == name]
        with progress("evaluating", len(members), quiet) as report_progress:
            for done, run in enumerate(members):
                report_progress(done, run.label)
                scores[run.id] = read_or_evaluate(run, learn, test, settings)
    write_results(Path(folder))
    positions = read_sweep_positions(Path(folder))
    ordered = sorted(runs, key=lambda run: (positions.get(run.id, {}).get("index", 0), run.spec.sort_key()))
    by_setting: dict[str, list[Run]] = {}
    for run in ordered:
        by_setting.setdefault(replace(run.spec, seed=0).id, []).append(run)
    return [seeds_row(group, scores) for group in by_setting.values()]


def seeds_row(runs: Sequence[Run], scores: Mapping[str, Mapping[str, Values]]) -> dict[str, Any]:
    """Return one row for runs that differ in the seed only. Each score is a list with one value per run."""
    row: dict[str, Any] = {"data": runs[0].spec.data, "method": method_name(runs[0].spec.method)}
    row |= {"label": runs[0].label.rpartition(" seed=")[0], "runs": len(runs)}
    for run in runs:
        for metric, values in scores[run.id].items():
            for name, value in values.items():
                row.setdefault(f"{metric}.{name}", []).append(value)
    return row


def table_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the cells of each column of the printed table, by the title of the column.

    Likelihood bounds, separation scores and accuracies are means over seeds, with the range if there are several seeds.
    The columns of factors show means only (see `factor_cell`).
    """
    titles = {key: title for key, title in TITLES.items() if any(key in row for row in rows)}
    whole = [key for row in rows for key in row if key.startswith("separation.") and key.endswith(".whole")]
    factors = dict.fromkeys(key.removeprefix("separation.").removesuffix(".whole") for key in whole)
    repeated_methods = len({row["method"] for row in rows}) < len(rows)
    return {
        "model": [row["label"] if repeated_methods else row["method"] for row in rows],
        "runs": [str(row["runs"]) for row in rows],
        "parameters": [f"{row['bounds.parameters'][0]:,.0f}" for row in rows],
        **{title: [mean_and_range(row.get(key)) for row in rows] for key, title in titles.items()},
        **{factor: [factor_cell(row, factor) for row in rows] for factor in factors},
    }


def factor_cell(row: Mapping[str, Any], factor: str) -> str:
    """Format how well appearance latents, perspective latents and all latents predict a factor, as means over seeds."""
    parts = [row.get(f"separation.{factor}.{part}") for part in ("appearance", "perspective", "whole")]
    return " / ".join("-" if part is None else f"{np.mean(part):.2f}" for part in parts)


def mean_and_range(values: Sequence[float] | None) -> str:
    """Format a mean, with the range if there are several values.

    >>> mean_and_range([-170.0, -168.0]), mean_and_range([0.25]), mean_and_range(None)
    ('-169.0 (-170.0 to -168.0)', '0.25', '-')
    """
    if not values:
        return "-"
    digits = 1 if abs(values[0]) > 10 else 2
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"
