"""The comparison in docs/appearance.md, from what benchmarks/bench_vitae.py measured."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from gpu_pages import marks
from metric_pages import ROOT, result, rows

PAGE = ROOT / "docs" / "appearance.md"


def vitae_pages() -> dict[Path, str]:
    """The page with its tables made anew, those that have been measured."""
    text = PAGE.read_text()
    for name in ("mnist", "bodies"):
        begin, end = marks("vitae" if name == "mnist" else f"vitae {name}")
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{table(result(f'bench_vitae_{name}'))}\n{end}{rest.split(end)[1]}"
    return {PAGE: text}


def spread(found: list[dict[str, Any]], key: str) -> str:
    """Mean and range over seeds."""
    values = [row[key] for row in found]
    digits = 1 if abs(values[0]) > 10 else 2
    return f"{statistics.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def mean(found: list[dict[str, Any]], key: str) -> str:
    """Over seeds."""
    return f"{statistics.mean(row[key] for row in found):.2f}"


def told(found: list[dict[str, Any]], factor: str) -> str:
    """What appearance, perspective and the whole code tell of a factor, means over seeds."""
    parts = [[row["told"][factor][0], row["told"][factor][1], row["whole"][factor]] for row in found]
    return " / ".join(f"{statistics.mean(values):.2f}" for values in zip(*parts, strict=True))


def table(bench: dict[str, Any]) -> str:
    """A row a model: bounds, separation, and what each part of the code tells of every factor."""
    settings, first = bench["settings"], next(iter(bench["found"].values()))[0]
    upright = ["digit from upright images"] if "upright_accuracy" in first else []
    body = [
        [f"`{name}`", f"{found[0]['parameters']:,}", spread(found, "elbo"), spread(found, "iwae"),
         spread(found, "separation"), *(mean(found, "upright_accuracy") for _ in upright),
         *(told(found, factor) for factor in first["told"])]
        for name, found in bench["found"].items()
    ]  # fmt: skip
    head = (
        f"{settings['seeds']} seeds, {int(settings['steps']):,} steps of {settings['batch']}, learning rate "
        f"{settings['learning_rate']}, 4 latents, on the CPU: means over seeds (and their range). Nats an image, "
        f"{settings['samples']} samples for IWAE; what appearance / perspective / the whole code tells of each factor, "
        "from 0 to 1 (for VAEs, the split of the latents that separates best)."
    )
    return head + "\n\n" + rows(["model", "parameters", "ELBO", "IWAE", "separation", *upright, *first["told"]], body)
