"""Train the runs that are needed to compare a study with its published numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from unbraid.reproduction import find_target
from unbraid.runs.only import Only, parse_only
from unbraid.studies.runner import study


def train_target(
    name: str,
    out: str | Path,
    *,
    only: Only = None,
    metrics: Iterable[str] | None = None,
    device: str = "cpu",
    quiet: bool = False,
    **options: Any,
) -> Path:
    """Train and score the runs that `reproduce` needs to compare a study with its published numbers.

    Args:
        name: Name of a study with published numbers.
        out: The folder of the runs.
        only: Selects runs by their settings. Settings that are not given are restricted to the values that the
            comparison needs.
        metrics: Metrics to compute. By default those that the comparison needs.
        device: "cpu" or "cuda".
        quiet: Whether to hide the progress bar.
        **options: Further arguments of `unbraid.study`.

    Returns:
        The path of the results table.

    Raises:
        UserError: If the study has no published numbers, or if an argument is invalid.
    """
    target = find_target(name)
    names = target.metrics if metrics is None else metrics
    path = study(name, out, only=needed_runs(name, only), metrics=names, device=device, quiet=quiet, **options)
    if target.finish is not None:
        target.finish(Path(out), device, quiet)
    return path


def needed_runs(name: str, only: Only) -> dict[str, Sequence[str]]:
    """Return `only`, with the settings that it lacks taken from the target of the study."""
    return {**find_target(name).only, **parse_only(only)}
