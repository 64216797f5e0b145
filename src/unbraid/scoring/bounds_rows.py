"""Reference rows for a table of scores: the scores of perfect codes and of pure noise on the same factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unbraid.metrics.bounds import bounds
from unbraid.metrics.protocol import Protocol, Rows, Selection
from unbraid.runtime.progress import progress

if TYPE_CHECKING:
    from unbraid.data.dataset import FactorData
    from unbraid.runs.run import Run

LABELS = {"perfect": "a perfect code", "noise": "pure noise"}


class BoundsSample(NamedTuple):
    """A sample of rows for which the scores of perfect codes and of noise are computed.

    Attributes:
        data: Name of the dataset for the label, or "" if all samples of the table have the same dataset.
        latents: Number of latents for the label, or None if all samples of the table have the same number.
        rows: The rows.
        factors: Names of the factors.
    """

    data: str
    latents: int | None
    rows: Rows
    factors: tuple[str, ...] = ()

    def label(self, kind: str) -> str:
        """Return the label of a row. `kind` is "perfect" or "noise"."""
        more = [f"data={self.data}"] * bool(self.data)
        more += [f"latents={self.latents}"] * (self.latents is not None and kind == "noise")
        return " ".join([LABELS[kind], *more])

    def label_notes(self) -> list[str]:
        """Return a sentence that names the continuous factors and one that counts the missing labels.

        A sentence is left out if there is nothing to name or count.
        """
        on = f" of {self.data}" * bool(self.data)
        continuous = [name for name, flag in zip(self.factors, self.rows.continuous or (), strict=False) if flag]
        notes = [f"Continuous factors{on}: {', '.join(continuous)}."] if continuous else []
        if self.rows.missing:
            counts = zip(self.factors, np.isnan(self.rows.factors).sum(0), strict=True)
            listed = ", ".join(f"{name} {count:,}" for name, count in counts if count)
            notes.append(
                f"Missing labels{on} (of {len(self.rows.factors):,} rows): {listed}. A factor is scored on the rows "
                "that have its label."
            )
        return notes


def run_samples(runs: Sequence[Run], protocol: Protocol, quiet: bool = False) -> list[BoundsSample]:
    """Return one sample for each combination of dataset and number of latents that occurs among the runs.

    Datasets without factors are left out.
    """
    from unbraid.scoring.score import load_datasets

    kinds = dict.fromkeys((run.spec.data, run.spec.latents) for run in runs)
    datasets = load_datasets(runs, quiet=quiet)
    several_data, several_latents = len(datasets) > 1, len({latents for _, latents in kinds}) > 1
    return [
        BoundsSample(
            name if several_data else "",
            latents if several_latents else None,
            factor_rows(datasets[name], latents, protocol),
            datasets[name].names,
        )
        for name, latents in kinds
        if datasets[name].names
    ]


def factor_rows(data: FactorData, latents: int, protocol: Protocol) -> Rows:
    """Return rows with the factors of a dataset and with codes that are all 0."""
    from unbraid.scoring.factor_table import FactorTable, factor_periods

    periods = factor_periods(data)
    if data.gridded:
        return protocol.rows_with_zero_codes(data.sizes, latents, periods)
    index = protocol.list_indices(len(data))
    values, continuous = FactorTable.of(data, index)
    selection = Selection(index, len(data))
    return protocol.rows(np.zeros((len(values), latents)), values, continuous, selection, periods)


def bounds_rows(
    samples: Sequence[BoundsSample], names: Sequence[str], protocol: Protocol, quiet: bool = False
) -> list[dict[str, Any]]:
    """Return two rows for each sample: the scores of perfect codes and those of noise.

    Each row has the keys `label`, `bound` ("perfect" or "noise") and one key ``metric.key`` for each score.
    """
    rows: dict[str, dict[str, Any]] = {}
    with progress("scoring a perfect code and noise", 2 * len(names) * len(samples), quiet) as report:
        done = 0

        def count_metric(message: str) -> None:
            nonlocal done
            report(done, message)
            done += 1

        for sample in samples:
            for kind, scores in bounds(sample.rows, names, protocol.seed, count_metric).items():
                flat = {f"{name}.{key}": value for name, values in scores.items() for key, value in values.items()}
                rows[sample.label(kind)] = {"label": sample.label(kind), "bound": kind, **flat}
    return sorted(rows.values(), key=lambda row: row["bound"], reverse=True)
