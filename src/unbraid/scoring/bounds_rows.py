"""Ceilings and floors of scores as rows of a score table: a perfect code and pure noise on the same factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unbraid.metrics.bounds import bounds
from unbraid.metrics.protocol import Protocol, Rows
from unbraid.runtime.progress import no_progress, progress

if TYPE_CHECKING:
    from unbraid.data.dataset import FactorData
    from unbraid.runs.run import Run

LABELS = {"perfect": "a perfect code", "noise": "pure noise"}


class BoundsSample(NamedTuple):
    """Rows for which a ceiling and a floor are computed.

    `data` and `latents` appear in the label; they are empty and None if all samples of a table agree in them.
    """

    data: str
    latents: int | None
    rows: Rows

    def label(self, kind: str) -> str:
        """The label of the row of a perfect code or of noise."""
        more = [f"data={self.data}"] * bool(self.data)
        more += [f"latents={self.latents}"] * (self.latents is not None and kind == "noise")
        return " ".join([LABELS[kind], *more])


def run_samples(runs: Sequence[Run], protocol: Protocol, quiet: bool = False) -> list[BoundsSample]:
    """One sample for each dataset with factors and each number of latents among the runs."""
    from unbraid.scoring.score import load_datasets

    kinds = dict.fromkeys((run.spec.data, run.spec.latents) for run in runs)
    datasets = load_datasets(runs, quiet=quiet)
    several_data, several_latents = len(datasets) > 1, len({latents for _, latents in kinds}) > 1
    return [
        BoundsSample(
            name if several_data else "",
            latents if several_latents else None,
            factor_rows(datasets[name], latents, protocol),
        )
        for name, latents in kinds
        if datasets[name].names
    ]


def factor_rows(data: FactorData, latents: int, protocol: Protocol) -> Rows:
    """The rows of a dataset's factors, with codes of zero."""
    if data.gridded:
        return protocol.rows_with_zero_codes(data.sizes, latents)
    factors = data.factors(protocol.list_indices(len(data))).cpu().numpy()
    return protocol.rows(np.zeros((len(factors), latents)), factors)


def bounds_rows(
    samples: Sequence[BoundsSample], names: Sequence[str], protocol: Protocol, quiet: bool = False
) -> list[dict[str, Any]]:
    """One row for the perfect code and one for noise, for each sample.

    The rows have the keys `label`, `bound` ("perfect" or "noise") and one key ``metric.key`` for each score.
    """
    rows: dict[str, dict[str, Any]] = {}
    with (no_progress if quiet else progress)("ceilings and floors", 2 * len(names) * len(samples)) as report:
        done = 0

        def count(note: str) -> None:
            nonlocal done
            report(done, note)
            done += 1

        for sample in samples:
            for kind, scores in bounds(sample.rows, names, protocol.seed, count, protocol.draws).items():
                flat = {f"{name}.{key}": value for name, values in scores.items() for key, value in values.items()}
                rows[sample.label(kind)] = {"label": sample.label(kind), "bound": kind, **flat}
    return sorted(rows.values(), key=lambda row: row["bound"], reverse=True)
