"""The tables in docs/appearance.md, from what benchmarks/bench_vitae.py and bench_vitae_times.py measured."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from gpu_pages import filled
from metric_pages import ROOT, result, rows

PAGE = ROOT / "docs" / "appearance.md"
# Milliseconds forward and backward in the supplement's table 5, which gives no backward times of C-VITAE.
PAPER = {"VAE": ("1.6", "14"), "beta-VAE": ("1.6", "14"), "beta-TCVAE": ("2.0", "16"), "DIP-VAE-II": ("2.5", "18"),
         "C-VITAE, affine": ("9.2", ""), "C-VITAE, cpab": ("100", "")}  # fmt: skip


def vitae_pages() -> dict[Path, str]:
    """The page with its tables made anew, those that have been measured."""
    text = PAGE.read_text()
    made = {"vitae": table(result("bench_vitae_mnist")), "vitae bodies": table(result("bench_vitae_bodies"))}
    for name, part in {**made, "vitae times": times()}.items():
        text = filled(text, name, part)
    return {PAGE: text}


def times() -> str:
    """A row a model: milliseconds of a batch on each device that was measured, and what the paper gives."""
    cpu, on_gpu = result("bench_vitae_times_cpu"), ROOT / "benchmarks" / "results" / "bench_vitae_times_cuda.json"
    columns = {("CPU", "forward"): cpu, ("CPU", "forward and backward"): cpu}
    where = f"one core ({cpu['machine']['processor']}, two cores that others used too)"
    if on_gpu.exists():
        gpu = result("bench_vitae_times_cuda")
        columns |= {("GPU", f"{what}, replayed"): gpu for what in ("forward", "forward and backward")}
        where += f", and as one CUDA graph on an {gpu['machine']['devices'][0]}"
    body = [
        [label, *(f"{bench['milliseconds'][label][what]:.3g}" for (_, what), bench in columns.items()),
         *PAPER.get(label, ("", ""))]
        for label in cpu["milliseconds"]
    ]  # fmt: skip
    heads = [f"{device}, {what.removesuffix(', replayed')}" for device, what in columns]
    head = (
        f"Milliseconds of the objective of {cpu['batch']} images of {cpu['side']}x{cpu['side']}, medians of "
        f"{cpu['repeats']}, on {where}; beside them the paper's forward and backward passes on a GTX TITAN X."
    )
    return head + "\n\n" + rows(["model", *heads, "paper, forward", "paper, backward"], body)


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
