"""The ceilings and floors in the table of a report page: the scores of perfect codes and of noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unbraid.data.dataset import FactorData
from unbraid.metrics import TRAITS, headline
from unbraid.metrics.bounds import bounds
from unbraid.metrics.protocol import Protocol, sample_sentences
from unbraid.runs.run import Run
from unbraid.runs.scores import read_protocol
from unbraid.scoring.bounds_rows import LABELS, factor_rows
from unbraid.scoring.run_scorer import ExampleTable


def run_protocols(runs: Sequence[Run]) -> dict[str, Protocol]:
    """Return the scoring protocol of each run, by run id. It is that of the run's study, or else the default protocol.

    Each `study.json` is read only once.
    """
    folders = {run.path.parent for run in runs if run.path is not None}
    read = {folder: read_protocol(folder) for folder in folders}
    return {run.id: Protocol() if run.path is None else read[run.path.parent] for run in runs}


def number_protocols(runs: Sequence[Run]) -> dict[Protocol, int]:
    """Return a number for each different protocol of the runs, from 0, in order of appearance."""
    return {protocol: i for i, protocol in enumerate(dict.fromkeys(run_protocols(runs).values()))}


def ceilings_and_floors(
    data: FactorData, runs: Sequence[Run], metrics: list[str], numbers: Mapping[Protocol, int]
) -> list[dict[str, Any]]:
    """Return the main scores of a perfect code and of noise, for each protocol and number of latents of the runs.

    Args:
        data: The dataset.
        runs: The runs on this dataset.
        metrics: Names of metrics.
        numbers: The number by which the page refers to each protocol (see `number_protocols`).

    Returns:
        One dictionary per code with `kind` ("perfect" or "noise"), `label`, `protocol` (its number), `latents` and
        `scores`. `latents` is None for a perfect code, because its scores do not depend on the number of latents. The
        list is empty if the data have no factors or there are no metrics.
    """
    if not data.names or not metrics:
        return []
    protocols, several = run_protocols(runs), len({run.spec.latents for run in runs}) > 1
    found: dict[tuple[str, int, int | None], dict[str, Any]] = {}
    for protocol, latents in dict.fromkeys((protocols[run.id], run.spec.latents) for run in runs):
        rows, number = factor_rows(data, latents, protocol), numbers[protocol]
        for kind, scores in bounds(rows, metrics, protocol.seed).items():
            own = latents if kind == "noise" else None
            more = [f"{own} latents"] * (several and own is not None)
            more += [f"{protocol.draws} draws"] * (len(numbers) > 1)
            main = {headline(name): values[TRAITS[name].headline] for name, values in scores.items() if values}
            facts = {"kind": kind, "protocol": number, "latents": own, "scores": main}
            found[kind, number, own] = {"label": ", ".join([LABELS[kind], *more]), **facts}
    return sorted(found.values(), key=lambda row: row["kind"], reverse=True)


def sample_notes(datasets: Mapping[str, FactorData], runs: Sequence[Run]) -> list[str]:
    """Return sentences that say how many rows of each dataset the metrics use, and how these rows are drawn."""
    protocols = run_protocols(runs)
    samples = []
    for name, protocol in dict.fromkeys((run.spec.data, protocols[run.id]) for run in runs):
        if datasets[name].names:
            sizes = protocol.sizes(len(ExampleTable.of(datasets[name], protocol).index))
            samples.append((sizes["train"], sizes["test"], protocol.draws))
    return sample_sentences(samples)
