"""The comparison in docs/appearance.md, from what benchmarks/bench_vitae.py measured."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from gpu_pages import marks
from metric_pages import ROOT, result, rows

PAGE = ROOT / "docs" / "appearance.md"


def vitae_pages() -> dict[Path, str]:
    """The page with its tables made anew."""
    begin, end = marks("vitae")
    before, rest = PAGE.read_text().split(begin)
    return {PAGE: f"{before}{begin}\n{table(result('bench_vitae_mnist'))}\n{end}{rest.split(end)[1]}"}


def spread(found: list[dict[str, Any]], key: str) -> str:
    """Mean and range over seeds."""
    values = [row[key] for row in found]
    digits = 1 if abs(values[0]) > 10 else 2
    return f"{statistics.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def told(found: list[dict[str, Any]], factor: str) -> str:
    """What appearance, perspective and the whole code tell of a factor, means over seeds."""
    parts = [[row["told"][factor][0], row["told"][factor][1], row["whole"][factor]] for row in found]
    return " / ".join(f"{statistics.mean(values):.2f}" for values in zip(*parts, strict=True))


def table(bench: dict[str, Any]) -> str:
    """A row a model: bounds on test digits, separation, and what each part of the code tells."""
    settings, factors = bench["settings"], ("digit", "turn", "right", "down")
    body = [
        [f"`{name}`", f"{found[0]['parameters']:,}", spread(found, "elbo"), spread(found, "iwae"),
         spread(found, "separation"), f"{statistics.mean(row['upright_accuracy'] for row in found):.2f}",
         *(told(found, factor) for factor in factors)]
        for name, found in bench["found"].items()
    ]  # fmt: skip
    head = (
        f"{settings['seeds']} seeds, {int(settings['steps']):,} steps of {settings['batch']}, learning rate "
        f"{settings['learning_rate']}, 4 latents, on the CPU: means over seeds (and their range). Nats of test digits, "
        f"{settings['samples']} samples for IWAE; what appearance / perspective / the whole code tells of each factor, "
        "from 0 to 1 (for VAEs, the split of the latents that separates best)."
    )
    columns = ["model", "parameters", "ELBO", "IWAE", "separation", "digit from upright images", *factors]
    return head + "\n\n" + rows(columns, body)
