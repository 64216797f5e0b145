"""Training the runs that the comparison of a study with its published numbers needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unbraid.reproduction import find_target
from unbraid.studies.runner import study


def train_target(
    name: str,
    out: str | Path,
    *,
    only: Mapping[str, str | Sequence[str]] | None = None,
    metrics: Iterable[str] | None = None,
    device: str = "cpu",
    quiet: bool = False,
    **options: Any,
) -> Path:
    """Train and score those runs of a study that have published numbers; `reproduce` then compares them.

    Args:
        name: A study with published numbers.
        out: The folder of the runs.
        only: Selects runs. Facts that are not given are those that the published numbers need.
        metrics: Metrics to compute; by default those of the published numbers.
        device: "cpu" or "cuda".
        quiet: Whether to show no progress.
        **options: Further arguments of `unbraid.study`.

    Returns:
        The path of the results table.

    Raises:
        UserError: If the study has no published numbers or an argument is invalid.
    """
    target = find_target(name)
    names = target.metrics if metrics is None else metrics
    path = study(name, out, only=needed_runs(name, only), metrics=names, device=device, quiet=quiet, **options)
    if target.finish is not None:
        target.finish(Path(out), device, quiet)
    return path


def needed_runs(name: str, only: Mapping[str, str | Sequence[str]] | None) -> dict[str, str | Sequence[str]]:
    """The selection `only`, completed by the facts of the runs that the published numbers of a study need."""
    return {**find_target(name).only, **(only or {})}
